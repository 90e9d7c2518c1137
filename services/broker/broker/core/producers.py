"""Idempotent producers of one partition: which batch is new, a repetition, a gap, or fenced.

Kafka's rules (KIP-98, KIP-360): per producer id an epoch and the last five batches. Sequences
number the records of a producer in this partition and go from 2**31 - 1 back to 0.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from tidemark.codec.record_batch import BatchHeader
from tidemark.model.errors import ErrorCode

BATCHES_KEPT: Final = 5
"""What clients may have in flight (max.in.flight.requests.per.connection with idempotence)."""
NO_SEQUENCE: Final = -1
NO_TXN_OFFSET: Final = -1
NO_COORDINATOR_EPOCH: Final = -1
_SEQUENCES: Final = 2**31
_HALF: Final = 2**30


class ProducedBatch(NamedTuple):
    """One appended batch of a producer, as long as a retry of it would be recognised."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int
    """Max timestamp of the batch, ms."""


class ProducerEntry(NamedTuple):
    """All that is known of one producer: what a snapshot keeps. ``batches`` is oldest first."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    current_txn_first_offset: int
    updated_at: int
    """Broker's wall clock at the last append, ms; counts for expiry."""
    batches: tuple[ProducedBatch, ...]

    @property
    def last_sequence(self) -> int:
        """NO_SEQUENCE before its first batch."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_timestamp(self) -> int:
        """Of its last batch; -1 before the first."""
        return self.batches[-1].timestamp if self.batches else -1


class Accepted(NamedTuple):
    """The batch is the producer's next one."""


class Duplicate(NamedTuple):
    """The batch was appended before: acknowledge it with these."""

    base_offset: int
    last_offset: int
    timestamp: int


class Refused(NamedTuple):
    """The batch must not be appended."""

    error_code: ErrorCode
    message: str


Verdict = Accepted | Duplicate | Refused
ACCEPTED: Final = Accepted()


class _Producer:
    """One producer's live state. ``batches`` is oldest first and never longer than BATCHES_KEPT."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "producer_epoch",
        "updated_at",
    )

    def __init__(self, producer_epoch: int) -> None:
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.current_txn_first_offset = NO_TXN_OFFSET
        self.updated_at = 0
        self.batches: list[ProducedBatch] = []


class ProducerTable:
    """The producers of one partition. Changed only by ``appended``, ``replay`` and ``expire``."""

    __slots__ = ("_producers",)

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, header: BatchHeader, now: int) -> Verdict:
        """Decide about one batch that has a producer id; changes nothing.

        A producer id that is not known (new, expired, or removed by retention) may begin at any
        sequence, as in Kafka. ``now`` is wall time in ms.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return ACCEPTED
        epoch = header.producer_epoch
        base = header.base_sequence
        if epoch != producer.producer_epoch:
            return _other_epoch(producer, header)
        batches = producer.batches
        expected = (batches[-1].last_sequence + 1) % _SEQUENCES if batches else 0
        if base == expected:
            return ACCEPTED
        return _out_of_turn(producer, header, expected)

    def appended(self, header: BatchHeader, base_offset: int, now: int) -> None:
        """A batch that ``check`` accepted is in the log from ``base_offset`` on."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._producers[header.producer_id] = _Producer(header.producer_epoch)
        elif header.producer_epoch != producer.producer_epoch:
            producer.producer_epoch = header.producer_epoch
            producer.batches = []
        producer.updated_at = now
        base = header.base_sequence
        delta = header.last_offset_delta
        batches = producer.batches
        batches.append(
            ProducedBatch(
                base,
                (base + delta) % _SEQUENCES,
                base_offset,
                base_offset + delta,
                header.max_timestamp,
            )
        )
        if len(batches) > BATCHES_KEPT:
            del batches[0]

    def replay(self, header: BatchHeader, now: int) -> None:
        """A batch found in the log, in log order. One without a producer id changes nothing.

        Never refuses: what is in the log was accepted once. Control batches carry no sequence.
        """
        if header.producer_id < 0:
            return
        if header.is_control or header.base_sequence < 0:
            self._replay_control(header, now)
        else:
            self.appended(header, header.base_offset, now)

    def _replay_control(self, header: BatchHeader, now: int) -> None:
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._producers[header.producer_id] = _Producer(header.producer_epoch)
        elif header.producer_epoch != producer.producer_epoch:
            producer.producer_epoch = header.producer_epoch
            producer.batches = []
        producer.current_txn_first_offset = NO_TXN_OFFSET
        producer.updated_at = now

    def expire(self, now: int, expiration_ms: int) -> int:
        """Forget producers silent for ``expiration_ms`` and without a transaction; how many."""
        gone = [
            producer_id
            for producer_id, producer in self._producers.items()
            if now - producer.updated_at >= expiration_ms
            and producer.current_txn_first_offset == NO_TXN_OFFSET
        ]
        for producer_id in gone:
            del self._producers[producer_id]
        return len(gone)

    def clear(self) -> None:
        """Forget everyone: before a restore, or when the log starts anew."""
        self._producers.clear()

    def entries(self) -> tuple[ProducerEntry, ...]:
        """Everything, for a snapshot."""
        return tuple(
            ProducerEntry(
                producer_id,
                producer.producer_epoch,
                producer.coordinator_epoch,
                producer.current_txn_first_offset,
                producer.updated_at,
                tuple(producer.batches),
            )
            for producer_id, producer in self._producers.items()
        )

    def restore(self, entries: Iterable[ProducerEntry]) -> None:
        """Replace everything by what a snapshot kept."""
        self._producers.clear()
        for entry in entries:
            producer = self._producers[entry.producer_id] = _Producer(entry.producer_epoch)
            producer.coordinator_epoch = entry.coordinator_epoch
            producer.current_txn_first_offset = entry.current_txn_first_offset
            producer.updated_at = entry.updated_at
            producer.batches = list(entry.batches[-BATCHES_KEPT:])

    def statistics(self) -> tuple[ProducerEntry, ...]:
        """What DescribeProducers tells, by producer id."""
        return tuple(sorted(self.entries()))


def _other_epoch(producer: _Producer, header: BatchHeader) -> Verdict:
    """An older epoch is fenced; a newer one begins at sequence 0."""
    epoch = header.producer_epoch
    if epoch < producer.producer_epoch:
        return Refused(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {header.producer_id} has epoch {producer.producer_epoch}, not {epoch}",
        )
    if header.base_sequence != 0:
        return Refused(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} begins epoch {epoch} at sequence"
            f" {header.base_sequence} instead of 0",
        )
    return ACCEPTED


def _out_of_turn(producer: _Producer, header: BatchHeader, expected: int) -> Verdict:
    """The right epoch, but not the next sequence: repeated, older than the window, or a gap."""
    base = header.base_sequence
    last = (base + header.last_offset_delta) % _SEQUENCES
    for batch in producer.batches:
        if batch.base_sequence == base and batch.last_sequence == last:
            return Duplicate(batch.base_offset, batch.last_offset, batch.timestamp)
    if producer.batches:
        # Sequences are a circle: what lies less than half of it behind the window is in the past.
        behind = (producer.batches[0].base_sequence - last) % _SEQUENCES
        if 0 < behind < _HALF:
            return Refused(
                ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
                f"producer {header.producer_id} repeats sequence {base}, which was appended"
                f" more than {BATCHES_KEPT} batches ago",
            )
    return Refused(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} sent sequence {base} where {expected} was expected",
    )
