"""States of all share-partitions of a shard, with the fences for leaders and the group.

Two fences (KIP-932). The *leader epoch* is that of the partition's leader: a read by a newer leader
fences all earlier ones. The *state epoch* names one life of the state: a leader with a window of an
earlier life, from before a reset or a deletion, is refused.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NamedTuple

from tidemark.codec.share_records import (
    ShareSnapshotRecord,
    ShareSnapshotValue,
    ShareStateRecord,
    ShareUpdateRecord,
)
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import LeaderEpoch, Offset, TopicId
from tidemark.model.share_state import (
    PERSISTED_STATES,
    UNKNOWN_COUNT,
    UNKNOWN_START,
    DeleteState,
    InitializeState,
    ReadState,
    ReadStateSummary,
    SharePartitionKey,
    StateBatch,
    StateEpoch,
    StateRead,
    StateResult,
    StateSummary,
    WriteState,
)

from share_coordinator.core.share_state import (
    ShareState,
    from_snapshot,
    leader_update,
    update_of,
)

BATCHES_MAX: Final = 20_000
"""Batches of one state: twice the greatest window (group.share.max.partition.max.record.locks), so
that a snapshot fits into a batch of the state topic.
"""
DELIVERY_COUNT_MAX: Final = 2**15 - 1
FIRST_LEADER_EPOCH: Final = LeaderEpoch(0)
_EPOCH_ZERO_S: Final = 1_577_836_800
"""2020-01-01, from which state epochs count seconds."""

Part = tuple[TopicId, int]
"""A share-partition within its group."""
_NOTHING: Final[Mapping[Part, ShareState]] = MappingProxyType({})


class Outcome(NamedTuple):
    """Records to append, and the answer once they are committed."""

    records: tuple[ShareStateRecord, ...]
    reply: StateResult | StateRead | StateSummary


class ShareStates:
    """Only ``replay`` changes the states; all other methods decide or look up."""

    def __init__(self, updates_per_snapshot: int) -> None:
        assert updates_per_snapshot > 0, updates_per_snapshot
        self._updates_per_snapshot = updates_per_snapshot
        self._groups: dict[str, dict[Part, ShareState]] = {}
        self._epoch_floor = 0
        """State epochs of deleted states are below it, as far as the log shows them."""

    # -------------------------------------------------------------------- looking

    def of(self, key: SharePartitionKey) -> ShareState | None:
        """The state of a share-partition."""
        return self.of_group(key.group_id).get((key.topic_id, key.partition))

    def of_group(self, group_id: str) -> Mapping[Part, ShareState]:
        """All states of a group."""
        return self._groups.get(group_id, _NOTHING)

    def share_partitions(self) -> Iterator[SharePartitionKey]:
        """All share-partitions that have a state."""
        for group_id, states in self._groups.items():
            for topic_id, partition in states:
                yield SharePartitionKey(group_id, topic_id, partition)

    @property
    def count(self) -> int:
        """Number of share-partitions that have a state."""
        return sum(map(len, self._groups.values()))

    def fresh_epoch(self, keys: Iterable[SharePartitionKey], wall_ms: int) -> StateEpoch:
        """A state epoch above those of every life that these share-partitions have had.

        It counts seconds rather than lives: a deleted state leaves nothing behind from which to
        count on, and a leader that still has its window must not be taken for one of the new state.
        """
        known = (state.state_epoch + 1 for key in keys if (state := self.of(key)) is not None)
        return StateEpoch(max(wall_ms // 1_000 - _EPOCH_ZERO_S, self._epoch_floor, 0, *known))

    # -------------------------------------------------------------------- deciding

    def initialize(self, request: InitializeState, wall_ms: int) -> Outcome:
        """Begin a state; a higher state epoch replaces an earlier state. A repeated request
        succeeds and writes nothing.
        """
        state = self.of(request.key)
        if request.start_offset < UNKNOWN_START:
            return _refused(
                request.key, ErrorCode.INVALID_REQUEST, f"start offset {request.start_offset}"
            )
        if state is not None and state.state_epoch > request.state_epoch:
            return _refused(request.key, ErrorCode.FENCED_STATE_EPOCH, _state_fence(state))
        if state is not None and state.state_epoch == request.state_epoch:
            return Outcome((), StateResult(request.key, ErrorCode.NONE))
        value = ShareSnapshotValue(
            snapshot_epoch=state.snapshot_epoch + 1 if state is not None else 0,
            state_epoch=request.state_epoch,
            leader_epoch=FIRST_LEADER_EPOCH if state is None else state.leader_epoch,
            start_offset=request.start_offset,
            delivery_complete_count=UNKNOWN_COUNT if request.start_offset == UNKNOWN_START else 0,
            create_timestamp=wall_ms,
            write_timestamp=wall_ms,
        )
        return _done(request.key, ShareSnapshotRecord(request.key, value))

    def read(self, request: ReadState) -> Outcome:
        """Read the whole state for a leader. A newer leader epoch is recorded, so that it fences
        earlier leaders after a change of the shard's owner too.
        """
        state = self.of(request.key)
        if state is None:
            code, message = ErrorCode.INVALID_REQUEST, "the share-partition is not initialized"
            return Outcome((), StateRead(request.key, code, error_message=message))
        if request.leader_epoch < state.leader_epoch:
            code, message = ErrorCode.FENCED_LEADER_EPOCH, _leader_fence(state)
            return Outcome((), StateRead(request.key, code, error_message=message))
        reply = StateRead(
            request.key,
            ErrorCode.NONE,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            batches=state.batches,
        )
        if request.leader_epoch == state.leader_epoch:
            return Outcome((), reply)
        update = leader_update(state, request.leader_epoch)
        return Outcome((ShareUpdateRecord(request.key, update),), reply)

    def write(self, request: WriteState, wall_ms: int) -> Outcome:
        """Write a change: as an update, or after ``updates_per_snapshot`` of them as a snapshot."""
        state = self.of(request.key)
        if state is None:
            # A leader writes only after it has read a state: it was deleted since.
            return _refused(request.key, ErrorCode.FENCED_STATE_EPOCH, "the state was deleted")
        if request.state_epoch != state.state_epoch:
            return _refused(request.key, ErrorCode.FENCED_STATE_EPOCH, _state_fence(state))
        if 0 <= request.leader_epoch < state.leader_epoch:
            return _refused(request.key, ErrorCode.FENCED_LEADER_EPOCH, _leader_fence(state))
        problem = _write_problem(request)
        if problem is not None:
            return _refused(request.key, ErrorCode.INVALID_REQUEST, problem)
        after = state.written(request)
        if after.start_offset == UNKNOWN_START or len(after.batches) > BATCHES_MAX:
            message = f"a state has a start offset, and at most {BATCHES_MAX} batches"
            return _refused(request.key, ErrorCode.INVALID_REQUEST, message)
        if state.update_count >= self._updates_per_snapshot:
            return _done(request.key, ShareSnapshotRecord(request.key, after.as_snapshot(wall_ms)))
        return _done(request.key, ShareUpdateRecord(request.key, update_of(state, request)))

    def delete(self, request: DeleteState) -> Outcome:
        """Delete the state; without an error if there is none."""
        if self.of(request.key) is None:
            return Outcome((), StateResult(request.key, ErrorCode.NONE))
        return _done(request.key, ShareSnapshotRecord(request.key, None))

    def summary(self, request: ReadStateSummary) -> Outcome:
        """Read epochs, start offset and count; of a missing state, an unknown start offset."""
        state = self.of(request.key)
        if state is None:
            return Outcome((), StateSummary(request.key, ErrorCode.NONE))
        reply = StateSummary(
            request.key,
            ErrorCode.NONE,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
        )
        return Outcome((), reply)

    def snapshot_of(self, key: SharePartitionKey, wall_ms: int) -> ShareSnapshotRecord | None:
        """Return a snapshot that replaces earlier records of the state; None: it was deleted."""
        state = self.of(key)
        return ShareSnapshotRecord(key, state.as_snapshot(wall_ms)) if state is not None else None

    # -------------------------------------------------------------------- the log

    def replay(self, record: ShareStateRecord) -> None:
        """A record of the log, in log order."""
        key = record.key
        part = key.topic_id, key.partition
        match record:
            case ShareSnapshotRecord(value=None):
                self._forget(key)
            case ShareSnapshotRecord(value=ShareSnapshotValue() as value):
                self._groups.setdefault(key.group_id, {})[part] = from_snapshot(value)
            case ShareUpdateRecord(value=value):
                state = self.of(key)
                if state is not None and value is not None:
                    self._groups[key.group_id][part] = state.updated(value)

    def _forget(self, key: SharePartitionKey) -> None:
        states = self._groups.get(key.group_id, {})
        state = states.pop((key.topic_id, key.partition), None)
        if state is not None:
            self._epoch_floor = max(self._epoch_floor, state.state_epoch + 1)
        if not states:
            self._groups.pop(key.group_id, None)

    def check(self) -> None:
        """Assert every invariant."""
        for states in self._groups.values():
            assert states, "a group without states is remembered"
            for state in states.values():
                state.check()

    def __eq__(self, other: object) -> bool:
        """Compare the states that the logs of both lead to."""
        if not isinstance(other, ShareStates):
            return NotImplemented
        return self._facts() == other._facts()

    __hash__ = None  # type: ignore[assignment]

    def _facts(self) -> object:
        """All but the number of updates: it only decides when the next snapshot is due."""
        return {
            group_id: {part: replace(state, update_count=0) for part, state in states.items()}
            for group_id, states in self._groups.items()
        }


def _write_problem(request: WriteState) -> str | None:
    if request.start_offset < UNKNOWN_START:
        return f"start offset {request.start_offset}"
    if request.delivery_complete_count < UNKNOWN_COUNT:
        return f"delivery complete count {request.delivery_complete_count}"
    if len(request.batches) > BATCHES_MAX:
        return f"{len(request.batches)} state batches; a write has at most {BATCHES_MAX}"
    return next(filter(None, map(_batch_problem, request.batches)), None)


def _batch_problem(batch: StateBatch) -> str | None:
    first, last = batch.first_offset, batch.last_offset
    if not Offset(0) <= first <= last:
        return f"a state batch from offset {first} to {last}"
    if batch.delivery_state not in PERSISTED_STATES:
        return f"offsets {first} to {last} in delivery state {int(batch.delivery_state)}"
    if not 0 <= batch.delivery_count <= DELIVERY_COUNT_MAX:
        return f"offsets {first} to {last} with delivery count {batch.delivery_count}"
    return None


def _state_fence(state: ShareState) -> str:
    return f"the state epoch is {state.state_epoch}: read the state again"


def _leader_fence(state: ShareState) -> str:
    return f"a leader of epoch {state.leader_epoch} has read the state"


def _done(key: SharePartitionKey, record: ShareStateRecord) -> Outcome:
    return Outcome((record,), StateResult(key, ErrorCode.NONE))


def _refused(key: SharePartitionKey, code: ErrorCode, message: str) -> Outcome:
    return Outcome((), StateResult(key, code, error_message=message))
