"""StateLog: the content of one partition of __transaction_state, read without the coordinator.

It takes every batch as it is committed, in the order of the log, and raises BrokenError for a log
that no sequence of owners can have written. test_txn_history.py gives each rule a log that it must
reject.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tidemark.codec.control_record import OwnerRecord
from tidemark.codec.txn_records import (
    HandleRecord,
    TransactionRecord,
    TransactionState,
    TxnRecord,
    WriterRecord,
)
from tidemark.model.topics import TopicPartition
from txn_coordinator.core.transaction import (
    EMPTY,
    ONGOING,
    OPEN,
    PREPARE_COMMIT,
    PREPARED,
    may_move,
)

from sim.checkers import require


class Ending(NamedTuple):
    """Decided end of one producer's transaction."""

    producer_id: int
    producer_epoch: int
    commits: bool


class Writing(NamedTuple):
    """A hand-out, with the fields of a TransactionRecord."""

    state: TransactionState
    producer_epoch: int
    partitions: frozenset[TopicPartition]


@dataclass
class StateLog:
    """Log of one partition."""

    name: str
    owner_epoch: int = 0
    latest: dict[str, TransactionRecord] = field(default_factory=dict)
    """Latest state by transactional id."""
    prepared: set[Ending] = field(default_factory=set)
    of_producer: dict[int, TransactionRecord] = field(default_factory=dict)
    """Latest state by producer id."""
    handles: dict[str, HandleRecord] = field(default_factory=dict)
    """Latest state by transactional id."""
    slots: dict[str, dict[int, WriterRecord]] = field(default_factory=dict)
    """Latest state by transactional id and slot."""
    slot_of_producer: dict[int, WriterRecord] = field(default_factory=dict)

    def knows(self, producer_id: int) -> TransactionRecord | Writing | None:
        """Return the state of a producer: of Kafka's API, or of a hand-out."""
        record = self.of_producer.get(producer_id)
        if record is not None:
            return record
        slot = self.slot_of_producer.get(producer_id)
        handle = self.handles.get(slot.transactional_id) if slot is not None else None
        if slot is None or handle is None or slot.number != handle.number:
            return None
        # From the decision on, the valid epoch is that of the markers.
        epoch = slot.producer_epoch + (handle.state in PREPARED)
        return Writing(handle.state, epoch, slot.partitions)

    def takes_over(self, owner: OwnerRecord) -> None:
        """Record a committed change of owner."""
        require(
            owner.owner_epoch >= self.owner_epoch,
            "owner epochs never fall",
            f"{self.name}: {owner.owner_epoch} after {self.owner_epoch}",
        )
        self.owner_epoch = owner.owner_epoch

    def takes(self, record: TxnRecord) -> None:
        """Record a committed record."""
        match record:
            case TransactionRecord():
                self._takes_single(record)
            case HandleRecord():
                self._takes_handle(record)
            case WriterRecord():
                self._takes_writer(record)

    def _takes_single(self, record: TransactionRecord) -> None:
        before = self.latest.get(record.transactional_id)
        if before is not None:
            detail = f"{self.name}: {record} after {before}"
            require(may_move(before.state, record.state), "states follow the table", detail)
            require(record.updated_at > before.updated_at, "records are in order", detail)
            same = before.producer_id == record.producer_id
            require(
                not same or record.producer_epoch >= before.producer_epoch,
                "producer epochs never fall",
                detail,
            )
        self.latest[record.transactional_id] = record
        self.of_producer[record.producer_id] = record
        if record.state in PREPARED:
            commits = record.state is PREPARE_COMMIT
            self.prepared.add(Ending(record.producer_id, record.producer_epoch, commits))

    def _takes_handle(self, record: HandleRecord) -> None:
        """Record a transaction with several writers: it decides for all of them."""
        before = self.handles.get(record.transactional_id)
        detail = f"{self.name}: {record} after {before}"
        require(
            may_move(EMPTY if before is None else before.state, record.state),
            "states follow the table",
            detail,
        )
        if before is not None:
            require(record.updated_at > before.updated_at, "records are in order", detail)
            is_next = record.number == before.number + (record.state is ONGOING)
            require(is_next, "transactions of an id follow one another", detail)
            _check_sink(before, record)
        self.handles[record.transactional_id] = record
        if record.state in PREPARED:
            for slot in self.slots.get(record.transactional_id, {}).values():
                if slot.number == record.number:
                    commits = record.state is PREPARE_COMMIT and slot.slot in record.winners
                    ending = Ending(slot.producer_id, slot.producer_epoch + 1, commits)
                    self.prepared.add(ending)

    def _takes_writer(self, record: WriterRecord) -> None:
        """Record a hand-out of a slot, or partitions added to it."""
        of_id = self.slots.setdefault(record.transactional_id, {})
        before = of_id.get(record.slot)
        detail = f"{self.name}: {record} after {before}"
        if before is not None and before.producer_id == record.producer_id:
            grown = record.producer_epoch - before.producer_epoch
            is_same = (record.number, record.writer) == (before.number, before.writer)
            require(grown >= 0, "producer epochs never fall", detail)
            require(grown > 0 or is_same, "a hand-out has an epoch of its own", detail)
        of_id[record.slot] = self.slot_of_producer[record.producer_id] = record

    def remembers_multi_writer(
        self, owner: str, held: Mapping[str, tuple[HandleRecord | None, dict[int, WriterRecord]]]
    ) -> None:
        """Compare an owner's transactions with several writers."""
        told = {key: (one, self.slots.get(key, {})) for key, one in self.handles.items()}
        require(
            held == told, "owners hold what the log says", f"{self.name}: {owner} {held} {told}"
        )

    def remembers(self, owner: str, held: dict[str, TransactionRecord]) -> None:
        """Compare the state of an owner without pending writes with the log."""
        differing = {
            key: (held.get(key), self.latest.get(key))
            for key in held.keys() | self.latest.keys()
            if held.get(key) != self.latest.get(key)
        }
        require(not differing, "owners hold what the log says", f"{self.name}: {owner} {differing}")


