"""GroupTable: the groups of a shard by id, of either protocol, and their conversions.

As long as the last record of an id's classic group is not a tombstone, the id has a classic group.
A consumer group of the same id, which is being written or ends, is kept apart from it. So an
upgrade writes the consumer group first and the tombstone last, and a downgrade the classic group
first: wherever the log is cut, one of both groups counts, and it is complete. The other one, if any
of its records are left, is removed by the next owner of the shard.
"""

from collections.abc import Callable

from tidemark.codec.group_records import GroupMetadataRecord, GroupRecord
from tidemark.codec.group_records_consumer import (
    ConsumerGroupMetadataRecord,
    ConsumerRecord,
)
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs
from tidemark.protocol.shard import Moment

from broker.core.groups import conversion
from broker.core.groups.classic.deadlines import Deadlines, Key, Kind
from broker.core.groups.classic.group import ClassicGroup
from broker.core.groups.classic.rebalance import Rebalance
from broker.core.groups.classic.states import Cause, GroupState
from broker.core.groups.consumer.admission import request_problem
from broker.core.groups.consumer.group import ConsumerGroup
from broker.core.groups.effects import Outcome
from broker.core.groups.group_rules import AnyGroup
from broker.core.groups.requests import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    GroupSettings,
    Topics,
)
from broker.core.groups.subscriptions.patterns import MayDescribe

_AT_ONCE = InstantMs(0)


