import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark.cli.failure import CommandError
from tidemark.cli.topic.formats import StartAt, as_json, as_line, check_format, parse_start
from tidemark.client.consumer.fetched_chunk import ConsumerRecord

UNTIMELY = ("1969-12-31T23:59:59.999", "0001-01-01", f"@{2**63}", f"{2**63}")
RECORD = ConsumerRecord("orders", 2, 41, 1_700_000_000_123, b"k", b"v\xff", (("h", b"1"),))


def test_a_line_follows_its_template() -> None:
    template = check_format(r"{topic}\t{partition}\t{offset}\t{key}={value} {headers}\\")
    assert as_line(RECORD, template) == "orders\t2\t41\tk=v\\xff h=1\\"


def test_time_is_for_people() -> None:
    assert as_line(RECORD, "{time}") == "2023-11-14T22:13:20.123Z"
    assert as_line(RECORD._replace(timestamp_ms=-1), "{time} {timestamp}") == "- -1"


@pytest.mark.parametrize("timestamp_ms", [1_700_000_000_123_456, 2**63 - 1])
def test_a_time_without_a_date_is_its_number(timestamp_ms: int) -> None:
    beyond = RECORD._replace(timestamp_ms=timestamp_ms, value=b"v")
    assert as_line(beyond, "{time} {value}") == f"{timestamp_ms} v"


@pytest.mark.parametrize("template", ["{nothing}", "{", "{}", "{key.x!z}"])
def test_a_template_that_cannot_be_is_refused(template: str) -> None:
    with pytest.raises(CommandError, match="--format"):
        check_format(template)


def test_json_tells_null_from_empty_and_text_from_bytes() -> None:
    line = json.loads(as_json(RECORD._replace(key=None)))
    assert line["key"] is None
    assert line["value_base64"] == "dv8="
    assert line["headers"] == [{"name": "h", "value": "1"}]
    assert json.loads(as_json(RECORD._replace(value=b"")))["value"] == ""


@given(st.binary(max_size=30), st.binary(max_size=30))
def test_any_record_is_one_line_of_json(key: bytes, value: bytes) -> None:
    line = as_json(RECORD._replace(key=key, value=value))
    assert "\n" not in line
    assert json.loads(line)["offset"] == 41


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", StartAt("earliest")),
        ("latest", StartAt("latest")),
        ("42", StartAt("offset", 42)),
        ("@1700000000123", StartAt("timestamp", 1_700_000_000_123)),
        ("2023-11-14T22:13:20", StartAt("timestamp", 1_700_000_000_000)),
        ("2023-11-14T23:13:20+01:00", StartAt("timestamp", 1_700_000_000_000)),
        ("2023-11-14", StartAt("timestamp", 1_699_920_000_000)),
    ],
)
def test_where_to_begin_is_read(text: str, start: StartAt) -> None:
    assert parse_start(text) == start


@pytest.mark.parametrize("text", ["", "begin", "-1", "@x", "2023-13-01", *UNTIMELY])
def test_what_is_no_place_in_a_log_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="is not a position in a log"):
        parse_start(text)
