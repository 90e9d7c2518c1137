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
from tidemark.codec.share_transaction_records import EndNotice, TransactionEndRecord
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import (
    NO_EPOCH,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TopicId,
)
from tidemark.model.share_state import (
    PERSISTED_STATES,
    UNKNOWN_COUNT,
    UNKNOWN_START,
    DeleteState,
    DeliveryState,
    InitializeState,
    PendingBatch,
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

from share_coordinator.core.ended_transactions import EndedTransactions
from share_coordinator.core.pending_batches import (
    Pending,
    may_be_pending,
    transactions_of,
    uncovered,
)
from share_coordinator.core.share_state import (
    ShareState,
    cut_by,
    from_snapshot,
    leader_update,
    update_of,
)

BATCHES_MAX: Final = 20_000
"""Batches of one state: twice the greatest window (group.share.max.partition.max.record.locks), so
that a snapshot fits into a batch of the state topic.
"""
DELIVERY_COUNT_MAX: Final = 2**15 - 1
PRODUCER_EPOCH_MAX: Final = 2**15 - 1
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


class TransactionEnd(NamedTuple):
    """End of the transactions of a producer with an epoch below ``open_from``."""

    producer_id: ProducerId
    open_from: int
    commits: bool


class Ended(NamedTuple):
    """Records to append, and the transactions that held records of share-partitions."""

    records: tuple[TransactionEndRecord, ...] = ()
    notices: tuple[EndNotice, ...] = ()


class ShareStates:
    """Only ``replay`` changes the states; all other methods decide or look up."""

    def __init__(self, updates_per_snapshot: int) -> None:
        assert updates_per_snapshot > 0, updates_per_snapshot
        self._updates_per_snapshot = updates_per_snapshot
        self._groups: dict[str, dict[Part, ShareState]] = {}
        self._epoch_floor = 0
        """State epochs of deleted states are below it, as far as the log shows them."""
        self.ended = EndedTransactions()
        self._holders: dict[ProducerId, set[SharePartitionKey]] = {}
        """Share-partitions with pending acknowledgements, by producer."""
        self._with_letters: set[SharePartitionKey] = set()

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

    @property
    def has_letters(self) -> bool:
        """True if there are dead letters that are not archived yet."""
        return bool(self._with_letters)

    @property
    def with_letters(self) -> tuple[SharePartitionKey, ...]:
        """Share-partitions with dead letters that are not archived yet, in order."""
        return tuple(sorted(self._with_letters))

    def delivered(self, group_id: str) -> dict[Part, int]:
        """Return start offsets of a group, plus the numbers of offsets after them whose delivery is
        complete.
        """
        return {
            part: state.start_offset + max(state.delivery_complete_count, 0)
            for part, state in self.of_group(group_id).items()
            if state.start_offset != UNKNOWN_START
        }

    def has_pending(self, keys: Iterable[SharePartitionKey]) -> bool:
        """True if an open transaction holds records of one of these share-partitions."""
        return any(state.pending for key in keys if (state := self.of(key)) is not None)

    def leader_epoch(self, key: SharePartitionKey) -> LeaderEpoch:
        """Return the greatest leader epoch that has read or written a state; NO_EPOCH if there is
        none.
        """
        state = self.of(key)
        return NO_EPOCH if state is None else state.leader_epoch

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

    def read(self, request: ReadState, wall_ms: int) -> Outcome:
        """Read the whole state for a leader. A newer leader epoch is recorded, so that it fences
        earlier leaders after a change of the shard's owner too. What the leader's log has lost is
        cut off the state, in the same record: a later leader could not find it any longer.
        """
        state = self.of(request.key)
        if state is None:
            code, message = ErrorCode.INVALID_REQUEST, "the share-partition is not initialized"
            return Outcome((), StateRead(request.key, code, error_message=message))
        if request.leader_epoch < state.leader_epoch:
            code, message = ErrorCode.FENCED_LEADER_EPOCH, _leader_fence(state)
            return Outcome((), StateRead(request.key, code, error_message=message))
        if request.leader_epoch == state.leader_epoch:
            return Outcome((), _read_reply(request.key, state))
        cut = cut_by(state, request)
        if cut is not None:
            snapshot = ShareSnapshotRecord(request.key, cut.as_snapshot(wall_ms))
            return Outcome((snapshot,), _read_reply(request.key, cut))
        update = ShareUpdateRecord(request.key, leader_update(state, request))
        return Outcome((update,), _read_reply(request.key, state))

    def write(self, request: WriteState, wall_ms: int) -> Outcome:
        """Write a change: as an update, or after ``updates_per_snapshot`` of them as a snapshot.
        Pending batches of transactions that are refused are left out.
        """
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
        refused = frozenset(
            one.transaction for one in request.pending if not self._may_be_pending(state, one)
        )
        pending = tuple(one for one in request.pending if one.transaction not in refused)
        write = replace(request, pending=pending)
        after = state.written(write)
        if (
            after.start_offset == UNKNOWN_START
            or len(after.batches) + len(after.pending) > BATCHES_MAX
        ):
            message = f"a state has a start offset, and at most {BATCHES_MAX} batches"
            return _refused(request.key, ErrorCode.INVALID_REQUEST, message)
        record: ShareStateRecord = ShareUpdateRecord(request.key, update_of(state, write))
        if state.update_count >= self._updates_per_snapshot:
            record = ShareSnapshotRecord(request.key, after.as_snapshot(wall_ms))
        return Outcome((record,), StateResult(request.key, ErrorCode.NONE, refused))

    def _may_be_pending(self, state: ShareState, batch: PendingBatch) -> bool:
        return not self.ended.is_ended(batch.transaction) and may_be_pending(
            batch, state.batches, state.pending, state.start_offset
        )

    def end_transaction(self, end: TransactionEnd, wall_ms: int) -> Ended:
        """End a transaction in all share-partitions. A repeated end writes nothing."""
        if end.open_from <= self.ended.open_from(end.producer_id):
            return Ended()
        held: dict[ProducerEpoch, list[SharePartitionKey]] = {}
        for key in sorted(self._holders.get(end.producer_id, ())):
            state = self.of(key)
            assert state is not None, f"{key} holds records and has no state"
            for transaction in transactions_of(state.pending_below(end.producer_id, end.open_from)):
                held.setdefault(transaction.producer_epoch, []).append(key)
        notices = tuple(
            EndNotice(epoch, end.commits, wall_ms, tuple(held[epoch])) for epoch in sorted(held)
        )
        value = self.ended.end_of(
            end.producer_id, end.open_from, notices, commits=end.commits, wall_ms=wall_ms
        )
        return Ended((TransactionEndRecord(end.producer_id, value),), notices)

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

    def replay(self, record: ShareStateRecord | TransactionEndRecord) -> None:
        """A record of the log, in log order."""
        if isinstance(record, TransactionEndRecord):
            self._replay_end(record)
            return
        key = record.key
        match record:
            case ShareSnapshotRecord(value=None):
                self._forget(key)
            case ShareSnapshotRecord(value=ShareSnapshotValue() as value):
                self._put(key, from_snapshot(value))
            case ShareUpdateRecord(value=value):
                state = self.of(key)
                if state is not None and value is not None:
                    self._put(key, state.updated(value))

    def _replay_end(self, record: TransactionEndRecord) -> None:
        end, producer_id = record.value, record.producer_id
        if end is not None:
            for key in tuple(self._holders.get(producer_id, ())):
                state = self.of(key)
                assert state is not None, f"{key} holds records and has no state"
                self._put(key, state.ended(producer_id, end.open_from, commits=end.commits))
        self.ended.replay(record)

    def _put(self, key: SharePartitionKey, state: ShareState) -> None:
        states = self._groups.setdefault(key.group_id, {})
        part = key.topic_id, key.partition
        before = states.get(part)
        states[part] = state
        self._note_holders(key, before.pending if before is not None else (), state.pending)
        if state.has_letters:
            self._with_letters.add(key)
        else:
            self._with_letters.discard(key)

    def _note_holders(self, key: SharePartitionKey, before: Pending, after: Pending) -> None:
        if before == after:
            return
        for producer_id in {one.transaction.producer_id for one in before}:
            holders = self._holders[producer_id]
            holders.discard(key)
            if not holders:
                del self._holders[producer_id]
        for producer_id in {one.transaction.producer_id for one in after}:
            self._holders.setdefault(producer_id, set()).add(key)

    def _forget(self, key: SharePartitionKey) -> None:
        states = self._groups.get(key.group_id, {})
        state = states.pop((key.topic_id, key.partition), None)
        if state is not None:
            self._epoch_floor = max(self._epoch_floor, state.state_epoch + 1)
            self._note_holders(key, state.pending, ())
            self._with_letters.discard(key)
        if not states:
            self._groups.pop(key.group_id, None)

    def check(self) -> None:
        """Assert every invariant."""
        for states in self._groups.values():
            assert states, "a group without states is remembered"
            for state in states.values():
                state.check()
        holders: dict[ProducerId, set[SharePartitionKey]] = {}
        for key in self.share_partitions():
            for one in self._groups[key.group_id][key.topic_id, key.partition].pending:
                assert not self.ended.is_ended(one.transaction), f"{key} holds {one}, which ended"
                holders.setdefault(one.transaction.producer_id, set()).add(key)
        assert holders == self._holders, "share-partitions with pending acknowledgements"
        with_letters = {key for key in self.share_partitions() if self._has_letters(key)}
        assert with_letters == self._with_letters, "share-partitions with dead letters"

    def _has_letters(self, key: SharePartitionKey) -> bool:
        state = self.of(key)
        return state is not None and state.has_letters

    def __eq__(self, other: object) -> bool:
        """Compare the states that the logs of both lead to."""
        if not isinstance(other, ShareStates):
            return NotImplemented
        return self._facts() == other._facts()

    __hash__ = None  # type: ignore[assignment]

    def _facts(self) -> object:
        """All but the number of updates: it only decides when the next snapshot is due."""
        states = {
            group_id: {part: replace(state, update_count=0) for part, state in of_group.items()}
            for group_id, of_group in self._groups.items()
        }
        return states, self.ended.facts()


def _read_reply(key: SharePartitionKey, state: ShareState) -> StateRead:
    return StateRead(
        key,
        ErrorCode.NONE,
        state_epoch=state.state_epoch,
        start_offset=state.start_offset,
        batches=uncovered(state.batches, state.pending),
        pending=state.pending,
    )


def _write_problem(request: WriteState) -> str | None:
    if request.start_offset < UNKNOWN_START:
        return f"start offset {request.start_offset}"
    if request.delivery_complete_count < UNKNOWN_COUNT:
        return f"delivery complete count {request.delivery_complete_count}"
    count = len(request.batches) + len(request.pending)
    if count > BATCHES_MAX:
        return f"{count} state batches; a write has at most {BATCHES_MAX}"
    problems = (*map(_batch_problem, request.batches), *map(_pending_problem, request.pending))
    return next(filter(None, problems), None)


def _batch_problem(batch: StateBatch) -> str | None:
    first, last = batch.first_offset, batch.last_offset
    if not Offset(0) <= first <= last:
        return f"a state batch from offset {first} to {last}"
    if batch.delivery_state not in PERSISTED_STATES:
        return f"offsets {first} to {last} in delivery state {int(batch.delivery_state)}"
    if not 0 <= batch.delivery_count <= DELIVERY_COUNT_MAX:
        return f"offsets {first} to {last} with delivery count {batch.delivery_count}"
    return None


def _pending_problem(batch: PendingBatch) -> str | None:
    first, last = batch.first_offset, batch.last_offset
    producer_id, producer_epoch = batch.transaction
    if batch.outcome is DeliveryState.AVAILABLE:
        return f"offsets {first} to {last} are pending, to be released by a commit"
    if batch.before is DeliveryState.ARCHIVING and batch.outcome is not DeliveryState.ARCHIVED:
        return f"dead letters {first} to {last} are pending for state {batch.outcome.name}"
    if producer_id < 0 or not 0 <= producer_epoch <= PRODUCER_EPOCH_MAX:
        return f"offsets {first} to {last} pending for producer {producer_id}, {producer_epoch}"
    return _batch_problem(StateBatch(first, last, batch.outcome, batch.delivery_count))


def _state_fence(state: ShareState) -> str:
    return f"the state epoch is {state.state_epoch}: read the state again"


def _leader_fence(state: ShareState) -> str:
    return f"a leader of epoch {state.leader_epoch} has read the state"


def _done(key: SharePartitionKey, record: ShareStateRecord) -> Outcome:
    return Outcome((record,), StateResult(key, ErrorCode.NONE))


def _refused(key: SharePartitionKey, code: ErrorCode, message: str) -> Outcome:
    return Outcome((), StateResult(key, code, error_message=message))
