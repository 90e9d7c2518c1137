"""GroupShard: all groups and offsets of one partition of ``__consumer_offsets``.

It routes each request to the group it concerns. A group follows the classic protocol or KIP-848. A
group without members changes its protocol when a member joins with the other one; the records of
the old protocol end with tombstones in the same batch. `GroupTable` converts groups with members. A
group id with committed offsets alone is a group too, of consumers that assign partitions
themselves.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from tidemark.codec.group_records import GroupMetadataRecord, GroupRecord, OffsetCommitRecord
from tidemark.model.authorization import Requester
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs, TopicId
from tidemark.protocol.shard import Decision, Moment, Writer

from broker.core.groups import group_rules
from broker.core.groups.classic import member_requests
from broker.core.groups.classic.deadlines import Deadlines, Key, Kind
from broker.core.groups.classic.group import ClassicGroup
from broker.core.groups.classic.joins import Joins, refuse
from broker.core.groups.classic.rebalance import Rebalance
from broker.core.groups.classic.states import GroupState
from broker.core.groups.consumer.group import ConsumerGroup
from broker.core.groups.effects import Answer, Outcome
from broker.core.groups.group_rules import AnyGroup
from broker.core.groups.group_table import GroupTable, not_a_consumer_group
from broker.core.groups.name_limits import too_long
from broker.core.groups.offsets import Offsets
from broker.core.groups.requests import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeReply,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    DeleteGroup,
    DeleteGroupReply,
    DescribeGroup,
    DescribeGroupReply,
    GroupReply,
    GroupRequest,
    GroupSettings,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    LeaveGroup,
    LeaveGroupReply,
    ListedGroup,
    ListGroups,
    ListGroupsReply,
    OffsetCommit,
    OffsetCommitReply,
    OffsetDelete,
    OffsetDeleteReply,
    OffsetFetch,
    OffsetFetchReply,
    SyncGroup,
    SyncGroupReply,
    Topics,
    TopicsDeleted,
    TopicsDeletedReply,
    TxnOffsetCommit,
)

GroupDecision = Decision[GroupRecord, Answer]

EXPIRED_AT_ONCE_MAX: Final = 1_000
"""Tombstones written in one decision, except that a group's tombstones are never split. The rest of
the expired offsets follow in later decisions, so that other requests reach the log between them.
"""

_EXPIRY: Final = Key(Kind.EXPIRY, "")
_JOINS: Final = 0
"""Member epoch in the heartbeat that joins a KIP-848 group."""


class GroupShard:
    """One shard (`tidemark.protocol.shard.Shard`); created empty, then loaded from the log."""

    def __init__(
        self,
        settings: GroupSettings,
        topics: Callable[[], Topics],
        configs_of: Callable[[str], Mapping[str, str]] = lambda _: {},
        may_describe: Callable[[Requester, str], bool] = lambda *_: True,
    ) -> None:
        """Create an empty shard; ``configs_of`` returns the configs of a KIP-848 group,
        ``may_describe`` if a requester may describe the topic of a name.
        """
        self._settings = settings
        self._topics = topics
        self._configs_of = configs_of
        self._may_describe = may_describe
        self._offsets = Offsets(settings)
        self._deadlines = Deadlines()
        self._rebalance = Rebalance(settings, self._deadlines)
        self._table = GroupTable(settings, topics, self._deadlines, self._rebalance)
        self._groups = self._table.groups
        self._joins = Joins(settings, self._rebalance)
        self._deciders: dict[type, Callable[[int, Any, Moment, Outcome], GroupReply | None]] = {
            JoinGroup: self._join,
            SyncGroup: self._sync,
            Heartbeat: self._heartbeat,
            LeaveGroup: self._leave,
            OffsetCommit: self._commit,
            TxnOffsetCommit: self._commit_in_transaction,
            OffsetFetch: self._fetch,
            OffsetDelete: self._delete_offsets,
            TopicsDeleted: self._topics_deleted,
            DescribeGroup: self._describe,
            ListGroups: self._list,
            DeleteGroup: self._delete,
            ConsumerGroupHeartbeat: self._consumer_heartbeat,
            ConsumerGroupDescribe: self._consumer_describe,
        }

    # -- the shard's interface

    def decide(self, request_id: int, request: GroupRequest, now: Moment) -> GroupDecision:
        """Decide one request. JoinGroup and SyncGroup may be answered by a later decision."""
        out = Outcome()
        decide = self._deciders[type(request)]
        reply = too_long(request) or decide(request_id, request, now, out)
        if reply is not None:
            out.answer(request_id, reply, group_rules.confirmed_by(request, reply))
        return out.decision()

    def wake(self, now: Moment) -> GroupDecision:
        """End one session or rebalance phase that is due, or expire old offsets.

        Each call handles one group, so that the next one sees its records replayed.
        """
        out = Outcome()
        key = self._deadlines.take_due(now.instant)
        if key is None:
            return out.decision()
        if key.kind is Kind.EXPIRY:
            self._expire_offsets(now, out)
            return out.decision()
        group = self._groups.get(key.group_id)
        if isinstance(group, ConsumerGroup):
            out.records.extend(group.wake(now))
            if out.records or not self._table.maybe_downgrade(group, now, out):
                self._table.schedule(group)
        elif isinstance(group, ClassicGroup):
            self._wake_classic(group, key, now, out)
        return out.decision()

    def next_deadline(self) -> InstantMs | None:
        """Return a time not later than the first deadline; it may be earlier."""
        return self._deadlines.next()

    def replay(self, record: GroupRecord, writer: Writer | None) -> None:
        """Apply a record of the log."""
        match record:
            case OffsetCommitRecord():
                self._offsets.replay(record, writer)
            case GroupMetadataRecord():
                self._table.replay_classic(record)
            case _:
                self._table.replay_consumer(record)

    def replay_end(self, writer: Writer, *, commits: bool) -> None:
        """End a transaction: its pending offsets are committed or dropped."""
        self._offsets.replay_end(writer, commits=commits)

    def loaded(self, now: Moment) -> GroupDecision:
        """Start a new session for every member in the log, since none could send heartbeats
        meanwhile. Drop offsets of topics that were deleted meanwhile.
        """
        out = Outcome()
        for group in list(self._groups.values()):
            if isinstance(group, ConsumerGroup):
                group.loaded(now, self._settings_of(group.group_id))
                self._table.schedule(group)
                continue
            for member in group.members.values():
                self._rebalance.renew_session(group, member, now)
            if group.must_join_again or len(group.members) > self._settings.group_max_size:
                self._rebalance.prepare(group, now, out)
        self._schedule_expiry(now)
        out.records.extend(self._table.leftovers())
        out.records.extend(self._offsets_of_unknown_topics())
        return out.decision()

    @property
    def state(self) -> tuple[Mapping[str, AnyGroup], Offsets]:
        """Groups by id, and offsets, for readers; they change nothing."""
        return self._groups, self._offsets

    def has_group(self, group_id: str) -> bool:
        """True if a group has the id, or offsets are committed for it."""
        return self._group(group_id) is not None

    def check(self) -> None:
        """Assert every invariant."""
        self._offsets.check()
        self._table.check()

    # -- finding groups

    def _group(self, group_id: str) -> AnyGroup | None:
        """Return a group. An id that has offsets alone is a classic group without members."""
        group = self._groups.get(group_id)
        if group is None and self._offsets.has_any(group_id):
            return ClassicGroup(group_id)
        return group

    def _classic(self, group_id: str) -> ClassicGroup | None:
        group = self._group(group_id)
        return group if isinstance(group, ClassicGroup) else None

    # -- membership, classic protocol

    def _join(self, request_id: int, request: JoinGroup, now: Moment, out: Outcome) -> None:
        refused = self._joins.refusal(request)
        if refused is not None:
            refuse(out, request_id, refused, request.member_id)
            return
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            if not group.is_empty:
                self._join_consumer_group(group, request_id, request, now, out)
                return
            tombstones = group.tombstones()
            group = ClassicGroup(request.group_id)
            self._joins.join(group, request_id, request, now, out)
            if group.is_disposable:
                return
            out.records[:0] = tombstones
            self._table.unschedule(request.group_id)
        else:
            group = group or ClassicGroup(request.group_id)
            self._joins.join(group, request_id, request, now, out)
        self._groups[request.group_id] = group
        self._table.forget_if_disposable(group)

    def _join_consumer_group(
        self,
        group: ConsumerGroup,
        request_id: int,
        request: JoinGroup,
        now: Moment,
        out: Outcome,
    ) -> None:
        settings = self._settings_of(request.group_id)
        records, reply = group.join(request, now, self._topics(), settings)
        out.records.extend(records)
        out.answer(request_id, reply)
        self._table.schedule(group)

    def _sync(
        self, request_id: int, request: SyncGroup, now: Moment, out: Outcome
    ) -> SyncGroupReply | None:
        if not request.group_id:
            return SyncGroupReply(error_code=ErrorCode.INVALID_GROUP_ID)
        group = self._group(request.group_id)
        if isinstance(group, ConsumerGroup):
            reply = group.sync(request, now, self._topics(), self._settings)
            self._table.schedule(group)
            return reply
        if group is None:
            return SyncGroupReply(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        member_requests.sync(self._rebalance, group, request_id, request, now, out)
        return None

    def _heartbeat(self, _: int, request: Heartbeat, now: Moment, out: Outcome) -> HeartbeatReply:
        if not request.group_id:
            return HeartbeatReply(ErrorCode.INVALID_GROUP_ID)
        group = self._group(request.group_id)
        if isinstance(group, ConsumerGroup):
            records, reply = group.classic_heartbeat(request, now, self._topics(), self._settings)
            out.records.extend(records)
            self._table.schedule(group)
            return reply
        if group is None:
            return HeartbeatReply(ErrorCode.UNKNOWN_MEMBER_ID)
        return HeartbeatReply(member_requests.heartbeat(self._rebalance, group, request, now))

    def _leave(self, _: int, request: LeaveGroup, now: Moment, out: Outcome) -> LeaveGroupReply:
        if not request.group_id:
            return LeaveGroupReply(error_code=ErrorCode.INVALID_GROUP_ID)
        group = self._group(request.group_id)
        if isinstance(group, ConsumerGroup):
            records, left = group.remove(request)
            out.records.extend(records)
            self._table.schedule(group)
            return left
        if group is None:
            return member_requests.left_unknown_group(request)
        reply = member_requests.leave(self._rebalance, group, request, now, out)
        self._table.forget_if_disposable(group)
        return reply

    def _wake_classic(self, group: ClassicGroup, key: Key, now: Moment, out: Outcome) -> None:
        if key.kind is Kind.SESSION:
            self._rebalance.session_expired(group, key.member_id, now, out)
        elif key.kind is Kind.JOIN:
            self._rebalance.join_due(group, now, out)
        else:
            assert key.kind is Kind.SYNC, key
            self._rebalance.sync_due(group, now, out)
        self._table.forget_if_disposable(group)

    # -- offsets

    def _commit(self, _: int, request: OffsetCommit, now: Moment, out: Outcome) -> GroupReply:
        group = self._group(request.group_id)
        refused = group_rules.commit_refused(group, request)
        if refused is not ErrorCode.NONE:
            return OffsetCommitReply(error_code=refused)
        if isinstance(group, ClassicGroup):
            member_requests.committed(self._rebalance, group, request, now)
        records, reply = self._offsets.commit(
            request.group_id, request.topics, now.wall, self._partition_count, request.retention_ms
        )
        out.records.extend(records)
        return reply

    def _commit_in_transaction(
        self, _: int, request: TxnOffsetCommit, now: Moment, out: Outcome
    ) -> GroupReply:
        refused = group_rules.txn_commit_refused(self._group(request.group_id), request)
        if refused is not ErrorCode.NONE:
            return OffsetCommitReply(error_code=refused)
        # The topic may have been deleted while the transaction was verified.
        records, reply = self._offsets.commit(
            request.group_id, request.topics, now.wall, self._partition_count
        )
        out.records.extend(records)
        if records:
            out.writer = Writer(request.producer_id, request.producer_epoch)
        return reply

    def _fetch(self, _: int, request: OffsetFetch, __: Moment, ___: Outcome) -> OffsetFetchReply:
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            refused = group.fetch_refused(request.member_id, request.member_epoch)
            if refused is not ErrorCode.NONE:
                return OffsetFetchReply(error_code=refused)
        return self._offsets.fetch(request)

    def _delete_offsets(
        self, _: int, request: OffsetDelete, __: Moment, out: Outcome
    ) -> OffsetDeleteReply:
        group = self._group(request.group_id)
        if group is None:
            return OffsetDeleteReply(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        if isinstance(group, ClassicGroup):
            refused = member_requests.offset_delete_refused(group)
            if refused is not None:
                return OffsetDeleteReply(error_code=refused)
        is_subscribed = group_rules.is_subscribed(group)
        records, reply = self._offsets.delete(request, is_subscribed, self._partition_count)
        out.records.extend(records)
        return reply

    def _topics_deleted(
        self, _: int, request: TopicsDeleted, __: Moment, out: Outcome
    ) -> TopicsDeletedReply:
        gone = [*self._offsets.delete_topics(request.topics), *self._offsets_of_unknown_topics()]
        out.records.extend(dict.fromkeys(gone))
        return TopicsDeletedReply()

    def _offsets_of_unknown_topics(self) -> list[OffsetCommitRecord]:
        """Return tombstones for the offsets of topics that this broker's metadata does not have.

        Such topics are deleted, even if this broker's metadata is old. An offset is committed with
        the topic id in its coordinator's metadata. If this broker was that coordinator, its
        metadata has only advanced since. An earlier coordinator led in an earlier epoch: its
        metadata did not yet show this broker as the leader, so this broker's metadata is newer.
        """
        topics = self._topics()
        return self._offsets.delete_unknown(lambda one: topics.name_of(one) is not None)

    def _partition_count(self, topic_id: TopicId) -> int:
        name = self._topics().name_of(topic_id)
        return 0 if name is None else self._topics().partition_count(name)

    def _schedule_expiry(self, now: Moment) -> None:
        interval_ms = self._settings.offsets_retention_check_interval_ms
        self._deadlines.set(_EXPIRY, InstantMs(now.instant + interval_ms))

    def _expire_offsets(self, now: Moment, out: Outcome) -> None:
        """Expire old offsets, and remove a group without members together with its last offset."""
        self._schedule_expiry(now)
        for group_id in sorted(self._groups.keys() | set(self._offsets.group_ids())):
            group = self._groups.get(group_id) or ClassicGroup(group_id)
            expired = self._expired(group, now)
            out.records.extend(expired)
            if group_rules.is_unused(group) and self._offsets.is_all(group_id, expired):
                out.records.extend(group_rules.tombstones(group))
            if len(out.records) >= EXPIRED_AT_ONCE_MAX:
                self._deadlines.set(_EXPIRY, now.instant)
                return

    def _expired(self, group: AnyGroup, now: Moment) -> Sequence[OffsetCommitRecord]:
        empty_since = None
        if isinstance(group, ClassicGroup) and group.protocol_type is not None:
            if group.is_empty:
                empty_since = group.state_changed_at
            elif group.state is not GroupState.STABLE or group.subscribed_topics() is None:
                return ()
        return self._offsets.expired(
            group.group_id,
            now.wall,
            empty_since=empty_since,
            is_subscribed=group_rules.is_subscribed(group),
        )

    # -- administration

    def _describe(
        self, _: int, request: DescribeGroup, __: Moment, ___: Outcome
    ) -> DescribeGroupReply:
        group = self._classic(request.group_id)
        if group is not None:
            return group.describe()
        return DescribeGroupReply(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=group_rules.missing(self._group(request.group_id), request, "classic"),
            group_id=request.group_id,
            state=GroupState.DEAD.value,
        )

    def _list(self, _: int, request: ListGroups, __: Moment, ___: Outcome) -> ListGroupsReply:
        states = {state.lower() for state in request.states}
        types = {group_type.lower() for group_type in request.types}
        return ListGroupsReply(
            tuple(
                group
                for group in self.listed()
                if (not states or group.state.lower() in states)
                and (not types or group.group_type in types)
            )
        )

    def listed(self) -> Iterator[ListedGroup]:
        """Return all groups, in order of their ids."""
        for group_id in sorted(self._groups.keys() | set(self._offsets.group_ids())):
            group = self._groups.get(group_id) or ClassicGroup(group_id)
            if isinstance(group, ConsumerGroup):
                yield ListedGroup(group_id, "consumer", group.state, "consumer")
            else:
                yield group.listed()

    def _delete(self, _: int, request: DeleteGroup, __: Moment, out: Outcome) -> DeleteGroupReply:
        group = self._group(request.group_id)
        if group is None:
            return DeleteGroupReply(ErrorCode.GROUP_ID_NOT_FOUND)
        if not group.is_empty:
            return DeleteGroupReply(ErrorCode.NON_EMPTY_GROUP)
        out.records.extend(self._offsets.delete_all(request.group_id))
        out.records.extend(group_rules.tombstones(group))
        return DeleteGroupReply(ErrorCode.NONE)

    # -- KIP-848

    def _consumer_heartbeat(
        self, _: int, request: ConsumerGroupHeartbeat, now: Moment, out: Outcome
    ) -> ConsumerGroupHeartbeatReply:
        group = self._groups.get(request.group_id)
        settings = self._settings_of(request.group_id)
        may_describe = partial(self._may_describe, request.requester)
        tombstones: Sequence[GroupRecord] = ()
        if isinstance(group, ClassicGroup):
            if not group.is_empty:
                return self._table.upgrade(group, request, now, settings, may_describe, out)
            tombstones, classic = group_rules.tombstones(group), group
            group = ConsumerGroup(request.group_id)
        elif group is None:
            if request.member_epoch != _JOINS:
                return not_a_consumer_group(request, settings)
            group = ConsumerGroup(request.group_id)
        records, reply = group.heartbeat(request, now, self._topics(), settings, may_describe)
        if reply.error_code is ErrorCode.NONE:
            if tombstones:
                self._rebalance.forget_group(classic)
            self._groups[request.group_id] = group
            self._table.schedule(group)
        out.records.extend((*tombstones, *records) if records else ())
        return reply

    def _settings_of(self, group_id: str) -> GroupSettings:
        return self._settings.of_group(self._configs_of(group_id))

    def _consumer_describe(
        self, _: int, request: ConsumerGroupDescribe, __: Moment, ___: Outcome
    ) -> ConsumerGroupDescribeReply:
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return group.describe(self._topics(), self._settings)
        return ConsumerGroupDescribeReply(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=group_rules.missing(self._group(request.group_id), request, "consumer"),
            group_id=request.group_id,
        )
