"""Transport: the protocol between clients and a cluster, with plain values in and out."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol

from tidemark.client.wire.metadata_cache import ClusterView
from tidemark.model.topics import TopicPartition

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4


class ProducerIdentity(NamedTuple):
    """Producer id and epoch, as InitProducerId returns them."""

    producer_id: int
    producer_epoch: int


class ProduceItem(NamedTuple):
    """One batch for one partition."""

    partition: TopicPartition
    topic_id: bytes
    leader_epoch: int
    batch: bytes


class ProduceOutcome(NamedTuple):
    """Result of one batch."""

    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    message: str | None = None


class FetchItem(NamedTuple):
    """Position to fetch from in one partition."""

    partition: TopicPartition
    topic_id: bytes
    leader_epoch: int
    fetch_offset: int


class FetchLimits(NamedTuple):
    """Limits of one fetch."""

    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    partition_bytes_max: int
    read_committed: bool
    rack: str = ""
    """Rack of the consumer, for leaders that name a follower in it (KIP-392)."""


class FetchOutcome(NamedTuple):
    """Result of one partition. The first of its whole batches may start below ``fetch_offset``."""

    partition: TopicPartition
    fetch_offset: int
    error_code: int
    high_watermark: int = -1
    last_stable: int = -1
    log_start: int = -1
    records: memoryview = memoryview(b"")
    aborted: tuple[tuple[int, int], ...] = ()
    """(producer id, first offset) of aborted transactions, under read_committed."""
    message: str | None = None
    preferred_replica: int = -1
    """Follower to read from instead, named by the leader; -1: none."""


class OffsetItem(NamedTuple):
    """Query for an offset: a timestamp in ms, or one of the negative constants above."""

    partition: TopicPartition
    topic_id: bytes
    leader_epoch: int
    timestamp_ms: int


class OffsetOutcome(NamedTuple):
    """Result of a query; offset and timestamp are -1 if no record is late enough."""

    partition: TopicPartition
    error_code: int
    offset: int = -1
    timestamp_ms: int = -1
    leader_epoch: int = -1


class EpochItem(NamedTuple):
    """Query for the end of the records of ``epoch`` in the log of the leader."""

    partition: TopicPartition
    leader_epoch: int
    """Epoch of the leader that is asked."""
    epoch: int


class EpochOutcome(NamedTuple):
    """Result of a query: the largest epoch in the log that is not above the one asked for, and the
    offset behind its records; both are -1 if the log has no epoch as high.
    """

    partition: TopicPartition
    error_code: int
    epoch: int = -1
    end_offset: int = -1


class Transport(Protocol):
    """Access to one cluster.

    Methods raise ConnectionLostError and RequestTimedOutError; errors in responses are values.
    """

    async def describe(self, topics: Sequence[str] | None, *, auto_create: bool) -> ClusterView:
        """Return brokers and topics (None: all topics) as reported by the first broker that
        answers.

        Stores the addresses of the brokers.
        """
        ...

    async def init_producer_id(self) -> ProducerIdentity:
        """Return a new producer id. Raises ClientError."""
        ...

    async def produce(
        self,
        broker_id: int,
        items: Sequence[ProduceItem],
        *,
        acks: int,
        timeout_ms: int,
        transactional_id: str | None = None,
    ) -> list[ProduceOutcome]:
        """Append at one broker; return the outcomes in the order of ``items``.

        With ``transactional_id`` the leader adds the partitions to that transaction (KIP-890).
        """
        ...

    def fetch_group(self, broker_id: int, partition: TopicPartition) -> Hashable:
        """Return the key of the partitions that share a fetch; one of each key is in flight."""
        ...

    async def fetch(
        self, broker_id: int, items: Sequence[FetchItem], limits: FetchLimits
    ) -> list[FetchOutcome]:
        """Fetch from one broker, with a long poll of at most ``wait_ms_max``."""
        ...

    async def list_offsets(
        self, broker_id: int, items: Sequence[OffsetItem], *, read_committed: bool
    ) -> list[OffsetOutcome]:
        """Look up offsets at one broker."""
        ...

    async def epoch_ends(self, broker_id: int, items: Sequence[EpochItem]) -> list[EpochOutcome]:
        """Look up the ends of epochs at one broker. Raises UnsupportedVersionError if it cannot be
        asked.
        """
        ...

    def where(self, broker_id: int) -> str:
        """Return the name of the broker in errors."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
