"""Records in memory on their way into batches, bounded by buffer_memory.

Pure: times are arguments, and callers that need memory wait elsewhere. A batch is due when it is
full (``batch_bytes``), when its first record is ``linger_ms`` old, when memory is short, or during
a flush.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from tidemark.client.errors import BufferFullError, ClientError, MessageTooLargeError
from tidemark.client.producer.batches import Delivery, EncodedRecords, Header, PendingBatch
from tidemark.client.producer.partition_queue import PartitionQueue, Refusal
from tidemark.client.wire.transport import ProducerIdentity
from tidemark.codec.record_batch import HEADER_BYTES
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition

# Length, attributes, two deltas, two lengths and a header count, as they are in ordinary records:
# two bytes each except attributes and count. Batches are bounded by this estimate; a broker's
# bound is far above batch_size.
RECORD_OVERHEAD_BYTES: Final = 12
_HEADER_OVERHEAD_BYTES: Final = 6
_UNOBSERVED_MAX: Final = 64


class Limits(NamedTuple):
    """Limits of the accumulator; see ProducerConfig."""

    batch_bytes: int
    linger_ms: float
    buffer_bytes_max: int
    record_bytes_max: int
    delivery_timeout_ms: float
    idempotent: bool = True
    transactional: bool = False


class Statistics(NamedTuple):
    """Snapshot of a producer's memory and counters."""

    buffered_bytes: int
    records_unresolved: int
    records_acknowledged: int
    records_failed: int


