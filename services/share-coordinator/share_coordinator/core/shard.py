"""ShareShard: share groups and the state of their share-partitions, in one partition of
``__share_group_state``.

A group and all its state are in one shard, by the hash of the group's id. So a share-partition
begins with the assignment that first names it, and a reset or a deletion is one decision.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import starmap
from typing import Any, Final, TypeAlias

from tidemark.codec.share_group_records import ShareGroupRecord
from tidemark.codec.share_records import ShareRecord, ShareSnapshotRecord, ShareUpdateRecord
from tidemark.codec.share_transaction_records import EndNotice, TransactionEndRecord
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs, Offset, TopicId
from tidemark.model.share_state import SharePartitionKey, TransactionKey
from tidemark.model.topics import Topics
from tidemark.protocol.member_timers import MemberTimers
from tidemark.protocol.shard import Decision, Moment, Writer

from share_coordinator.core import description, group_offsets, initialization, state_requests
from share_coordinator.core.admission import Refused, request_problem
from share_coordinator.core.deleted_topics import MissingTopics
from share_coordinator.core.effects import (
    Answer,
    DropWindows,
    Effect,
    LoadWindows,
    PruneLog,
    ReleaseGroupId,
    ReserveGroupId,
    TransactionsEnded,
)
from share_coordinator.core.group import Around, ShareGroup, refusal
from share_coordinator.core.group_state import KnownTopic
from share_coordinator.core.live_offsets import LiveKey
from share_coordinator.core.member import JOINS
from share_coordinator.core.requests import (
    AlterOffsets,
    AlterOffsetsReply,
    AskStates,
    DeleteOffsets,
    DeleteOffsetsReply,
    DeleteShareGroup,
    DeleteShareGroupReply,
    DescribeOffsets,
    DescribeOffsetsReply,
    DescribeShareGroup,
    EndTransaction,
    EndTransactionReply,
    GroupIdReserved,
    LagsMeasured,
    LeadersNotified,
    ListGroupIds,
    ListGroupIdsReply,
    ListShareGroups,
    Reply,
    Request,
    ShareGroupHeartbeat,
    TopicsDeleted,
)
from share_coordinator.core.reservations import Parked, Reservations
from share_coordinator.core.settings import ShareSettings
from share_coordinator.core.share_states import Part, ShareStates, TransactionEnd
from share_coordinator.core.statistics import ShareStatistics, statistics_of
from share_coordinator.core.upkeep import Upkeep

ShareDecision: TypeAlias = Decision[ShareRecord, Effect]
"""For annotations. Python cannot make a frozen generic through its alias: call ``Decision``."""

MakeShard: TypeAlias = Callable[[], "ShareShard"]
"""Creates a shard that has replayed nothing."""

_NON_EMPTY: Final = "the group has members: stop them first"


class ShareShard:
    """Implements ``tidemark.protocol.shard.Shard``."""

    def __init__(
        self,
        settings: ShareSettings,
        topics: Callable[[], Topics],
        configs_of: Callable[[str], Mapping[str, str]] = lambda _: {},
    ) -> None:
        """``configs_of``: keys that a group sets for itself."""
        self._settings = settings
        self._topics = topics
        self._configs_of = configs_of
        self._groups: dict[str, ShareGroup] = {}
        updates = settings.share_coordinator_snapshot_update_records_per_snapshot
        self._states = ShareStates(updates)
        self._deadlines = MemberTimers()
        """Deadlines of groups, by group id."""
        self._reservations = Reservations()
        self._ready: deque[Parked] = deque()
        """Heartbeats whose group's id is reserved."""
        self._touched: set[str] = set()
        """Groups whose deadline is to be looked at."""
        self._upkeep = Upkeep(settings)
        self._missing = MissingTopics()
        self._serving = False
        self._deciders: dict[type, Callable[[int, Any, Moment], ShareDecision]] = {
            ShareGroupHeartbeat: self._heartbeat,
            GroupIdReserved: self._id_reserved,
            AskStates: self._ask_states,
            EndTransaction: self._end_transaction,
            LeadersNotified: self._leaders_notified,
            DescribeShareGroup: self._describe,
            ListGroupIds: self._list_ids,
            ListShareGroups: self._list,
            DeleteShareGroup: self._delete,
            DescribeOffsets: self._describe_offsets,
            AlterOffsets: self._alter_offsets,
            DeleteOffsets: self._delete_offsets,
            TopicsDeleted: self._topics_deleted,
            LagsMeasured: self._lags_measured,
        }

    # -- the shard's interface

    def decide(self, request_id: int, request: Request, now: Moment) -> ShareDecision:
        """Judge one request. GroupIdReserved, TopicsDeleted, LagsMeasured and LeadersNotified have
        no answer, whatever their ``request_id``; a heartbeat may be answered by a later decision.
        """
        assert self._serving, request
        return self._deciders[type(request)](request_id, request, now)

    def wake(self, now: Moment) -> ShareDecision:
        """Do one thing that is due, so that its records are replayed before the next: a heartbeat
        whose group's id has been reserved, a group's session or target, upkeep of the log.
        """
        if self._ready:
            return self._judge(*self._ready.popleft(), now)
        self._schedule()
        due = self._deadlines.first_expired(now.instant)
        if due is not None:
            group = self._groups[due]
            self._touched.add(group.group_id)
            return Decision(tuple(group.wake(self._around(group.group_id, now))))
        if self._states.has_letters and self._upkeep.letters_are_due(now):
            return Decision((), (LoadWindows(self._states.with_letters),))
        cold = (self._again(key, now) for key in self._upkeep.cold_keys(now))
        again = [record for record in cold if record is not None]
        if again or not self._upkeep.prune_is_due(now):
            return Decision(tuple(again))
        before = self._upkeep.prunable()
        gone = self._missing.look(self._held_topics(), self._topics())
        prune = (PruneLog(before),) if before is not None else ()
        ended = self._states.ended
        ends = (*ended.settled(now.wall), *ended.expired(now.wall))
        return Decision((*self._forget_topics(gone), *ends), prune)

    def next_deadline(self) -> InstantMs | None:
        """Instant at which to call ``wake``; None while the shard does not serve."""
        if not self._serving:
            return None
        if self._ready:
            return InstantMs(0)
        self._schedule()
        group_due = self._deadlines.next()
        upkeep_due = self._upkeep.next_deadline(has_letters=self._states.has_letters)
        return upkeep_due if group_due is None else min(group_due, upkeep_due)

    def replay(self, record: ShareRecord, writer: Writer | None) -> None:
        """A record of the log."""
        assert writer is None, "no transaction writes to __share_group_state"
        if isinstance(record, ShareSnapshotRecord | ShareUpdateRecord | TransactionEndRecord):
            self._states.replay(record)
        else:
            self._replay_group(record)

    def replay_end(self, writer: Writer, *, commits: bool) -> None:
        """Never: no transaction writes to ``__share_group_state``."""
        raise AssertionError(f"a transaction of {writer} ended here, commits={commits}")

    def located(self, record: ShareRecord, offset: Offset) -> None:
        """A record that was replayed is committed at this offset of the log. In log order, those
        that a load replays included.
        """
        self._upkeep.located(record, offset)

    def loaded(self, now: Moment) -> ShareDecision:
        """Start to serve after the log is replayed: members have a whole session to find this
        owner. A decision of which the log has only a part is completed or undone. Leaders are
        notified again of transactions that ended: the last owner may not have done it.
        """
        assert not self._serving, "loaded twice"
        self._serving = True
        self._upkeep.start(now)
        for group in self._groups.values():
            group.loaded(self._around(group.group_id, now))
            self._touched.add(group.group_id)
        notices = tuple(starmap(self._notice, self._states.ended.unanswered(now.wall)))
        return Decision(tuple(self._mended()), notices)

    def delivered(self) -> dict[str, dict[Part, int]]:
        """Return, for groups with members, the log end at which the lag of each share-partition
        would be 0. Share-partitions without a start offset are left out.
        """
        return {
            group_id: self._states.delivered(group_id)
            for group_id, group in self._groups.items()
            if not group.is_empty
        }

    def statistics(self) -> ShareStatistics:
        """Return counts for metrics."""
        groups = [group.logged for group in self._groups.values()]
        return statistics_of(groups, self._states, self._upkeep)

    def check(self) -> None:
        """Assert every invariant."""
        self._states.check()
        self._upkeep.check()
        self._deadlines.check()
        for group_id, group in self._groups.items():
            assert group.group_id == group_id
            assert not group.logged.is_nothing, f"{group_id} is remembered for nothing"
            group.check()
        if self._serving:
            assert not self._mended(), "a state without its group, or the other way round"

    def __eq__(self, other: object) -> bool:
        """Compare the states that the logs of both lead to."""
        if not isinstance(other, ShareShard):
            return NotImplemented
        return self._facts() == other._facts()

    __hash__ = None  # type: ignore[assignment]

    def _facts(self) -> tuple[object, ...]:
        return {name: group.logged for name, group in self._groups.items()}, self._states

    # -- groups

    def _group(self, group_id: str) -> ShareGroup | None:
        group = self._groups.get(group_id)
        return group if group is not None and group.logged.exists else None

    def _around(self, group_id: str, now: Moment) -> Around:
        config = self._settings.options.of_group(self._configs_of(group_id))
        return Around(now, self._topics(), self._states, config, self._settings)

    def _schedule(self) -> None:
        """Set the deadlines of groups that a decision or a record changed, once the records of the
        decision are replayed: they may make a target due.
        """
        for group_id in self._touched:
            due = self._groups[group_id].next_deadline()
            if due is None:
                self._deadlines.stop(group_id)
            else:
                self._deadlines.start(group_id, due)
        self._touched.clear()

    def _replay_group(self, record: ShareGroupRecord) -> None:
        group = self._groups.get(record.group_id)
        if group is None:
            group = self._groups[record.group_id] = ShareGroup(record.group_id)
        group.replay(record)
        self._touched.add(record.group_id)
        if group.logged.is_nothing:
            self._forget(record.group_id)

    def _forget(self, group_id: str) -> None:
        del self._groups[group_id]
        self._touched.discard(group_id)
        self._deadlines.stop(group_id)

    def _heartbeat(
        self, request_id: int, request: ShareGroupHeartbeat, now: Moment
    ) -> ShareDecision:
        if self._group(request.group_id) is None:
            return self._found(request_id, request)
        return self._judge(request_id, request, now)

    def _found(self, request_id: int, request: ShareGroupHeartbeat) -> ShareDecision:
        """A group begins with its first member, once its id is reserved."""
        problem = request_problem(request)
        if problem is None and request.member_epoch != JOINS:
            message = description.not_found_message(request.group_id)
            problem = Refused(ErrorCode.GROUP_ID_NOT_FOUND, message)
        if problem is None and self._reservations.is_full:
            message = "too many new groups wait for their ids to be reserved"
            problem = Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
        if problem is not None:
            return _answer(request_id, refusal(problem)[1])
        if self._reservations.park(request_id, request):
            return Decision(effects=(ReserveGroupId(request.group_id),))
        return Decision()

    def _judge(self, request_id: int, request: ShareGroupHeartbeat, now: Moment) -> ShareDecision:
        group = self._groups.get(request.group_id)
        if group is None:
            group = self._groups[request.group_id] = ShareGroup(request.group_id)
        records, reply = group.heartbeat(request, self._around(request.group_id, now))
        self._touched.add(request.group_id)
        if group.logged.is_nothing and not records:
            self._forget(request.group_id)
        return Decision(tuple(records), (Answer(request_id, reply),))

    def _id_reserved(self, _: int, request: GroupIdReserved, now: Moment) -> ShareDecision:
        parked = self._reservations.take(request.group_id)
        if request.error_code is ErrorCode.NONE:
            self._ready.extend(parked)
            return self._judge(*self._ready.popleft(), now) if self._ready else Decision()
        refused = Refused(request.error_code, request.error_message or "the group id is taken")
        return Decision(effects=[Answer(one, refusal(refused)[1]) for one, _ in parked])

    # -- share-partitions

    def _ask_states(self, request_id: int, request: AskStates, now: Moment) -> ShareDecision:
        if self._group(request.group_id) is None:
            code, message = _not_found(request.group_id)
            return _answer(request_id, state_requests.refused(request, code, message))
        records, reply = state_requests.answer(self._states, request, self._topics(), now.wall)
        return Decision(tuple(records), (Answer(request_id, reply),))

    def _end_transaction(
        self, request_id: int, request: EndTransaction, now: Moment
    ) -> ShareDecision:
        end = TransactionEnd(request.producer_id, request.open_from, request.commits)
        ended = self._states.end_transaction(end, now.wall)
        notices = (
            self._notice(TransactionKey(end.producer_id, one.producer_epoch), one)
            for one in ended.notices
        )
        return Decision(ended.records, (Answer(request_id, EndTransactionReply()), *notices))

    def _notice(self, transaction: TransactionKey, ended: EndNotice) -> TransactionsEnded:
        epochs = tuple(map(self._states.leader_epoch, ended.held))
        return TransactionsEnded(transaction, ended.commits, ended.held, epochs)

    def _leaders_notified(self, _: int, request: LeadersNotified, __: Moment) -> ShareDecision:
        self._states.ended.notified(request.transaction)
        return Decision()

    # -- administration

    def _describe(self, request_id: int, request: DescribeShareGroup, _: Moment) -> ShareDecision:
        group = self._group(request.group_id)
        if group is None:
            return _answer(request_id, description.not_found(request.group_id))
        name = self._settings.assignor_name
        return _answer(request_id, description.describe(group.logged, self._topics(), name))

    def _list_ids(self, request_id: int, _: ListGroupIds, __: Moment) -> ShareDecision:
        return _answer(request_id, ListGroupIdsReply(tuple(self._groups)))

    def _list(self, request_id: int, request: ListShareGroups, _: Moment) -> ShareDecision:
        found = (self._groups.get(group_id) for group_id in request.group_ids)
        groups = (group.logged for group in found if group is not None)
        return _answer(request_id, description.listed(groups, request.states))

    def _delete(self, request_id: int, request: DeleteShareGroup, _: Moment) -> ShareDecision:
        group = self._group(request.group_id)
        if group is None:
            return _answer(request_id, DeleteShareGroupReply(*_not_found(request.group_id)))
        if not group.is_empty:
            code = ErrorCode.NON_EMPTY_GROUP
            return _answer(request_id, DeleteShareGroupReply(code, _NON_EMPTY))
        topic_ids = {topic_id for topic_id, _ in self._states.of_group(request.group_id)}
        keys = group_offsets.keys_of(request.group_id, self._states, topic_ids)
        if self._states.has_pending(keys):
            code = ErrorCode.UNSTABLE_OFFSET_COMMIT
            return _answer(request_id, DeleteShareGroupReply(code, group_offsets.HELD))
        return Decision(
            (
                *initialization.delete(group.logged, self._states, topic_ids),
                *group.logged.group_tombstones(),
            ),
            (
                *_drop(keys),
                ReleaseGroupId(
                    request.group_id,
                    then=Answer(request_id, DeleteShareGroupReply(ErrorCode.NONE)),
                ),
            ),
        )

    def _describe_offsets(
        self, request_id: int, request: DescribeOffsets, _: Moment
    ) -> ShareDecision:
        group = self._group(request.group_id)
        if group is None:
            return _answer(request_id, DescribeOffsetsReply(*_not_found(request.group_id)))
        return _answer(request_id, group_offsets.describe(group.logged, self._states, request))

    def _alter_offsets(self, request_id: int, request: AlterOffsets, now: Moment) -> ShareDecision:
        group = self._group(request.group_id)
        if group is None:
            return _answer(request_id, AlterOffsetsReply(*_not_found(request.group_id)))
        if not group.is_empty:
            return _answer(request_id, AlterOffsetsReply(ErrorCode.NON_EMPTY_GROUP, _NON_EMPTY))
        changed = group_offsets.alter(group.logged, self._states, request, self._topics(), now.wall)
        return _changed(request_id, changed)

    def _delete_offsets(self, request_id: int, request: DeleteOffsets, _: Moment) -> ShareDecision:
        group = self._group(request.group_id)
        if group is None:
            return _answer(request_id, DeleteOffsetsReply(*_not_found(request.group_id)))
        if not group.is_empty:
            return _answer(request_id, DeleteOffsetsReply(ErrorCode.NON_EMPTY_GROUP, _NON_EMPTY))
        return _changed(request_id, group_offsets.delete(group.logged, self._states, request))

    # -- inputs from elsewhere

    def _topics_deleted(self, _: int, request: TopicsDeleted, __: Moment) -> ShareDecision:
        return Decision(tuple(self._forget_topics(request.topic_ids)))

    def _lags_measured(self, _: int, request: LagsMeasured, now: Moment) -> ShareDecision:
        group = self._group(request.group_id)
        if group is None:
            return Decision()
        return Decision(tuple(group.measured(request.lags, self._around(group.group_id, now))))

    # -- upkeep

    def _again(self, key: LiveKey, now: Moment) -> ShareRecord | None:
        """Return a copy of a live record; None if a record that is not committed yet deletes it."""
        if isinstance(key, SharePartitionKey):
            return self._states.snapshot_of(key, now.wall)
        if isinstance(key, int):
            return self._states.ended.record_of(key)
        kind, group_id, member_id = key
        group = self._groups.get(group_id)
        return group.logged.record_of(kind, member_id) if group is not None else None

    def _mended(self) -> list[ShareRecord]:
        """Return records that delete states which no group lists, and the rest of topics of which
        a group lists missing states.
        """
        records: list[ShareRecord] = list(
            initialization.unlisted(self._states, self._listed_topics)
        )
        for group in self._groups.values():
            broken = initialization.broken_topics(group.logged, self._states)
            records += initialization.delete(group.logged, self._states, broken)
        return records

    def _listed_topics(self, group_id: str) -> Mapping[TopicId, KnownTopic]:
        group = self._groups.get(group_id)
        return group.logged.topics if group is not None else {}

    def _held_topics(self) -> Iterable[TopicId]:
        return (topic_id for group in self._groups.values() for topic_id in group.logged.topics)

    def _forget_topics(self, topic_ids: Iterable[TopicId]) -> list[ShareRecord]:
        gone = frozenset(topic_ids)
        return [
            record
            for group in self._groups.values()
            if not gone.isdisjoint(group.logged.topics)
            for record in initialization.delete(group.logged, self._states, gone)
        ]


def _answer(request_id: int, reply: Reply) -> ShareDecision:
    return Decision(effects=(Answer(request_id, reply),))


def _changed(request_id: int, changed: group_offsets.Changed) -> ShareDecision:
    return Decision(
        tuple(changed.records), (Answer(request_id, changed.reply), *_drop(changed.keys))
    )


def _drop(keys: Sequence[SharePartitionKey]) -> tuple[DropWindows, ...]:
    return (DropWindows(tuple(keys)),) if keys else ()


def _not_found(group_id: str) -> tuple[ErrorCode, str]:
    return ErrorCode.GROUP_ID_NOT_FOUND, description.not_found_message(group_id)
