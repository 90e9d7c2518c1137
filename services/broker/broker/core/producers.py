"""Idempotent producers of one partition: detection of new, repeated, missing and fenced batches.

Kafka's rules (KIP-98, KIP-360): per producer id an epoch and the last five batches. Sequences
number the records of a producer in this partition and go from 2**31 - 1 back to 0.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from tidemark.codec.control_record import ControlRecord, EndTxnMarker, OwnerRecord
from tidemark.codec.record_batch import TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT, BatchHeader
from tidemark.model.errors import ErrorCode

from broker.core.open_txns import AbortedTxn, OpenTxns

BATCHES_KEPT: Final = 5
"""Batches that clients may have in flight (max.in.flight.requests.per.connection with
idempotence).
"""
NO_SEQUENCE: Final = -1
NO_TXN_OFFSET: Final = -1
NO_COORDINATOR_EPOCH: Final = -1
NO_OWNER: Final = -1
_SEQUENCES: Final = 2**31
_HALF: Final = 2**30


class ProducedBatch(NamedTuple):
    """One appended batch of a producer, kept as long as a retry of it can be recognised."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int
    """Max timestamp of the batch, ms."""


class ProducerEntry(NamedTuple):
    """State of one producer in a snapshot. ``batches`` is oldest first."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    current_txn_first_offset: int
    updated_at: int
    """Wall clock at the last append, ms; used for expiry. After a replay: at the replay, unless the
    batch has its leader's time.
    """
    batches: tuple[ProducedBatch, ...]

    @property
    def last_sequence(self) -> int:
        """Last sequence; NO_SEQUENCE before the first batch."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_timestamp(self) -> int:
        """Max timestamp of the last batch. Without a batch of this epoch the time of the last
        append: after a marker, and for a group's offsets, which have no sequences.
        """
        return self.batches[-1].timestamp if self.batches else self.updated_at

    def below(self, offset: int) -> "ProducerEntry":
        """Return the entry without the batches, and the transaction, that begin at ``offset`` or
        later. An epoch that came later is set again by what brought it.
        """
        first = self.current_txn_first_offset
        return self._replace(
            current_txn_first_offset=first if first < offset else NO_TXN_OFFSET,
            batches=tuple(batch for batch in self.batches if batch.base_offset < offset),
        )


class Accepted(NamedTuple):
    """Verdict on the producer's next batch."""


class Duplicate(NamedTuple):
    """Verdict on a batch that was appended before; acknowledge it with these values."""

    base_offset: int
    last_offset: int
    timestamp: int


class Refused(NamedTuple):
    """Verdict on a batch that must not be appended."""

    error_code: ErrorCode
    message: str


class Ended(NamedTuple):
    """Verdict on a marker that is in the log; acknowledge it once the log so far is replicated."""


Verdict = Accepted | Duplicate | Refused
ACCEPTED: Final = Accepted()
ENDED: Final = Ended()


class ProducerState(NamedTuple):
    """State of a table in a snapshot."""

    entries: tuple[ProducerEntry, ...]
    owner_epoch: int = NO_OWNER
    ended: tuple[tuple[int, int], ...] = ()
    """(first offset, marker's offset) of ended transactions that may not be replicated."""


