from collections.abc import Iterable, Mapping

import pytest
from pyspark.sql.types import StructType
from tidemark.client.consumer.positions import OffsetSpec
from tidemark.model.topics import TopicPartition
from tidemark_spark.errors import DataLossError
from tidemark_spark.source.batch_reader import BatchReader
from tidemark_spark.source.offset_lookup import OffsetLookup, Positions
from tidemark_spark.source.offset_ranges import Range, Topic
from tidemark_spark.source.read_options import ReadOptions, read_options

A0 = TopicPartition("a", 0)


class TenRecords(OffsetLookup):
    """Topic a, with one partition of ten records."""

    def topics(self, *, known: Iterable[str] = ()) -> dict[str, Topic]:
        return {"a": Topic("2e", (0,))}

    def positions(
        self, partitions: Iterable[TopicPartition], spec: int | Mapping[TopicPartition, int]
    ) -> Positions:
        return dict.fromkeys(partitions, 0 if spec == OffsetSpec.EARLIEST else 10)

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> Positions:
        return dict.fromkeys(partitions, 10)


def options(**more: str) -> ReadOptions:
    ranges = {"startingOffsets": '{"a": {"0": 3}}', "endingOffsets": '{"a": {"0": 8}}'}
    return read_options(
        {"bootstrap.servers": "h:1", "subscribe": "a", **ranges, **more}, streaming=False
    )


def planned(read: ReadOptions) -> list[Range]:
    return BatchReader(read, StructType([]))._ranges(TenRecords(read))


def test_a_range_of_the_topic_with_the_right_id() -> None:
    assert planned(options()) == [Range(A0, "2e", 3, 8)]
    assert planned(options(topicIds='{"a": "2e"}')) == [Range(A0, "2e", 3, 8)]


@pytest.mark.parametrize("fails", ["true", "false"])
def test_offsets_of_a_former_topic_mean_nothing(*, fails: str) -> None:
    with pytest.raises(DataLossError, match="created again: its id is 2e, it was 1d"):
        planned(options(topicIds='{"a": "1d"}', failOnDataLoss=fails))
