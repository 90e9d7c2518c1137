from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest
from tidemark.client.consumer.group_types import OffsetAndMetadata
from tidemark.client.consumer.positions import OffsetSpec
from tidemark.client.sync import Admin
from tidemark.model.topics import TopicPartition
from tidemark_spark.errors import SourceError
from tidemark_spark.source.offset_lookup import OffsetLookup, Positions
from tidemark_spark.source.offset_ranges import Topic
from tidemark_spark.source.read_options import ReadOptions, read_options

A0 = TopicPartition("a", 0)


class Group:
    """An Admin for a group that has read up to 8; the commit of 5 to 8 is on its way."""

    def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, require_stable: bool
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        assert group_id == "g"
        return dict.fromkeys(partitions, OffsetAndMetadata(8 if require_stable else 5))

    def list_offsets(
        self, queries: dict[TopicPartition, int], **_: object
    ) -> dict[TopicPartition, Any]:
        return {each: OffsetAndMetadata(0 if at == -2 else 10) for each, at in queries.items()}


@pytest.mark.parametrize(("level", "start"), [("read_committed", 8), ("read_uncommitted", 5)])
def test_a_query_waits_for_offsets_that_are_being_committed(level: str, start: int) -> None:
    options = read_options(
        {
            "bootstrap.servers": "h:1",
            "subscribe": "a",
            "startingOffsets": "committed",
            "group.id": "g",
            "isolation.level": level,
        },
        streaming=True,
    )
    lookup = OffsetLookup(options)
    lookup._admin = cast("Admin", Group())
    assert lookup.starting({"a": Topic("1d", (0,))}) == {A0: start}


class Replaced(OffsetLookup):
    """The first answers are those of a leader that has been replaced."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._answers = iter([5, 5])

    def positions(
        self, partitions: Iterable[TopicPartition], spec: int | Mapping[TopicPartition, int]
    ) -> Positions:
        if not (asked := list(partitions)):
            return {}
        return dict.fromkeys(asked, 0 if spec == OffsetSpec.EARLIEST else next(self._answers, 10))

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> Positions:
        return self.positions(partitions, OffsetSpec.LATEST)


@pytest.mark.parametrize("fails", ["true", "false"])
def test_an_old_end_of_a_log_is_looked_up_again(*, fails: str) -> None:
    options = read_options(
        {
            "bootstrap.servers": "h:1",
            "subscribe": "a",
            "startingOffsets": '{"a": {"0": 8}}',
            "endingOffsets": '{"a": {"0": 9}}',
            "failOnDataLoss": fails,
        },
        streaming=False,
    )
    assert Replaced(options).starting({"a": Topic("1d", (0,))}) == {A0: 8}
    assert Replaced(options).ending({"a": Topic("1d", (0,))}) == {A0: 9}


class OpenTransaction(OffsetLookup):
    """A log of ten records; those from 5 on are in a transaction that is open for a while."""

    def __init__(self, options: ReadOptions, *, polls: int) -> None:
        super().__init__(options)
        self._stable = iter([5] * polls)

    def positions(
        self, partitions: Iterable[TopicPartition], spec: int | Mapping[TopicPartition, int]
    ) -> Positions:
        if not (asked := list(partitions)):
            return {}
        return dict.fromkeys(asked, 0 if spec == OffsetSpec.EARLIEST else next(self._stable, 10))

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> Positions:
        return dict.fromkeys(partitions, 10)


def ends_at(offset: int, **more: str) -> ReadOptions:
    ends = {"endingOffsets": f'{{"a": {{"0": {offset}}}}}'}
    return read_options(
        {"bootstrap.servers": "h:1", "subscribe": "a", **ends, **more}, streaming=False
    )


def test_an_end_within_an_open_transaction_waits_for_its_end() -> None:
    lookup = OpenTransaction(ends_at(8, **{"client.unknown_topic_grace_ms": "1"}), polls=5)
    assert lookup.ending({"a": Topic("1d", (0,))}) == {A0: 8}


def test_an_end_within_an_open_transaction_is_no_loss() -> None:
    """It is not left out either where losses are allowed."""
    quick = {"client.default_api_timeout_ms": "1", "failOnDataLoss": "false"}
    lookup = OpenTransaction(ends_at(8, **quick), polls=100)
    with pytest.raises(SourceError, match=r"ends at offset 8 of a-0, .* from 5 on .* open") as told:
        lookup.ending({"a": Topic("1d", (0,))})
    assert "tidemark txn holders -t a" in str(told.value)


def test_an_end_within_an_open_transaction_is_read_uncommitted_at_once() -> None:
    lookup = OpenTransaction(ends_at(8, **{"isolation.level": "read_uncommitted"}), polls=100)
    assert lookup.ending({"a": Topic("1d", (0,))}) == {A0: 8}
