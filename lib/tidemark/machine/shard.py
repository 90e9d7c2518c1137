"""Shard: protocol state that lives in a log, as against a machine, whose state lives in memory.

``decide`` looks at the state and gives records and effects; it changes nothing that a record does
not change. The runtime (``tidemark.runtime.shard_runtime``) appends the records, replays them at
once, in log order, so that the next decision sees them, and performs the effects once the log is
committed past them. When an append fails or its outcome is unknown the state is dropped and loaded
again from the log: so what a decision changes besides its records (sessions, joins under way) must
be such that losing it is allowed by the protocol.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs, WallMs

RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
RecordT = TypeVar("RecordT")
EffectT_co = TypeVar("EffectT_co", covariant=True)

CLIENT_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    # The coordinator could not write, or did not answer: clients find it again and repeat.
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""What clients are answered when a coordinator's own log failed, as Kafka's coordinators do."""


class Moment(NamedTuple):
    """Now, by both clocks: ``instant`` for intervals and deadlines, ``wall`` for what records
    say.
    """

    instant: InstantMs
    wall: WallMs


class Writer(NamedTuple):
    """In whose open transaction records are written."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class Decision(Generic[RecordT, EffectT_co]):
    """Append these records and replay them; once they are committed, perform these effects.
    Neither without the other. Without records the effects still wait for all that was replayed
    before: they may tell of it.
    """

    records: Sequence[RecordT] = ()
    effects: Sequence[EffectT_co] = ()
    writer: Writer | None = None
    """Of all ``records``: they count only once this producer's transaction commits here."""


class Shard(Protocol[RequestT_contra, RecordT, EffectT_co]):
    """The state of one partition of a coordinator's topic. Synchronous; no clock, no chance, no
    I/O. Answers are effects; a request may be answered by a later decision.
    """

    def decide(
        self, request_id: int, request: RequestT_contra, now: Moment
    ) -> Decision[RecordT, EffectT_co]:
        """Judge one request, or one input from elsewhere; ``request_id`` names it in answers."""
        ...

    def wake(self, now: Moment) -> Decision[RecordT, EffectT_co]:
        """Do what has become due; called at or after ``next_deadline``."""
        ...

    def next_deadline(self) -> InstantMs | None:
        """When ``wake`` has something to do, as far as is known; None: not until a request."""
        ...

    def replay(self, record: RecordT, writer: Writer | None) -> None:
        """A record of the log, in log order: the only way in which logged state changes."""
        ...

    def replay_end(self, writer: Writer, *, commits: bool) -> None:
        """The transaction of this producer ended here: its records count from now, or never."""
        ...

    def loaded(self, now: Moment) -> Decision[RecordT, EffectT_co]:
        """All of the log is replayed and this owner may serve: resume what was under way."""
        ...

    def check(self) -> None:
        """Assert every invariant. Tests and the simulator call it after each step."""
        ...
