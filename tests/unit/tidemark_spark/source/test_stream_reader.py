import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType
from tidemark.client.consumer.positions import OffsetSpec
from tidemark.model.topics import TopicPartition
from tidemark_spark.errors import DataLossError
from tidemark_spark.source.offset_lookup import OffsetLookup, Positions
from tidemark_spark.source.offset_ranges import Topic
from tidemark_spark.source.read_options import ReadOptions, read_options
from tidemark_spark.source.stream_reader import StreamReader
from tidemark_spark.source.task_reader import OffsetsPartition

OPTIONS = read_options(
    {"bootstrap.servers": "h:1", "subscribe": "a", "client.unknown_topic_grace_ms": "0"},
    streaming=True,
)


class GrowingLog(OffsetLookup):
    """One partition, whose end the test moves. Behind ``stable`` a transaction is open."""

    def __init__(self, options: ReadOptions = OPTIONS) -> None:
        super().__init__(options)
        self.end = 100
        self.stable: int | None = None

    def topics(self, *, known: Iterable[str] = ()) -> dict[str, Topic]:
        return {"a": Topic("1d", (0,))}

    def positions(
        self, partitions: Iterable[TopicPartition], spec: int | Mapping[TopicPartition, int]
    ) -> Positions:
        latest = self.end if self.stable is None else self.stable
        return dict.fromkeys(partitions, 0 if spec == OffsetSpec.EARLIEST else latest)

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> Positions:
        return dict.fromkeys(partitions, self.end)


def test_an_available_now_run_may_start_behind_the_ends_that_it_noted() -> None:
    reader, log = StreamReader(OPTIONS, StructType([])), GrowingLog()
    reader._lookup = log
    reader.prepareForTriggerAvailableNow()
    log.end = 105  # between the two calls of Spark; startingOffsets is latest
    start = reader.initialOffset()
    log.end = 110
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert reader.partitions(start, start) == []


def starting_at(offset: int) -> tuple[StreamReader, GrowingLog]:
    """A query from one offset on, before the end of an open transaction at offset 40."""
    options = read_options(
        {
            "bootstrap.servers": "h:1",
            "subscribe": "a",
            "client.unknown_topic_grace_ms": "0",
            "startingOffsets": f'{{"a": {{"0": {offset}}}}}',
        },
        streaming=True,
    )
    reader, log = StreamReader(options, StructType([])), GrowingLog(options)
    reader._lookup, log.stable = log, 40
    return reader, log


def test_a_start_among_records_that_are_not_stable_yet_is_no_loss() -> None:
    reader, log = starting_at(60)
    start = reader.initialOffset()
    assert start["a"]["offsets"] == {"0": 60}
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    log.stable = 80
    assert reader.latestOffset(start, ReadAllAvailable())["a"]["offsets"] == {"0": 80}


def test_a_start_behind_the_end_of_the_log_is_a_loss() -> None:
    reader, log = starting_at(101)
    with pytest.raises(DataLossError, match="contains offsets 0 to 100"):
        reader.initialOffset()
    log.end = 101
    start = reader.initialOffset()
    log.end = 70
    with pytest.raises(DataLossError, match="ends at offset 70, but was already read up to 101"):
        reader.latestOffset(start, ReadAllAvailable())


def test_a_run_up_to_now_may_start_among_records_that_are_not_stable_yet() -> None:
    reader, _ = starting_at(60)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start


def replayed(end: dict[str, Any], log: GrowingLog) -> list[tuple[int, int]]:
    """The offsets that a restarted query reads for its first batch, as Spark asks for them."""
    reader = StreamReader(OPTIONS, StructType([]))
    reader._lookup = log
    found = [each.offsets for each in ranges_of(reader.partitions(reader.initialOffset(), end))]
    return [(each.start, each.end) for each in found if each is not None]


def ranges_of(planned: Iterable[InputPartition]) -> list[OffsetsPartition]:
    return [each for each in planned if isinstance(each, OffsetsPartition)]


def test_a_replayed_first_batch_starts_where_it_did() -> None:
    reader, log = StreamReader(OPTIONS, StructType([])), GrowingLog()
    reader._lookup = log
    start = reader.initialOffset()
    log.end = 110
    end = reader.latestOffset(start, ReadAllAvailable())
    log.end = 150  # where a query that starts now would start
    assert replayed(json.loads(json.dumps(end)), log) == [(100, 110)]
    following = reader.latestOffset(end, ReadAllAvailable())
    assert following == {"a": {"id": "1d", "offsets": {"0": 150}}}


def test_a_first_batch_with_nothing_to_read_is_the_only_one() -> None:
    reader, log = StreamReader(OPTIONS, StructType([])), GrowingLog()
    reader._lookup = log
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    log.end = 110
    end = reader.latestOffset(start, ReadAllAvailable())
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert reader.partitions(end, end) == []
