"""Idempotent producers of one partition: which batch is new, a repetition, a gap, or fenced.

Kafka's rules (KIP-98, KIP-360): per producer id an epoch and the last five batches. Sequences
number the records of a producer in this partition and go from 2**31 - 1 back to 0.
"""

from typing import Final, NamedTuple

from tidemark.codec.control_record import ControlRecord, EndTxnMarker, OwnerRecord
from tidemark.codec.record_batch import TRANSACTIONAL_BIT, BatchHeader
from tidemark.model.errors import ErrorCode

from broker.core.open_txns import AbortedTxn, OpenTxns

BATCHES_KEPT: Final = 5
"""What clients may have in flight (max.in.flight.requests.per.connection with idempotence)."""
NO_SEQUENCE: Final = -1
NO_TXN_OFFSET: Final = -1
NO_COORDINATOR_EPOCH: Final = -1
NO_OWNER: Final = -1
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


class Ended(NamedTuple):
    """The marker is in the log already: acknowledge it once all that is there is replicated."""


Verdict = Accepted | Duplicate | Refused
ACCEPTED: Final = Accepted()
ENDED: Final = Ended()


class ProducerState(NamedTuple):
    """All of a table: what a snapshot keeps."""

    entries: tuple[ProducerEntry, ...]
    owner_epoch: int = NO_OWNER
    ended: tuple[tuple[int, int], ...] = ()
    """(first offset, marker's offset) of ended transactions that may not be replicated."""


