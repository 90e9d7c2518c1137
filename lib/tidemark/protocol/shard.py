"""Shard: protocol state that is kept in a log, such as that of groups and transactions.

``decide`` returns records and effects for the current state; logged state changes only by records.
The runtime (``tidemark.runtime.shard_runtime``) appends the records and replays them at once, in
log order, so that the next decision sees them. It performs the effects once the log is committed
past them. When an append fails or its outcome is unknown, the state is dropped and loaded again
from the log. State that a decision changes without records (sessions, joins in progress) must
therefore be state that the protocol allows to lose.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs, Offset, WallMs

RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
RecordT = TypeVar("RecordT")
RecordT_contra = TypeVar("RecordT_contra", contravariant=True)
EffectT_co = TypeVar("EffectT_co", covariant=True)

CLIENT_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    # The coordinator could not write, or did not answer: clients find it again and repeat.
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""Errors for clients when a coordinator's own log failed, as in Kafka's coordinators."""


class Moment(NamedTuple):
    """Current time of both clocks: ``instant`` for deadlines, ``wall`` for records."""

    instant: InstantMs
    wall: WallMs


class Writer(NamedTuple):
    """Producer in whose open transaction records are written."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class Decision(Generic[RecordT, EffectT_co]):
    """Records to append and replay, and effects to perform once they are committed; never one
    without the other. Effects without records still wait for all records replayed before, on which
    they may depend.
    """

    records: Sequence[RecordT] = ()
    effects: Sequence[EffectT_co] = ()
    writer: Writer | None = None
    """Producer whose transaction holds all ``records``: they count only once it commits here."""


class Shard(Protocol[RequestT_contra, RecordT, EffectT_co]):
    """State of one partition of a coordinator's topic. Synchronous, without clock, randomness or
    I/O. Replies are effects; a later decision may reply to a request.
    """

    def decide(
        self, request_id: int, request: RequestT_contra, now: Moment
    ) -> Decision[RecordT, EffectT_co]:
        """Decide one request or other input; ``request_id`` identifies it in replies."""
        ...

    def wake(self, now: Moment) -> Decision[RecordT, EffectT_co]:
        """Act on passed deadlines; called at or after ``next_deadline``."""
        ...

    def next_deadline(self) -> InstantMs | None:
        """Return the time of the next ``wake``; None if there is nothing to do until a request."""
        ...

    def replay(self, record: RecordT, writer: Writer | None) -> None:
        """Apply a record of the log, in log order: the only way in which logged state changes."""
        ...

    def replay_end(self, writer: Writer, *, commits: bool) -> None:
        """End this producer's transaction here: its records count from now on, or never."""
        ...

    def loaded(self, now: Moment) -> Decision[RecordT, EffectT_co]:
        """Resume work in progress: the whole log is replayed, and this owner may serve."""
        ...

    def check(self) -> None:
        """Assert every invariant. Tests and the simulator call it after each step."""
        ...


@runtime_checkable
class KnowsOffsets(Protocol[RecordT_contra]):
    """A shard that needs the offsets of its records: its log is not compacted, but deleted from its
    beginning up to an offset that the shard chooses.
    """

    def located(self, record: RecordT_contra, offset: Offset) -> None:
        """A record that was replayed is committed at this offset. In log order, those that a load
        replays included.
        """
        ...
