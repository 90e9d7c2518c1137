"""Letters of a queue, from the headers of its records."""

import pytest
from controller.admin.dead_letters import letter
from controller.admin.records import StoredRecord

pytestmark = pytest.mark.feature("AD45")


def record(*headers: tuple[str, bytes | None]) -> StoredRecord:
    named = tuple((f"__dlq.errors.{name}", value) for name, value in headers)
    return StoredRecord("dlq.a", 1, 7, 5, None, None, named, "committed", None, -1, "none", False)


def test_headers_say_where_the_record_is_and_why_it_was_given_up() -> None:
    found = letter(
        record(
            ("topic", "grüße".encode()),
            ("partition", b"3"),
            ("offset", b"90"),
            ("delivery.count", b"5"),
            ("message", b"<b>"),
        )
    )
    assert (found.source_topic, found.source_partition, found.source_offset) == ("grüße", 3, 90)
    assert (found.delivery_count, found.reason, found.offset) == (5, "<b>", 7)


@pytest.mark.parametrize("value", [None, b"", b"-1", b"three", b"\xff", "٣".encode(), b"9" * 20])
def test_a_header_that_is_no_number_is_unknown(value: bytes | None) -> None:
    assert letter(record(("offset", value))).source_offset is None


def test_the_last_header_counts_as_a_copy_has_the_records_own_first() -> None:
    assert letter(record(("topic", b"forged"), ("topic", b"true"))).source_topic == "true"


def test_a_record_without_headers_is_a_letter_of_which_nothing_is_known() -> None:
    assert letter(record()).model_dump(exclude={"partition_id", "offset", "timestamp_ms"}) == {
        "source_topic": None,
        "source_partition": None,
        "source_offset": None,
        "delivery_count": None,
        "reason": None,
    }
