from collections.abc import Iterable, Mapping

from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType
from tidemark.model.topics import TopicPartition
from tidemark_spark.source.offset_lookup import OffsetLookup, Positions
from tidemark_spark.source.offset_ranges import Topic
from tidemark_spark.source.read_options import read_options
from tidemark_spark.source.stream_reader import StreamReader

OPTIONS = read_options(
    {"bootstrap.servers": "h:1", "subscribe": "a", "client.unknown_topic_grace_ms": "0"},
    streaming=True,
)


class GrowingLog(OffsetLookup):
    """One partition, whose end the test moves."""

    def __init__(self) -> None:
        super().__init__(OPTIONS)
        self.end = 100

    def topics(self, *, known: Iterable[str] = ()) -> dict[str, Topic]:
        return {"a": Topic("1d", (0,))}

    def positions(
        self, partitions: Iterable[TopicPartition], spec: int | Mapping[TopicPartition, int]
    ) -> Positions:
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
