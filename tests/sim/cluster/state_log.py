"""StateLog: what one partition of __transaction_state tells, read as anybody may read it.

It hears of every batch as it is committed, in the order of the log, and raises BrokenError for a
log that no sequence of owners may have written. test_txn_history.py tells each rule a log that it
must reject.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from tidemark.codec.control_record import OwnerRecord
from tidemark.codec.txn_records import TransactionRecord, TxnRecord
from tidemark.model.topics import TopicPartition
from txn_coordinator.core.transaction import OPEN, PREPARE_COMMIT, PREPARED, may_move

from sim.checkers import require


class Ending(NamedTuple):
    """One producer's transaction, decided."""

    producer_id: int
    producer_epoch: int
    commits: bool


@dataclass
class StateLog:
    """One partition."""

    name: str
    owner_epoch: int = 0
    latest: dict[str, TransactionRecord] = field(default_factory=dict)
    """In force, by transactional id."""
    prepared: set[Ending] = field(default_factory=set)
    of_producer: dict[int, TransactionRecord] = field(default_factory=dict)
    """In force, by producer id."""

    def takes_over(self, owner: OwnerRecord) -> None:
        """A change of owner is committed."""
        require(
            owner.owner_epoch >= self.owner_epoch,
            "owner epochs never fall",
            f"{self.name}: {owner.owner_epoch} after {self.owner_epoch}",
        )
        self.owner_epoch = owner.owner_epoch

    def takes(self, record: TxnRecord) -> None:
        """A record is committed."""
        if not isinstance(record, TransactionRecord):
            return
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

    def remembers(self, owner: str, held: dict[str, TransactionRecord]) -> None:
        """An owner that has nothing on its way: what it holds is what the log says."""
        differing = {
            key: (held.get(key), self.latest.get(key))
            for key in held.keys() | self.latest.keys()
            if held.get(key) != self.latest.get(key)
        }
        require(not differing, "owners hold what the log says", f"{self.name}: {owner} {differing}")


@dataclass
class Markers:
    """Of all partitions: how transactions ended."""

    outcomes: dict[tuple[int, int], bool] = field(default_factory=dict)
    open_epochs: dict[tuple[str, int], int] = field(default_factory=dict)
    """By partition and producer id: the epoch of records without a marker, as committed."""

    def written(self, ending: Ending, decided: set[Ending]) -> None:
        """A partition's leader has appended a marker; ``decided``: what is committed of Prepare
        records.
        """
        require(
            ending in decided,
            "nothing is marked before it is decided",
            f"{ending}, decided of it: {[one for one in decided if one[0] == ending[0]]}",
        )

    def records(
        self, at: TopicPartition, producer_id: int, epoch: int, known: TransactionRecord | None
    ) -> None:
        """Transactional records are committed; ``known``: what the coordinator holds of their
        producer, as committed.
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
        """A marker of a producer whose epoch rises with every transaction is committed."""
        epoch = self.open_epochs.pop((partition, ending.producer_id), -1)
        require(
            ending.producer_epoch > epoch,
            "a marker ends the transaction that it was decided for",
            f"{partition}: {ending} after records of epoch {epoch}",
        )
        known = self.outcomes.setdefault(ending[:2], ending.commits)
        require(known == ending.commits, "a transaction has one outcome", ending)
