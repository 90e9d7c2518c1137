"""The loads of the comparison, and how much each of them writes."""

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from bench.peers.figures import Cost

KAFKA: Final = "kafka"
TIDEMARK: Final = "tidemark"
COMPILED: Final = "compiled"
"""Tidemark with its hot modules compiled, as images have it."""
NATS: Final = "nats"
SYSTEMS: Final = (TIDEMARK, COMPILED, KAFKA, NATS)
_KAFKA_PROTOCOL: Final = (TIDEMARK, COMPILED, KAFKA)


class Load(Enum):
    """Program that makes a load."""

    PRODUCE = auto()
    CONSUME = auto()
    SMALL = auto()
    """One record a request, from librdkafka: it measures latency in microseconds."""
    TRANSACTIONS = auto()
    """ProducerPerformance, which commits at an interval."""
    SMALL_TRANSACTIONS = auto()
    """One record to each partition, and a commit, one after the other."""
    IDLE = auto()


@dataclass(frozen=True, slots=True)
class Row:
    """A load. ``mb_s`` and ``requests_s`` of 0: as fast as it goes."""

    name: str
    title: str
    load: Load
    cost: Cost
    partitions: int = 1
    replicas: int = 3
    acks: str = "all"
    record_bytes: int = 1_024
    batch_bytes: int = 65_536
    linger_ms: int = 5
    mb_s: float = 0.0
    requests_s: int = 0
    commit_ms: int = 0
    systems: tuple[str, ...] = SYSTEMS


@dataclass(frozen=True, slots=True)
class Size:
    """How long loads are: those that go as fast as they can by bytes, all others by seconds."""

    megabytes: int
    seconds: float
    small_records: int = 10_000

    def tenth(self) -> "Size":
        """Size of a run that goes before and is not counted."""
        return replace(
            self,
            megabytes=max(1, self.megabytes // 10),
            seconds=self.seconds / 10,
            small_records=self.small_records // 10,
        )


ROWS: Final = (
    Row(
        "bulk",
        "1 KB records, 64 KB batches, 12 partitions, acks=all",
        Load.PRODUCE,
        Cost.PER_GB,
        partitions=12,
    ),
    Row(
        "large",
        "1 KB records, 256 KB batches, 12 partitions, acks=1, one replica",
        Load.PRODUCE,
        Cost.PER_GB,
        partitions=12,
        replicas=1,
        acks="1",
        batch_bytes=262_144,
    ),
    Row("consume", "consume 12 partitions", Load.CONSUME, Cost.PER_GB, partitions=12),
    Row(
        "wide",
        "20 MB/s over 100 partitions, linger 20 ms, acks=all",
        Load.PRODUCE,
        Cost.PER_GB,
        partitions=100,
        linger_ms=20,
        mb_s=20.0,
    ),
    Row(
        "small1",
        "100 B, 1,000 requests/s, acks=1",
        Load.SMALL,
        Cost.PER_RECORD,
        acks="1",
        record_bytes=100,
        requests_s=1_000,
        systems=_KAFKA_PROTOCOL,
    ),
    Row(
        "small",
        "100 B, 1,000 requests/s, acks=all",
        Load.SMALL,
        Cost.PER_RECORD,
        record_bytes=100,
        requests_s=1_000,
    ),
    Row(
        "flatout",
        "100 B, one a request, five in flight, acks=all",
        Load.SMALL,
        Cost.PER_RECORD,
        record_bytes=100,
    ),
    Row(
        "transactions",
        "a commit every 100 ms, 12 partitions, 20 MB/s asked",
        Load.TRANSACTIONS,
        Cost.PER_GB,
        partitions=12,
        mb_s=20.0,
        commit_ms=100,
        systems=_KAFKA_PROTOCOL,
    ),
    Row(
        "smalltxns",
        "transactions of one record of 100 B, one after the other",
        Load.SMALL_TRANSACTIONS,
        Cost.PER_COMMIT,
        record_bytes=100,
        systems=_KAFKA_PROTOCOL,
    ),
    Row(
        "smalltxns10",
        "the same, a record to each of 10 partitions",
        Load.SMALL_TRANSACTIONS,
        Cost.PER_COMMIT,
        partitions=10,
        record_bytes=100,
        systems=_KAFKA_PROTOCOL,
    ),
    Row("idle", "idle: CPU; memory of all processes", Load.IDLE, Cost.OF_A_CORE),
)
"""In the order of the report; idle is last, when each system has done the same work."""

WARM_UP: Final = replace(ROWS[0], name="warm-up")
_COPIES_BOUND: Final = 2
"""A topic that was deleted may still be on disk when the next one is written."""
_FREE_BYTES: Final = 2 << 30
"""For what is no record: indexes, logs of the servers, state of their quorums."""


def records_of(row: Row, size: Size) -> int:
    """Number of records that a load writes or reads."""
    if row.load is Load.SMALL and not row.requests_s:
        return size.small_records
    if row.requests_s:
        return int(row.requests_s * size.seconds)
    whole = (size.megabytes << 20) // row.record_bytes
    if row.mb_s:
        return min(whole, int(records_a_second(row) * size.seconds))
    return whole


def records_a_second(row: Row) -> int:
    """Rate that a load keeps; -1: as fast as it goes, as Kafka's tools take it."""
    if row.requests_s:
        return row.requests_s
    return int(row.mb_s * 1e6 / row.record_bytes) if row.mb_s else -1


def disk_bytes(size: Size) -> int:
    """Space that a comparison needs: one topic at a time has records, on three brokers."""
    return (size.megabytes << 20) * 3 * _COPIES_BOUND + _FREE_BYTES


def warm_up_rounds(megabytes: int, size: Size) -> list[int]:
    """Megabytes of each round of a warm-up: a topic that is filled, read and deleted."""
    whole, rest = divmod(megabytes, size.megabytes)
    return [size.megabytes] * whole + ([rest] if rest else [])