def _check_sink(before: HandleRecord, record: HandleRecord) -> None:
    """Check that a sink's batches rise and that no query returns."""
    was, now = before.sink, record.sink
    detail = f"{record} after {before}"
    require(was is None or now is not None, "a sink stays one", detail)
    if was is None or now is None:
        return
    if was.query_id == now.query_id:
        rises = now.committed_batch_id >= was.committed_batch_id
        require(rises, "a sink's committed batches rise", detail)
    else:
        require(now.query_id not in was.retired, "no query comes back", detail)
        require(was.query_id in now.retired, "who was taken over from is retired", detail)


@dataclass
class Markers:
    """Ends of transactions, over all partitions."""

    outcomes: dict[tuple[int, int], bool] = field(default_factory=dict)
    open_epochs: dict[tuple[str, int], int] = field(default_factory=dict)
    """By partition and producer id: epoch of committed records without a marker."""

    def written(self, ending: Ending, decided: set[Ending]) -> None:
        """Record a marker that a leader has appended; ``decided``: committed Prepare records."""
        require(
            ending in decided,
            "nothing is marked before it is decided",
            f"{ending}, decided of it: {[one for one in decided if one[0] == ending[0]]}",
        )

    def records(
        self,
        at: TopicPartition,
        producer_id: int,
        epoch: int,
        known: Writing | TransactionRecord | None,
    ) -> None:
        """Record committed transactional records; ``known``: the coordinator's committed state of
        their producer.
        """
        require(
            known is not None
            and known.state in OPEN
            and at in known.partitions
            and epoch in (known.producer_epoch, known.producer_epoch - (known.state in PREPARED)),
            "a partition takes only what the coordinator knows of",
            f"{at}: records of producer {producer_id}, epoch {epoch}; the coordinator has {known}",
        )
        self.open_epochs[str(at), producer_id] = epoch

    def committed(self, partition: str, ending: Ending) -> None:
        """Record a committed marker of a producer whose epoch rises with every transaction."""
        epoch = self.open_epochs.pop((partition, ending.producer_id), -1)
        require(
            ending.producer_epoch > epoch,
            "a marker ends the transaction that it was decided for",
            f"{partition}: {ending} after records of epoch {epoch}",
        )
        known = self.outcomes.setdefault(ending[:2], ending.commits)
        require(known == ending.commits, "a transaction has one outcome", ending)
