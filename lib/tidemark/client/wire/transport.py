"""What producer and consumer need of a cluster, whichever wire carries it. Plain values in and
out.
"""

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
    """What became of one batch."""

    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    message: str | None = None


class FetchItem(NamedTuple):
    """What to read of one partition."""

    partition: TopicPartition
    topic_id: bytes
    leader_epoch: int
    fetch_offset: int


class FetchLimits(NamedTuple):
    """For one fetch."""

    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    partition_bytes_max: int
    read_committed: bool


class FetchOutcome(NamedTuple):
    """What was read: whole batches, of which the first may begin below the offset asked."""

    partition: TopicPartition
    fetch_offset: int
    error_code: int
    high_watermark: int = -1
    last_stable: int = -1
    log_start: int = -1
    records: memoryview = memoryview(b"")
    aborted: tuple[tuple[int, int], ...] = ()
    """(producer id, first offset) of aborted transactions, for read_committed."""
    message: str | None = None


class OffsetItem(NamedTuple):
    """Look up an offset: by timestamp in ms, or by one of the negative constants above."""

    partition: TopicPartition
    topic_id: bytes
    leader_epoch: int
    timestamp_ms: int


class OffsetOutcome(NamedTuple):
    """-1, -1 when no record is so young."""

    partition: TopicPartition
    error_code: int
    offset: int = -1
    timestamp_ms: int = -1
    leader_epoch: int = -1


class Transport(Protocol):
    """One cluster over one wire. Raises ConnectionLostError and RequestTimedOutError; error answers
    are values.
    """

    async def describe(self, topics: Sequence[str] | None, *, auto_create: bool) -> ClusterView:
        """Brokers and topics (None: all topics), from any broker that answers; remembers the
        brokers' addresses.
        """
        ...

    async def init_producer_id(self) -> ProducerIdentity:
        """A producer id that nobody else has (K01). Raises ClientError."""
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
        """Append at one broker; outcomes in the order of ``items``. Batches of a transaction name
        its id, so that the leader adds the partition to it (KIP-890).
        """
        ...

    def fetch_group(self, broker_id: int, partition: TopicPartition) -> Hashable:
        """Partitions with equal groups are read by one fetch; of each group one fetch is under way
        at a time.
        """
        ...

    async def fetch(
        self, broker_id: int, items: Sequence[FetchItem], limits: FetchLimits
    ) -> list[FetchOutcome]:
        """Read from one broker, after a long poll of at most ``wait_ms_max`` (D04)."""
        ...

    async def list_offsets(
        self, broker_id: int, items: Sequence[OffsetItem], *, read_committed: bool
    ) -> list[OffsetOutcome]:
        """Look offsets up at one broker."""
        ...

    def where(self, broker_id: int) -> str:
        """The broker as errors name it."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...
