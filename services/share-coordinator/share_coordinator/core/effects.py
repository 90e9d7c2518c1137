"""Actions that the shell performs for a shard of share groups, once its log is committed."""

from dataclasses import dataclass

from tidemark.model.ids import LeaderEpoch, Offset
from tidemark.model.share_state import SharePartitionKey, TransactionKey

from share_coordinator.core.requests import Reply


@dataclass(frozen=True, slots=True)
class Answer:
    """``to`` is the ``request_id`` given to ``decide``."""

    to: int
    reply: Reply


@dataclass(frozen=True, slots=True)
class ReserveGroupId:
    """Reserve this id for a share group at the group coordinator, so that no group of another type
    takes it, and report the result with ``GroupIdReserved``, failures included. May be repeated for
    an id that is reserved.
    """

    group_id: str


@dataclass(frozen=True, slots=True)
class ReleaseGroupId:
    """The group is deleted: its id may be used by a group of any type. Perform ``then`` once the
    group coordinator has released the id, or after some seconds without it.
    """

    group_id: str
    then: Answer


@dataclass(frozen=True, slots=True)
class DropWindows:
    """The state of these share-partitions began again or was deleted: their leaders should drop
    their windows. A leader that is not reached is fenced at its next write.
    """

    keys: tuple[SharePartitionKey, ...]


@dataclass(frozen=True, slots=True)
class LoadWindows:
    """These share-partitions have dead letters: their leaders are to copy them, whether or not a
    member fetches. A leader that is not reached is notified at the next time.
    """

    keys: tuple[SharePartitionKey, ...]


@dataclass(frozen=True, slots=True)
class TransactionsEnded:
    """A transaction that held records of these share-partitions has ended: their leaders are to
    finish the records, or give them back. A leader that reads the state finds them so. Report with
    ``LeadersNotified`` that all of them have answered.
    """

    transaction: TransactionKey
    commits: bool
    keys: tuple[SharePartitionKey, ...]
    leader_epochs: tuple[LeaderEpoch, ...]
    """For each key, of the last leader that has read the state. It may have read it before the end:
    an earlier leader cannot answer for it.
    """


@dataclass(frozen=True, slots=True)
class PruneLog:
    """Delete the records of the state topic's partition below this offset."""

    before: Offset


Effect = (
    Answer
    | ReserveGroupId
    | ReleaseGroupId
    | DropWindows
    | LoadWindows
    | TransactionsEnded
    | PruneLog
)