class Accumulator:
    """Queues of all partitions of one producer.

    Invariant: ``buffered_bytes`` is the sum over unresolved batches, at most buffer_bytes_max.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.buffered_bytes = 0
        self.wakes_sender = False
        """True if a batch is due earlier than the last ``next_due``. The sender clears it."""
        self.timer_set = False
        self.on_failed: Callable[[ClientError], None] | None = None
        """Called with the failure of a batch; a transaction can then no longer commit."""
        self._identity: ProducerIdentity | None = None
        self._batch_bytes = limits.batch_bytes
        self._buffer_bytes_max = limits.buffer_bytes_max
        self._record_bytes_max = limits.record_bytes_max
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._active: dict[TopicPartition, PartitionQueue] = {}
        self._flushing = 0
        self._short_of_memory = False
        self._unobserved: list[PendingBatch] = []
        self._records_unresolved = 0
        self._records_acknowledged = 0
        self._records_failed = 0

    def queue(self, partition: TopicPartition) -> PartitionQueue:
        """Return the partition's queue, created on first use."""
        queue = self._queues.get(partition)
        if queue is None:
            queue = PartitionQueue(
                partition,
                idempotent=self.limits.idempotent,
                transactional=self.limits.transactional,
            )
            if self._identity is not None:
                queue.renew(self._identity)
            self._queues[partition] = queue
        return queue

    def append(
        self,
        queue: PartitionQueue,
        record: tuple[int, bytes | None, bytes | None, Sequence[Header]],
        size_bytes: int,
        now: float,
    ) -> Delivery:
        """Add a record (timestamp, key, value, headers) to a new batch; ``size_bytes`` as
        ``record_bytes`` counts.

        Try ``append_open`` first: otherwise each record has a batch of its own. Raises
        BufferFullError if memory is full, MessageTooLargeError if the record can never be sent.
        """
        if (
            self.buffered_bytes + size_bytes > self._buffer_bytes_max
            or size_bytes > self._record_bytes_max
        ):
            self._refuse(size_bytes)
        self._open(queue, now)
        delivery = self.append_open(queue, record, size_bytes)
        assert delivery is not None, "a fresh batch takes any record"
        return delivery

    def append_open(
        self,
        queue: PartitionQueue,
        record: tuple[int, bytes | None, bytes | None, Sequence[Header]],
        size_bytes: int,
    ) -> Delivery | None:
        """Hot path of ``append``.

        Returns None, and adds nothing, without room in the open batch or memory.
        """
        batch = queue.open
        if batch is None:
            return None
        batch_bytes = batch.size_bytes + size_bytes
        buffered_bytes = self.buffered_bytes + size_bytes
        records = batch.records
        if buffered_bytes > self._buffer_bytes_max or (batch_bytes > self._batch_bytes and records):
            return None
        records.append(record)
        batch.size_bytes = batch_bytes
        self.buffered_bytes = buffered_bytes
        self._records_unresolved += 1
        return Delivery(batch, len(records) - 1)

    def append_encoded(
        self, queue: PartitionQueue, encoded: EncodedRecords, now: float
    ) -> Delivery:
        """Add encoded records as a batch of their own, behind all records added before.

        Raises as ``append``.
        """
        size_bytes = len(encoded.records)
        if (
            self.buffered_bytes + size_bytes > self._buffer_bytes_max
            or size_bytes > self._record_bytes_max
        ):
            self._refuse(size_bytes, "a batch")
        self._open(queue, now)
        batch = queue.open
        assert batch is not None, "just opened"
        batch.encoded_records = encoded
        batch.size_bytes = size_bytes
        self.buffered_bytes += size_bytes
        self._records_unresolved += encoded.count
        queue.seal()
        self.wakes_sender = True
        return Delivery(batch, 0)

    def has_room(self, size_bytes: int) -> bool:
        """True if ``append`` would have room for this many bytes now."""
        return self.buffered_bytes + size_bytes <= self._buffer_bytes_max

    def short_of_memory(self) -> None:
        """Send buffered records without lingering, because a caller waits for memory."""
        self._short_of_memory = True
        self.wakes_sender = True

    def begin_flush(self) -> list[PendingBatch]:
        """Stop lingering until ``end_flush``; return the batches that a flush waits for."""
        self._flushing += 1
        self.wakes_sender = True
        return [batch for batch in self._batches() if not batch.resolved]

    def end_flush(self) -> None:
        """Linger again."""
        self._flushing -= 1

    def take_unobserved_failures(self) -> list[PendingBatch]:
        """Return failed batches whose deliveries were not looked at, each once."""
        failed = [batch for batch in self._unobserved if not batch.observed]
        self._unobserved = []
        return failed

    def ready(self, now: float) -> list[PartitionQueue]:
        """Return queues with a batch to send now; seals due batches and drops idle queues."""
        ready: list[PartitionQueue] = []
        for queue in list(self._active.values()):
            if queue.open is not None and self._is_due(queue.open, now):
                queue.seal()
            if queue.can_send(now):
                ready.append(queue)
            elif queue.is_idle:
                del self._active[queue.partition]
        self._short_of_memory = False
        return ready

    def wanting_identity(self) -> list[PartitionQueue]:
        """Return active queues that cannot send without a producer id."""
        return [queue for queue in self._active.values() if queue.wants_identity]

    def adopt(self, identity: ProducerIdentity) -> None:
        """Give a producer id to each queue that needs one and was not fenced under it."""
        for queue in self.wanting_identity():
            if queue.may_adopt(identity):
                queue.adopt(identity)

    def next_due(self, now: float) -> float | None:
        """Return the earliest time that changes ``ready`` or ``expire`` by itself, or None."""
        earliest: float | None = None
        for queue in self._active.values():
            for instant in self._instants(queue, now):
                if earliest is None or instant < earliest:
                    earliest = instant
        return earliest

    def expire(self, now: float, why: str = "") -> list[PendingBatch]:
        """Fail batches older than delivery_timeout_ms.

        ``why`` is the reason why they were not sent.
        """
        expired: list[PendingBatch] = []
        for queue in list(self._active.values()):
            expired += queue.expire(now - self.limits.delivery_timeout_ms, why)
        for batch in expired:
            self._settle(batch)
        return expired

    def on_acknowledged(
        self, batch: PendingBatch, base_offset: int, log_append_time_ms: int
    ) -> None:
        """Resolve a batch that the broker has acknowledged."""
        known = batch.resolved
        self._queues[batch.partition].on_acknowledged(batch, base_offset, log_append_time_ms)
        if not known:
            self._settle(batch)

    def on_refused(self, batch: PendingBatch, refusal: Refusal, resume_at: float) -> None:
        """Handle an error for a batch, or the loss of its connection."""
        known = batch.resolved
        self._queues[batch.partition].on_refused(batch, refusal, resume_at)
        if batch.resolved and not known:
            self._settle(batch)

    def has_retries(self, partition: TopicPartition) -> bool:
        """True if a batch of the partition waits to be sent again."""
        return bool(self._queues[partition].retries)

    def resume(self, partition: TopicPartition) -> None:
        """End the delay before the next attempt: the partition has another leader."""
        self._queues[partition].resume_at = 0.0

    def abandon_without_identity(self, error: ClientError) -> None:
        """Fail the batches that wait for a producer id."""
        for queue in self.wanting_identity():
            for batch in queue.abandon(error):
                self._settle(batch)

    @property
    def has_in_flight(self) -> bool:
        """True if a batch was sent and not answered."""
        return any(queue.in_flight for queue in self._active.values())

    def cut(self, error: ClientError) -> None:
        """Fail all unsent batches and stop retries: the transaction will be aborted."""
        for queue in list(self._queues.values()):
            for batch in queue.cut(error):
                self._settle(batch)

    def renew(self, identity: ProducerIdentity) -> None:
        """Set the identity of the next transaction. Call it with nothing in flight."""
        self._identity = identity
        for queue in self._queues.values():
            queue.renew(identity)

    def abandon(self, error: ClientError) -> None:
        """Fail all remaining batches, at close."""
        for queue in self._queues.values():
            for batch in queue.abandon(error):
                self._settle(batch)
        self._active.clear()

    def statistics(self) -> Statistics:
        """Return counters since the start, and the buffered amounts."""
        return Statistics(
            self.buffered_bytes,
            self._records_unresolved,
            self._records_acknowledged,
            self._records_failed,
        )

    def check(self) -> None:
        """Assert the invariants."""
        unresolved = [batch for batch in self._batches() if not batch.resolved]
        assert self.buffered_bytes == sum(batch.size_bytes for batch in unresolved)
        assert self.buffered_bytes <= self._buffer_bytes_max
        assert self._records_unresolved == sum(batch.count for batch in unresolved)
        for queue in self._queues.values():
            queue.check()
            assert queue.is_idle or queue.partition in self._active

    def _refuse(self, size_bytes: int, what: str = "a record") -> None:
        if size_bytes > min(self._record_bytes_max, self._buffer_bytes_max):
            raise MessageTooLargeError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{what} of {size_bytes} bytes exceeds max_request_size"
                f" ({self._record_bytes_max}) or buffer_memory ({self._buffer_bytes_max})",
            )
        raise BufferFullError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"buffer_memory is used up ({self.buffered_bytes} of {self._buffer_bytes_max} bytes)",
        )

    def _open(self, queue: PartitionQueue, now: float) -> None:
        if queue.open is not None or not self.timer_set:
            self.wakes_sender = True
        self._active[queue.partition] = queue
        queue.open_batch(now)

    def _is_due(self, batch: PendingBatch, now: float) -> bool:
        if self._flushing or self._short_of_memory or batch.size_bytes >= self._batch_bytes:
            return True
        return now >= batch.created_at + self.limits.linger_ms

    def _instants(self, queue: PartitionQueue, now: float) -> Iterator[float]:
        if queue.open is not None:
            yield queue.open.created_at + self.limits.linger_ms
        if queue.resume_at > now and (queue.retries or queue.sealed):
            yield queue.resume_at
        for batch in queue.oldest_unresolved():
            yield batch.created_at + self.limits.delivery_timeout_ms

    def _batches(self) -> Iterable[PendingBatch]:
        for queue in self._active.values():
            yield from queue.batches()

    def _settle(self, batch: PendingBatch) -> None:
        """Release the memory of a resolved batch."""
        self.buffered_bytes -= batch.size_bytes
        count = batch.count
        self._records_unresolved -= count
        if batch.error is None:
            self._records_acknowledged += count
            return
        self._records_failed += count
        if self.on_failed is not None:
            self.on_failed(batch.error)
        if not batch.observed and len(self._unobserved) < _UNOBSERVED_MAX:
            self._unobserved.append(batch)


def record_bytes(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    """Return the size of one record, as counted in batches and in memory."""
    size = RECORD_OVERHEAD_BYTES
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, content in headers:
        size += _HEADER_OVERHEAD_BYTES + len(name.encode()) + len(content or b"")
    return size


def batch_room(batch_size: int) -> int:
    """Return the room for records in a batch of ``batch_size`` bytes."""
    return max(1, batch_size - HEADER_BYTES)