class GroupTable:
    """Groups, the replay of their records, and the deadlines of consumer groups."""

    def __init__(
        self,
        settings: GroupSettings,
        topics: Callable[[], Topics],
        deadlines: Deadlines,
        rebalance: Rebalance,
    ) -> None:
        self.groups: dict[str, AnyGroup] = {}
        self._settings = settings
        self._topics = topics
        self._deadlines = deadlines
        self._rebalance = rebalance
        self._apart: dict[str, ConsumerGroup] = {}
        """Consumer groups, whole or in part, whose id has a classic group."""
        self._too_large: dict[str, int] = {}
        """Epochs of consumer groups in which their classic form did not fit into one record."""

    def check(self) -> None:
        """Assert the invariants that hold between decisions."""
        assert not self._apart, f"conversions under way: {sorted(self._apart)}"
        for group_id, group in self.groups.items():
            assert group.group_id == group_id
            group.check()
            if isinstance(group, ClassicGroup):
                assert not group.is_disposable, f"{group_id} should have been removed"

    # -- deadlines and removal

    def schedule(self, group: ConsumerGroup) -> None:
        """Set the next deadline of a consumer group; one that is to be converted is due at once. If
        it was too large it is not tried again before its members change: a deadline that is always
        due would keep all others of the shard from their turn.
        """
        key = Key(Kind.CONSUMER, group.group_id)
        at = group.next_deadline()
        was_tried = self._too_large.get(group.group_id) == group.logged.group_epoch
        if not was_tried and conversion.may_downgrade(group.logged, self._settings):
            at = _AT_ONCE
        if at is None:
            self._deadlines.cancel(key)
        else:
            self._deadlines.set(key, at)

    def unschedule(self, group_id: str) -> None:
        """Remove the deadline of a consumer group."""
        self._deadlines.cancel(Key(Kind.CONSUMER, group_id))
        self._too_large.pop(group_id, None)

    def forget_if_disposable(self, group: ClassicGroup) -> None:
        """Remove a classic group that nothing is known of."""
        if group.is_disposable and self.groups.get(group.group_id) is group:
            self._rebalance.forget_group(group)
            del self.groups[group.group_id]

    # -- the log

    def replay_classic(self, record: GroupMetadataRecord) -> None:
        """Apply a record of a classic group."""
        group_id = record.group_id
        group = self.groups.get(group_id)
        if record.value is not None:
            if not isinstance(group, ClassicGroup):
                if group is not None:
                    self._apart[group_id] = group
                    self.unschedule(group_id)
                group = self.groups[group_id] = ClassicGroup(group_id)
            group.replay(record.value)
        elif isinstance(group, ClassicGroup):
            self._rebalance.forget_group(group)
            del self.groups[group_id]
            if group.state is GroupState.EMPTY:
                group.move(Cause.DELETED)
            apart = self._apart.pop(group_id, None)
            if apart is not None:
                self.groups[group_id] = apart
                self.schedule(apart)

    def replay_consumer(self, record: ConsumerRecord) -> None:
        """Apply a record of a consumer group."""
        group_id = record.group_id
        places = self._places(group_id)
        group = places.get(group_id)
        if group is None:
            if record.value is None:
                return  # the last tombstone of the group's former protocol
            group = places[group_id] = ConsumerGroup(group_id)
        assert isinstance(group, ConsumerGroup), "_places() has no others"
        group.replay(record)
        if isinstance(record, ConsumerGroupMetadataRecord) and record.value is None:
            del places[group_id]
            if places is self.groups:
                self.unschedule(group_id)
        elif places is self.groups and group.logged.is_all_classic:
            self.schedule(group)

    def _places(self, group_id: str) -> "dict[str, AnyGroup] | dict[str, ConsumerGroup]":
        has_classic = isinstance(self.groups.get(group_id), ClassicGroup)
        return self._apart if has_classic else self.groups

    def leftovers(self) -> list[GroupRecord]:
        """Return the tombstones of what conversions left that a cut of the log ended."""
        return [record for group in self._apart.values() for record in group.tombstones()]

    # -- conversions

    def upgrade(
        self,
        classic: ClassicGroup,
        request: ConsumerGroupHeartbeat,
        now: Moment,
        settings: GroupSettings,
        may_describe: MayDescribe,
        out: Outcome,
    ) -> ConsumerGroupHeartbeatReply:
        """Decide the heartbeat of a member of KIP-848's protocol to a classic group with members:
        the group is converted, or nothing changes.
        """
        topics, group_id = self._topics(), classic.group_id
        converted = conversion.upgraded(classic, topics, settings)
        if converted is None:
            return not_a_consumer_group(request, settings)
        group = ConsumerGroup(group_id)
        for record in converted:
            group.replay(record)
        group.loaded(now, settings)
        records, reply = group.heartbeat(request, now, topics, settings, may_describe)
        if reply.error_code is not ErrorCode.NONE:
            return reply
        self._send_back(classic, out)
        self._apart[group_id] = group
        out.records.extend((*converted, *records, GroupMetadataRecord(group_id, None)))
        return reply

    def _send_back(self, classic: ClassicGroup, out: Outcome) -> None:
        """Answer the waiting requests of a classic group that ends: the members join again, those
        without a generation as new ones.
        """
        for member in classic.members.values():
            code = ErrorCode.REBALANCE_IN_PROGRESS
            if member.is_new:
                code = ErrorCode.UNKNOWN_MEMBER_ID
            member_id = "" if member.is_new else member.member_id
            self._rebalance.answer_waiting(classic, member, out, code, member_id=member_id)

    def maybe_downgrade(self, group: ConsumerGroup, now: Moment, out: Outcome) -> bool:
        """Convert a consumer group that has only classic members, and begin a rebalance. Return
        False if it is not to be converted.
        """
        if not conversion.may_downgrade(group.logged, self._settings):
            return False
        value = conversion.downgraded(group.logged, self._topics(), now.wall)
        group_id = group.group_id
        if value is None:
            self._too_large[group_id] = group.logged.group_epoch
            return False
        classic = ClassicGroup(group_id)
        classic.replay(value)
        self.groups[group_id], self._apart[group_id] = classic, group
        self.unschedule(group_id)
        for member in classic.members.values():
            self._rebalance.renew_session(classic, member, now)
        self._rebalance.prepare(classic, now, out)
        out.records.append(GroupMetadataRecord(group_id, value))
        out.records.extend(group.tombstones())
        return True


def not_a_consumer_group(
    request: ConsumerGroupHeartbeat, settings: GroupSettings
) -> ConsumerGroupHeartbeatReply:
    """Return the refusal of a heartbeat where no group has its protocol; one that is invalid for
    any group is refused for that.
    """
    invalid = request_problem(request, settings)
    if invalid is not None:
        code, message = invalid
    else:
        code = ErrorCode.GROUP_ID_NOT_FOUND
        message = f"Group {request.group_id} is not a consumer group."
    return ConsumerGroupHeartbeatReply(error_code=code, error_message=message)