class _Producer:
    """One producer's live state. ``batches`` is oldest first and never longer than BATCHES_KEPT."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "producer_epoch",
        "updated_at",
    )

    def __init__(self, producer_epoch: int) -> None:
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.updated_at = 0
        self.batches: list[ProducedBatch] = []


class ProducerTable:
    """The producers of one partition, their transactions, and who owns it where it is a
    coordinator's shard. Changed only by ``appended``, ``replay`` and ``expire``.
    """

    __slots__ = ("_producers", "newly_aborted", "owner_epoch", "txns")

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}
        self.txns = OpenTxns()
        self.owner_epoch = NO_OWNER
        """Appends of a shard's owner with a lower epoch are refused."""
        self.newly_aborted: list[AbortedTxn] = []
        """For the index of aborted transactions, which takes them from here."""

    def __len__(self) -> int:
        return len(self._producers)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._producers

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

    def check_epoch(self, producer_id: int, producer_epoch: int) -> Refused | None:
        """For a batch without sequences: only a newer session's producer fences it."""
        producer = self._producers.get(producer_id)
        if producer is None or producer_epoch >= producer.producer_epoch:
            return None
        return _fenced(producer_id, producer_epoch, producer.producer_epoch)

    def check_marker(
        self, producer_id: int, producer_epoch: int, marker: EndTxnMarker, *, bumped: bool
    ) -> Accepted | Ended | Refused:
        """Decide about the end of a producer's transaction; changes nothing.

        ``bumped``: its epoch is above the one that the transaction's records have (transactions
        v2): one that is not came too late, and would end the next transaction (KIP-890, KIP-1228).
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return ACCEPTED
        if marker.coordinator_epoch < producer.coordinator_epoch:
            return Refused(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a coordinator of epoch {producer.coordinator_epoch} has ended transactions of"
                f" producer {producer_id}; this one has epoch {marker.coordinator_epoch}",
            )
        if producer_epoch < producer.producer_epoch:
            return _fenced(producer_id, producer_epoch, producer.producer_epoch)
        if bumped and producer_epoch == producer.producer_epoch:
            if self.txns.first_of(producer_id) is None:
                return ENDED
            return _fenced(producer_id, producer_epoch, producer.producer_epoch)
        return ACCEPTED

    def is_open(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether this producer has a transaction of this epoch here: one of an older epoch is
        another, whose marker is still to come.
        """
        producer = self._producers.get(producer_id)
        return (
            producer is not None
            and producer.producer_epoch == producer_epoch
            and self.txns.first_of(producer_id) is not None
        )

    def check_offsets(self, producer_id: int, producer_epoch: int) -> ErrorCode:
        """Decide about positions that a group commits in this producer's transaction, which the
        coordinator knows of; changes nothing.
        """
        if self.check_epoch(producer_id, producer_epoch) is not None:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        is_another = self.txns.first_of(producer_id) is not None and not self.is_open(
            producer_id, producer_epoch
        )
        # The marker of its last transaction is still to come: clients repeat the commit.
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_another else ErrorCode.NONE

    def check_transaction(self, header: BatchHeader) -> Refused | None:
        """A producer with an open transaction here writes in it until it ends."""
        if self.txns.first_of(header.producer_id) is None:
            return None
        if header.is_transactional:
            if self.is_open(header.producer_id, header.producer_epoch):
                return None
            return Refused(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"producer {header.producer_id}: its last transaction is still being ended; retry",
            )
        return Refused(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {header.producer_id} has an open transaction in this partition and must"
            " write in it",
        )

    def appended(self, header: BatchHeader, base_offset: int, now: int) -> None:
        """A batch that ``check`` accepted is in the log from ``base_offset`` on."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._producers[header.producer_id] = _Producer(header.producer_epoch)
        elif header.producer_epoch != producer.producer_epoch:
            producer.producer_epoch = header.producer_epoch
            producer.batches = []
        producer.updated_at = now
        if header.attributes & TRANSACTIONAL_BIT and self.txns.first_of(header.producer_id) is None:
            self.txns.begin(header.producer_id, base_offset)
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

    def replay(self, header: BatchHeader, now: int, control: ControlRecord | None = None) -> None:
        """A batch found in the log, in log order. Never refuses: it was accepted once.

        ``control`` is what a control batch says. Batches without sequences (the coordinators' own)
        only begin a transaction.
        """
        if isinstance(control, OwnerRecord):
            self.owner_epoch = max(self.owner_epoch, control.owner_epoch)
        elif header.producer_id < 0:
            return
        elif isinstance(control, EndTxnMarker):
            self._end(header, control, now)
        elif header.base_sequence >= 0:
            self.appended(header, header.base_offset, now)
        else:
            self._touch(header, now)
            if header.is_transactional and self.txns.first_of(header.producer_id) is None:
                self.txns.begin(header.producer_id, header.base_offset)

    def _touch(self, header: BatchHeader, now: int) -> _Producer:
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._producers[header.producer_id] = _Producer(header.producer_epoch)
        elif header.producer_epoch != producer.producer_epoch:
            producer.producer_epoch = header.producer_epoch
            producer.batches = []
        producer.updated_at = now
        return producer

    def _end(self, header: BatchHeader, marker: EndTxnMarker, now: int) -> None:
        producer = self._touch(header, now)
        producer.coordinator_epoch = marker.coordinator_epoch
        offset = header.base_offset
        first = self.txns.end(header.producer_id, offset)
        if first is not None and not marker.commits:
            stable = self.txns.first_open()
            self.newly_aborted.append(
                AbortedTxn(
                    header.producer_id, first, offset, offset + 1 if stable is None else stable
                )
            )

    def expire(self, now: int, expiration_ms: int) -> int:
        """Forget producers silent for ``expiration_ms`` and without a transaction; how many."""
        gone = [
            producer_id
            for producer_id, producer in self._producers.items()
            if now - producer.updated_at >= expiration_ms
            and self.txns.first_of(producer_id) is None
        ]
        for producer_id in gone:
            del self._producers[producer_id]
        return len(gone)

    def clear(self) -> None:
        """Forget everything: before a restore, or when the log starts anew."""
        self.restore(ProducerState(()))

    def entries(self) -> tuple[ProducerEntry, ...]:
        """Every producer."""
        first_of = self.txns.first_of
        return tuple(
            ProducerEntry(
                producer_id,
                producer.producer_epoch,
                producer.coordinator_epoch,
                NO_TXN_OFFSET if (first := first_of(producer_id)) is None else first,
                producer.updated_at,
                tuple(producer.batches),
            )
            for producer_id, producer in self._producers.items()
        )

    def state(self) -> ProducerState:
        """Everything, for a snapshot."""
        return ProducerState(self.entries(), self.owner_epoch, self.txns.ended())

    def restore(self, state: ProducerState) -> None:
        """Replace everything by what a snapshot kept."""
        self._producers.clear()
        self.newly_aborted.clear()
        self.owner_epoch = state.owner_epoch
        for entry in state.entries:
            producer = self._producers[entry.producer_id] = _Producer(entry.producer_epoch)
            producer.coordinator_epoch = entry.coordinator_epoch
            producer.updated_at = entry.updated_at
            producer.batches = list(entry.batches[-BATCHES_KEPT:])
        self.txns.restore(
            (
                (entry.producer_id, entry.current_txn_first_offset)
                for entry in state.entries
                if entry.current_txn_first_offset != NO_TXN_OFFSET
            ),
            state.ended,
        )

    def statistics(self) -> tuple[ProducerEntry, ...]:
        """What DescribeProducers tells, by producer id."""
        return tuple(sorted(self.entries()))


def _other_epoch(producer: _Producer, header: BatchHeader) -> Verdict:
    """An older epoch is fenced; a newer one begins at sequence 0."""
    epoch = header.producer_epoch
    if epoch < producer.producer_epoch:
        return _fenced(header.producer_id, epoch, producer.producer_epoch)
    if header.base_sequence != 0:
        return Refused(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} begins epoch {epoch} at sequence"
            f" {header.base_sequence} instead of 0",
        )
    return ACCEPTED


def _fenced(producer_id: int, epoch: int, current: int) -> Refused:
    return Refused(
        ErrorCode.INVALID_PRODUCER_EPOCH, f"producer {producer_id} has epoch {current}, not {epoch}"
    )


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