class _Producer:
    """State of one producer in memory. ``batches`` is oldest first, BATCHES_KEPT at most."""

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
    """The producers of one partition, their transactions, and the owner epoch of a coordinator's
    shard. Changed by ``appended``, ``replay`` and ``expire`` alone.
    """

    __slots__ = ("_producers", "newly_aborted", "owner_epoch", "txns")

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}
        self.txns = OpenTxns()
        self.owner_epoch = NO_OWNER
        """Highest epoch of the shard's owners; appends with a lower one are refused."""
        self.newly_aborted: list[AbortedTxn] = []
        """Aborted transactions not yet taken by their index."""

    def __len__(self) -> int:
        return len(self._producers)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._producers

    def check(self, header: BatchHeader) -> Verdict:
        """Decide on one batch with a producer id; changes nothing.

        A producer id without state here (new, expired, or removed by retention) may begin at any
        sequence, as in Kafka.
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
        """Return the refusal of a batch without sequences; only a newer session fences it."""
        producer = self._producers.get(producer_id)
        if producer is None or producer_epoch >= producer.producer_epoch:
            return None
        return _fenced(producer_id, producer_epoch, producer.producer_epoch)

    def check_marker(
        self, producer_id: int, producer_epoch: int, marker: EndTxnMarker, *, bumped: bool
    ) -> Accepted | Ended | Refused:
        """Decide on a marker of a producer's transaction; changes nothing.

        ``bumped``: the marker's epoch must be above that of the transaction's records (transactions
        v2). If it is not, the marker is late and would end the next transaction (KIP-890,
        KIP-1228).
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

    def administrators_marker(self, producer_id: int, marker: EndTxnMarker) -> EndTxnMarker:
        """Return an administrator's marker with an epoch that fences no coordinator. An owner's
        epoch is at least 1.

        An epoch above the one remembered here comes from elsewhere: with it, the markers of the
        real owner would be refused from then on.
        """
        producer = self._producers.get(producer_id)
        known = 0 if producer is None else max(producer.coordinator_epoch, 0)
        return marker._replace(coordinator_epoch=min(marker.coordinator_epoch, known))

    def is_open(self, producer_id: int, producer_epoch: int) -> bool:
        """True if the producer has an open transaction of this epoch here. One of an older epoch is
        another transaction, whose marker is yet to come.
        """
        producer = self._producers.get(producer_id)
        return (
            producer is not None
            and producer.producer_epoch == producer_epoch
            and self.txns.first_of(producer_id) is not None
        )

    def check_offsets(self, producer_id: int, producer_epoch: int) -> ErrorCode:
        """Decide on offsets that a group commits in this producer's transaction; changes nothing.

        The coordinator has verified the partition.
        """
        if self.check_epoch(producer_id, producer_epoch) is not None:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        is_another = self.txns.first_of(producer_id) is not None and not self.is_open(
            producer_id, producer_epoch
        )
        # The marker of the last transaction is yet to come; clients retry the commit.
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_another else ErrorCode.NONE

    def check_transaction(self, header: BatchHeader) -> Refused | None:
        """Return the refusal of a batch outside the producer's open transaction, or None."""
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
        """Add a batch that ``check`` accepted, and that is in the log from ``base_offset`` on."""
        _, _, _, _, _, attributes, delta, _, max_ms, producer_id, epoch, base, _ = header
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = _Producer(epoch)
        elif epoch != producer.producer_epoch:
            producer.producer_epoch = epoch
            producer.batches = []
        producer.updated_at = now
        if attributes & TRANSACTIONAL_BIT and self.txns.first_of(producer_id) is None:
            self.txns.begin(producer_id, base_offset)
        last_sequence, last_offset = (base + delta) % _SEQUENCES, base_offset + delta
        batches = producer.batches
        batches.append(
            # Made for each batch: a NamedTuple's own constructor takes twice as long.
            tuple.__new__(ProducedBatch, (base, last_sequence, base_offset, last_offset, max_ms))
        )
        if len(batches) > BATCHES_KEPT:
            del batches[0]

    def replay(self, header: BatchHeader, now: int, control: ControlRecord | None = None) -> None:
        """Apply a batch of the log, in log order. Never refuses, since the batch was accepted
        before.

        ``control`` is the content of a control batch. Batches without sequences (the coordinators'
        own) only begin a transaction. A replay may be long after the append: at a restart, or on a
        replica that copies the log.
        """
        now = _written_at(header, now)
        if control is None and header.base_sequence >= 0 and header.producer_id >= 0:
            self.appended(header, header.base_offset, now)
        elif isinstance(control, OwnerRecord):
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

    def ids(self) -> list[int]:
        """Return the ids of all producers."""
        return list(self._producers)

    def expire(self, now: int, expiration_ms: int, among: Iterable[int] | None = None) -> int:
        """Remove producers without an append for ``expiration_ms`` and without a transaction;
        return their number. ``among``: only of these, which may be gone already.
        """
        looked_at = self._producers if among is None else among
        gone = [
            producer_id
            for producer_id in looked_at
            if (producer := self._producers.get(producer_id)) is not None
            and now - producer.updated_at >= expiration_ms
            and self.txns.first_of(producer_id) is None
        ]
        for producer_id in gone:
            del self._producers[producer_id]
        return len(gone)

    def clear(self) -> None:
        """Remove all state: before a restore, or when the log starts from empty."""
        self.restore(ProducerState(()))

    def entries(self) -> tuple[ProducerEntry, ...]:
        """Return the state of every producer."""
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
        """Return all state, for a snapshot."""
        return ProducerState(self.entries(), self.owner_epoch, self.txns.ended())

    def state_below(self, offset: int) -> ProducerState:
        """Return the state from which a replay of the batches from ``offset`` on makes the present
        one, for a log that loses all before it. Markers below ``offset`` are replicated.
        """
        return ProducerState(
            tuple(entry.below(offset) for entry in self.entries()), self.owner_epoch
        )

    def restore(self, state: ProducerState) -> None:
        """Replace all state by a snapshot's."""
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
        """Return the producers for DescribeProducers, by producer id."""
        return tuple(sorted(self.entries()))


def _written_at(header: BatchHeader, now: int) -> int:
    """Return the time of an append: that in the batch where a broker has set it, otherwise ``now``.
    The clocks of producers do not count: records of long ago would expire their producer.
    """
    is_brokers = header.base_sequence < 0 or header.attributes & TIMESTAMP_TYPE_BIT
    return min(now, header.max_timestamp) if is_brokers and header.max_timestamp >= 0 else now


def _other_epoch(producer: _Producer, header: BatchHeader) -> Verdict:
    """Decide on a batch of another epoch: older ones are fenced, newer ones begin at sequence 0."""
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
    """Decide on a batch of the current epoch with a sequence out of order: repeated, older than a
    full window, or missing: after a gap, or before the producer's first batch here.
    """
    base = header.base_sequence
    last = (base + header.last_offset_delta) % _SEQUENCES
    for batch in producer.batches:
        if batch.base_sequence == base and batch.last_sequence == last:
            return Duplicate(batch.base_offset, batch.last_offset, batch.timestamp)
    if len(producer.batches) == BATCHES_KEPT:
        # A producer may begin at any sequence, so that one before a window with fewer batches may
        # never have been appended. Clients take DUPLICATE_SEQUENCE_NUMBER for an acknowledgement.
        # Before a full window nothing is in flight any longer.
        # Sequences are circular: a distance behind the window of less than half the circle is the
        # past.
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
