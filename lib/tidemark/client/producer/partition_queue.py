"""Batches of one partition in a producer, and their sequence numbers.

A pure state machine. Its rules preserve order and exactly-once delivery (KIP-98):

* A batch gets (producer id, epoch, sequence) at its first attempt and keeps them over retries.
* During retries no new batch is sent. First all batches in flight return; then the retries are sent
  one at a time, oldest first, until each is acknowledged. More could push them out of the five
  batches that the broker remembers. A batch that was overtaken gets OUT_OF_ORDER and is retried
  too, without harm.
* When a batch with a sequence number is given up, the broker would refuse all later numbers. The
  queue then takes a new epoch and numbers from 0. It does so only when each older batch has a
  certain outcome: a batch that may be written must not be sent under another number.
* A broker without state of a producer accepts any sequence number. Until one batch under a producer
  id is acknowledged, only one is in flight; and no batch goes to a new leader while an older one is
  at the previous leader.
* A batch of several records that is too large for its topic is split in two, which take its place
  and its sequence numbers.
* In a transaction, the coordinator raises the epoch at each end (KIP-890). After a batch is given
  up nothing is sent until the transaction was aborted and ``renew`` sets the next epoch.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from tidemark.client.errors import ClientError, DeliveryTimeoutError, error_for
from tidemark.client.producer.batches import NO_SEQUENCE, PendingBatch, Place
from tidemark.client.producer.splitting import halves_of
from tidemark.client.wire.transport import ProducerIdentity
from tidemark.codec.records import sequence_after
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition

IN_FLIGHT_MAX: Final = 5
"""Batches of one partition in flight: brokers remember the last five of a producer (KAFKA-5494)."""
PRODUCER_EPOCH_MAX: Final = 2**15 - 1

_OVERTAKEN: Final = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}
)
_IDENTITY_LOST: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


class Refusal(NamedTuple):
    """Error for one batch: Kafka's number and the broker's message."""

    error_code: int
    message: str | None = None
    where: str = ""


class PartitionQueue:
    """Queue of one partition.

    Invariant: batches are sent in the order of ``rank``; ``in_flight`` and ``retries`` are sorted
    by it.
    """

    __slots__ = (
        "_idempotent",
        "_identity",
        "_lost_producer_id",
        "_next_number",
        "_next_sequence",
        "_proven",
        "_renumber",
        "_transactional",
        "failure",
        "in_flight",
        "open",
        "partition",
        "resume_at",
        "retries",
        "sealed",
        "sent_to",
    )

    def __init__(
        self, partition: TopicPartition, *, idempotent: bool, transactional: bool = False
    ) -> None:
        assert idempotent or not transactional, "a transaction has a producer id"
        self.partition = partition
        self.failure: ClientError | None = None
        """Failure of the current transaction, which stops the queue."""
        self.open: PendingBatch | None = None
        self.sealed: deque[PendingBatch] = deque()
        self.in_flight: list[PendingBatch] = []
        self.retries: list[PendingBatch] = []
        self.resume_at = 0.0
        self._idempotent = idempotent
        self._transactional = transactional
        self._identity: ProducerIdentity | None = None
        self._lost_producer_id = -1
        self._next_sequence = 0
        self._next_number = 0
        self._renumber = False
        self._proven = not idempotent
        self.sent_to = -1

    @property
    def is_idle(self) -> bool:
        """True if no batch is open, waiting, in flight or to be retried."""
        return not (self.open or self.sealed or self.in_flight or self.retries)

    @property
    def wants_identity(self) -> bool:
        """True if the queue cannot send before ``adopt``."""
        return self._idempotent and self._identity is None

    def may_adopt(self, identity: ProducerIdentity) -> bool:
        """True unless the leader fenced this identity, or its epochs are used up."""
        return identity.producer_id != self._lost_producer_id

    def adopt(self, identity: ProducerIdentity) -> None:
        """Number the next batches from 0 under a new identity."""
        assert self.wants_identity, "an identity is kept until it is lost"
        assert self.may_adopt(identity), identity
        self._identity = identity
        self._next_sequence = 0
        self._proven = False

    def renew(self, identity: ProducerIdentity) -> None:
        """Number the next transaction's batches from 0 under the coordinator's next epoch."""
        assert self._transactional, "only a coordinator renews"
        assert self.is_idle, "the transaction before has ended"
        self._identity = identity
        self._next_sequence = 0
        self._proven = False
        self.failure = None

    def cut(self, error: ClientError) -> list[PendingBatch]:
        """Stop sending in this transaction and return the batches that fail by it.

        Batches in flight are awaited, but not retried.
        """
        self.seal()
        self.failure = self.failure or error
        waiting = [batch for batch in (*self.retries, *self.sealed) if not batch.resolved]
        for batch in waiting:
            batch.place = Place.DONE
            batch.fail(error)
        self.retries = []
        self.sealed.clear()
        return waiting

    def open_batch(self, now: float) -> PendingBatch:
        """Return a new open batch; the previous one is sealed."""
        self.seal()
        batch = PendingBatch(
            self.partition, self._next_number, now, transactional=self._transactional
        )
        self._next_number += 1
        self.open = batch
        return batch

    def seal(self) -> None:
        """Close the open batch to further records."""
        if self.open is not None:
            self.sealed.append(self.open)
            self.open = None

    def can_send(self, now: float) -> bool:
        """True if ``take`` has a batch (an open batch counts once it is sealed)."""
        if now < self.resume_at or self.failure is not None:
            return False
        if self.retries or self._renumber:
            return bool(self.retries) and not self.in_flight
        if self.in_flight and self.in_flight[0].retried:
            return False
        in_flight_max = IN_FLIGHT_MAX if self._proven else 1
        return bool(self.sealed) and len(self.in_flight) < in_flight_max and not self.wants_identity

    def may_go_to(self, broker_id: int) -> bool:
        """True unless an older batch is in flight to another broker."""
        return not self.in_flight or self.sent_to == broker_id

    def peek(self) -> PendingBatch:
        """Return the batch that ``take`` returns next. Requires ``can_send``."""
        if self.retries:
            return next(batch for batch in self.retries if not batch.refused)
        return self.sealed[0]

    def take(self, now: float, broker_id: int) -> PendingBatch:
        """Return the next batch to send, now in flight. Requires ``can_send`` and ``may_go_to``."""
        assert self.can_send(now), "nothing to send"
        assert self.may_go_to(broker_id), "older batches are at another broker"
        self.sent_to = broker_id
        batch = self.peek()
        if self.retries:
            self.retries.remove(batch)
        else:
            self.sealed.popleft()
        if self._idempotent and batch.sequence == NO_SEQUENCE:
            self._sequence(batch)
        batch.place = Place.IN_FLIGHT
        self.in_flight.append(batch)
        return batch

    def on_acknowledged(
        self, batch: PendingBatch, base_offset: int, log_append_time_ms: int
    ) -> None:
        """Resolve a batch that the broker has acknowledged."""
        self._land(batch)
        self._proven = True
        batch.place = Place.DONE
        if not batch.resolved:  # otherwise the caller has already got a time-out
            batch.acknowledge(base_offset, log_append_time_ms)
        self._maybe_start_new_epoch()

    def on_refused(self, batch: PendingBatch, refusal: Refusal, resume_at: float) -> None:
        """Retry the batch at ``resume_at``, or give it up, after an error or a lost connection."""
        self._land(batch)
        error = error_for(
            refusal.error_code,
            f"sending {batch.count} records to {self.partition} failed",
            where=refusal.where,
            detail=refusal.message,
        )
        if self.failure is not None:
            self._give_up(batch, error)
        elif self._idempotent and error.code in _OVERTAKEN:
            self._on_overtaken(batch, error)
        elif error.code.retriable and not batch.resolved:
            batch.failures += 1
            batch.problem = error.message
            self.resume_at = max(self.resume_at, resume_at)
            self._retry(batch)
        elif error.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._give_up(batch, error, leaves_gap=False)
        elif error.code is ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1 and not batch.resolved:
            self._split(batch, error)
        else:
            if error.code in _IDENTITY_LOST and not self._transactional:
                self._lose_identity()
            self._give_up(batch, error)
        self._maybe_start_new_epoch()

    def expire(self, created_before: float, why: str = "") -> list[PendingBatch]:
        """Fail batches created before an instant; those in flight keep their place until answered.

        ``why`` is the reported reason for batches that no broker has refused.
        """
        if not any(batch.created_at <= created_before for batch in self.oldest_unresolved()):
            return []
        late = [
            batch
            for batch in (*self.in_flight, *self.retries, *self.sealed)
            if batch.created_at <= created_before and not batch.resolved
        ]
        if self.open is not None and self.open.created_at <= created_before:
            late.append(self.open)
            self.open = None
        for batch in late:
            self._expire_one(batch, why)
        self._maybe_start_new_epoch()
        return late

    def abandon(self, error: ClientError) -> list[PendingBatch]:
        """Fail all batches, because the producer closes."""
        self.seal()
        left = [
            batch for batch in (*self.in_flight, *self.retries, *self.sealed) if not batch.resolved
        ]
        for batch in left:
            batch.place = Place.DONE
            batch.fail(error)
        self.in_flight, self.retries = [], []
        self.sealed.clear()
        return left

    def batches(self) -> Iterator[PendingBatch]:
        """Return all batches of the queue."""
        yield from self.in_flight
        yield from self.retries
        yield from self.sealed
        if self.open is not None:
            yield self.open

    def oldest_unresolved(self) -> list[PendingBatch]:
        """Return the oldest unresolved batch of each state; one of them is the oldest of all."""
        heads = [batch for batch in self.in_flight if not batch.resolved][:1]
        heads += self.retries[:1]
        if self.sealed:
            heads.append(self.sealed[0])
        if self.open is not None:
            heads.append(self.open)
        return heads

    def check(self) -> None:
        """Assert the invariants."""
        for batches in (self.in_flight, self.retries):
            ranks = [batch.rank for batch in batches]
            assert ranks == sorted(ranks), ranks
        assert len(self.in_flight) <= IN_FLIGHT_MAX, len(self.in_flight)
        assert all(batch.sequence == NO_SEQUENCE for batch in self.sealed)

    def _on_overtaken(self, batch: PendingBatch, error: ClientError) -> None:
        """Handle a gap in the sequence numbers.

        The missing batch is an older one in flight, one that was given up, or a lost one.
        """
        if batch.resolved:
            self._give_up(batch, error)
            return
        older = any(
            other.rank < batch.rank and not other.refused
            for other in (*self.in_flight, *self.retries)
        )
        if older and not self._renumber:
            self._retry(batch)
        elif older or self._renumber:
            batch.refused = True
            self._retry(batch)
        else:
            self._give_up(batch, error)

    def _expire_one(self, batch: PendingBatch, why: str) -> None:
        sent = batch.failures > 0 or batch.place is not Place.WAITING
        waited = "waiting for their acknowledgement" if sent else "waiting to be sent"
        batch.fail(
            DeliveryTimeoutError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{batch.count} records for {self.partition} ran out of time {waited};"
                f" {batch.failures} attempts failed, the last one with:"
                f" {batch.problem or why or 'no answer'}",
            )
        )
        if batch.place is Place.IN_FLIGHT:
            return
        if batch.place is Place.RETRYING:
            self.retries.remove(batch)
            self._leave_gap(batch.error)
        elif batch in self.sealed:
            self.sealed.remove(batch)
        batch.place = Place.DONE

    def _give_up(self, batch: PendingBatch, error: ClientError, *, leaves_gap: bool = True) -> None:
        batch.place = Place.DONE
        if not batch.resolved:
            batch.fail(error)
        if leaves_gap:
            self._leave_gap(error)

    def _leave_gap(self, error: ClientError | None) -> None:
        """Continue under a new epoch, or fail the transaction: a sequence number is missing."""
        if self._transactional:
            self.failure = self.failure or error
        else:
            self._renumber = self._idempotent

    def _land(self, batch: PendingBatch) -> None:
        self.in_flight.remove(batch)

    def _retry(self, batch: PendingBatch) -> None:
        batch.place = Place.RETRYING
        batch.retried = True
        self.retries.append(batch)
        self.retries.sort(key=lambda other: other.rank)

    def _split(self, batch: PendingBatch, error: ClientError) -> None:
        batch.split_into(*halves_of(batch))
        for part in batch.parts:
            part.problem = error.message
            self._retry(part)

    def _maybe_start_new_epoch(self) -> None:
        """Number unwritten batches from 0, once all older ones have a certain outcome."""
        unsettled = self.in_flight or not all(batch.refused for batch in self.retries)
        if not self._renumber or unsettled:
            return
        self._renumber = False
        self._next_sequence = 0
        if self._identity is not None:
            producer_id, epoch = self._identity
            if epoch >= PRODUCER_EPOCH_MAX:
                self._lose_identity()
            else:
                self._identity = ProducerIdentity(producer_id, epoch + 1)
        for batch in reversed(self.retries):
            batch.sequence = NO_SEQUENCE
            batch.place = Place.WAITING
            self.sealed.appendleft(batch)
        self.retries = []

    def _lose_identity(self) -> None:
        if self._identity is not None:
            self._lost_producer_id = self._identity.producer_id
            self._identity = None

    def _sequence(self, batch: PendingBatch) -> None:
        assert self._identity is not None, "sent without an identity"
        batch.sequence_as(*self._identity, self._next_sequence)
        self._next_sequence = sequence_after(self._next_sequence, batch.count)
