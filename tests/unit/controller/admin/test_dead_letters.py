"""Letters of a queue, from the headers of its records, and letters that wait."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from controller.admin import dead_letters
from controller.admin.context import AdminContext
from controller.admin.dead_letters import letter
from controller.admin.errors import AdminError
from controller.admin.records import StoredRecord
from tidemark.model.authorization import Operation, Resource, group_resource, topic_resource
from tidemark.model.share_group_configs import DEAD_LETTER_TOPIC
from tidemark.model.topics import TopicPartition
from unit.controller.admin.contexts import a_context
from unit.controller.worlds import a_cluster, a_topic

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


# -- who sees what

AT = {name: TopicPartition(name, 0) for name in ("orders", "secret")}


class StubAdmin:
    """Client of brokers that serve the controller, which may do everything."""

    async def list_share_group_offsets(self, _: str) -> dict[TopicPartition, Any]:
        return dict.fromkeys(AT.values())


class StubViews:
    """Views of windows in which letters wait."""

    async def lag(self, *_: object) -> Any:
        return SimpleNamespace(archiving=3, dead_letter_problem="there is no topic dlq.a")


@asynccontextmanager
async def stub_views(_: AdminContext) -> AsyncIterator[StubViews]:
    yield StubViews()


def seeing(*resources: Resource) -> AdminContext:
    """The context of a caller who may describe these. The queue of ``g`` does not exist."""
    image = replace(
        a_cluster(a_topic("orders", (1,)), a_topic("secret", (1,))).image,
        group_configs={"g": {DEAD_LETTER_TOPIC: "dlq.a"}},
    )
    return a_context(image, dict.fromkeys(resources, (Operation.DESCRIBE,)), StubAdmin())


def test_letters_wait_in_topics_that_the_caller_may_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "share_views", stub_views)
    ctx = seeing(group_resource("g"), topic_resource("orders"), topic_resource("dlq.a"))
    found = asyncio.run(dead_letters.waiting(ctx, "g"))
    assert [one.topic_name for one in found] == ["orders"]


def test_a_queue_is_shown_to_those_who_may_describe_the_topic() -> None:
    ctx = seeing(group_resource("g"), topic_resource("dlq.a"))
    assert [(one.queue, one.state) for one in dead_letters.queues(ctx)] == [("dlq.a", "missing")]
    assert dead_letters.queue_of(ctx, "g").queue == "dlq.a"


def test_who_may_describe_the_group_alone_learns_no_name_of_a_topic() -> None:
    ctx = seeing(group_resource("g"), topic_resource("orders"))
    assert dead_letters.queues(ctx) == []
    assert dead_letters.find_queue(ctx, "g") is None
    for ask in (dead_letters.letters, dead_letters.waiting):
        with pytest.raises(AdminError) as refused:
            asyncio.run(ask(ctx, "g"))
        assert (refused.value.status, "dlq" in str(refused.value)) == (404, False)
