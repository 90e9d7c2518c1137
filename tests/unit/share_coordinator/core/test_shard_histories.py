"""Random histories of one shard: members that come, go and fall silent, leaders that read and write
in old and new epochs, resets, deletions, topics that change, owners that crash.

Compared with a model that is built from the replies alone:

* a shard that replays the log, from its beginning or from where it may be pruned to, is the same;
* a leader that an answered read has fenced writes nothing, nor does one with an old state epoch;
* what was answered as acknowledged is read as acknowledged until a reset or a deletion;
* a start offset never goes back within one life of a state;
* members have only partitions that they subscribe to and that are initialized.
"""

from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from share_coordinator.core.requests import (
    AlterOffsets,
    AlterOffsetsReply,
    DeleteOffsets,
    DeleteOffsetsReply,
    DeleteShareGroup,
    DeleteShareGroupReply,
    NewOffset,
    NewOffsets,
    Request,
    ShareGroupHeartbeat,
    TopicPartitions,
    TopicsDeleted,
)
from share_coordinator.core.settings import ShareSettings
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import LeaderEpoch, Offset
from tidemark.model.share_state import (
    DeliveryState,
    SharePartitionKey,
    StateRead,
    StateResult,
)
from unit.share_coordinator.worlds import World, a_write, batch, joining

SETTINGS = ShareSettings(
    share_coordinator_snapshot_update_records_per_snapshot=3, group_share_max_size=3
)
ACKNOWLEDGED = DeliveryState.ACKNOWLEDGED

members = st.sampled_from("abcd")
groups = st.sampled_from(["one", "two"])
topics = st.sampled_from("tu")
partitions = st.integers(0, 1)
offsets = st.integers(0, 12)
epochs = st.integers(0, 3)


class Seen(NamedTuple):
    """One life of a state, as a leader knows it."""

    state_epoch: int
    start: int
    acknowledged: frozenset[int]


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(SETTINGS, t=2, u=1)
        self.seen: dict[SharePartitionKey, Seen] = {}
        self.fences: dict[tuple[SharePartitionKey, int], int] = {}
        """Greatest leader epoch of an answered read, by share-partition and state epoch."""

    # -- members

    @rule(group=groups, member=members, names=st.sets(topics, min_size=1))
    def join(self, group: str, member: str, names: set[str]) -> None:
        reply = self.world.join(member, *names, group_id=group)
        full = ErrorCode.GROUP_MAX_SIZE_REACHED
        assert reply.error_code in (ErrorCode.NONE, full), reply

    @rule(group=groups, member=members, late=st.booleans())
    def beat(self, group: str, member: str, late: bool) -> None:
        known = self.group_members(group).get(member)
        # A member whose join the log has in part was not answered: it joins again.
        if known is not None and known.member_epoch > 0:
            epoch = (
                known.previous_epoch if late and known.previous_epoch > 0 else known.member_epoch
            )
            reply = self.world.beat(member, epoch, group_id=group)
            assert reply.error_code is ErrorCode.NONE, reply

    @rule(group=groups, member=members)
    def leave(self, group: str, member: str) -> None:
        self.world.beat(member, -1, group_id=group)

    @rule(ms=st.sampled_from([100, 1_000, 20_000, 46_000, 300_000]))
    def sleep(self, ms: int) -> None:
        self.world.sleep(ms)

    # -- leaders

    @rule(group=groups, topic=topics, partition=partitions, epoch=epochs)
    def read(self, group: str, topic: str, partition: int, epoch: int) -> None:
        key = self.key(group, topic, partition)
        found = self.world.read(key, leader_epoch=epoch)
        if found.error_code is not ErrorCode.NONE:
            return
        life = key, found.state_epoch
        assert epoch >= self.fences.get(life, 0)
        self.fences[life] = epoch
        before = self.seen.get(key)
        if before is not None and before.state_epoch == found.state_epoch:
            assert found.start_offset >= before.start
            assert acknowledged(found) >= {
                one for one in before.acknowledged if one >= found.start_offset
            }
        self.seen[key] = Seen(found.state_epoch, found.start_offset, acknowledged(found))

    @rule(
        group=groups,
        topic=topics,
        partition=partitions,
        epoch=epochs,
        first=offsets,
        length=st.integers(0, 3),
        start=st.none() | offsets,
    )
    def write(
        self,
        group: str,
        topic: str,
        partition: int,
        epoch: int,
        first: int,
        length: int,
        start: int | None,
    ) -> None:
        key = self.key(group, topic, partition)
        seen = self.seen.get(key)
        if seen is None:
            return
        acked = batch(first, first + length, ACKNOWLEDGED)
        answer = self.ask_write(key, seen, epoch, start, acked)
        if answer.error_code is not ErrorCode.NONE:
            return
        assert epoch >= self.fences.get((key, seen.state_epoch), 0)
        assert self.world.epoch_of(key) == seen.state_epoch
        new = frozenset(range(first, first + length + 1))
        self.seen[key] = Seen(
            seen.state_epoch,
            seen.start if start is None else max(start, seen.start),
            seen.acknowledged | new,
        )

    def ask_write(
        self, key: SharePartitionKey, seen: Seen, epoch: int, start: int | None, acked: object
    ) -> StateResult:
        request = a_write(
            key,
            seen.state_epoch,
            acked,  # type: ignore[arg-type]
            start=-1 if start is None else start,
            leader_epoch=LeaderEpoch(epoch),
        )
        (answer,) = self.world.ask_states(request, group_id=key.group_id)
        assert isinstance(answer, StateResult)
        return answer

    # -- administrators

    @rule(group=groups, topic=topics, offset=offsets)
    def reset(self, group: str, topic: str, offset: int) -> None:
        key = self.key(group, topic, 0)
        new = NewOffsets(key.topic_id, topic, (NewOffset(0, Offset(offset)),))
        reply = self.world.ask(AlterOffsets(group, (new,)), AlterOffsetsReply)
        if reply.error_code is ErrorCode.NONE:
            assert not self.group_members(group)

    @rule(group=groups, topic=topics)
    def forget(self, group: str, topic: str) -> None:
        key = self.key(group, topic, 0)
        request = DeleteOffsets(group, (TopicPartitions(key.topic_id, topic, ()),))
        self.world.ask(request, DeleteOffsetsReply)

    @rule(group=groups)
    def delete_group(self, group: str) -> None:
        was_empty = not self.group_members(group)
        reply = self.world.ask(DeleteShareGroup(group), DeleteShareGroupReply)
        assert (reply.error_code is ErrorCode.NON_EMPTY_GROUP) == (not was_empty)

    @rule(topic=topics, is_seen=st.booleans())
    def make_topic_again(self, topic: str, is_seen: bool) -> None:
        old = self.key("one", topic, 0).topic_id
        self.world.topics.delete(topic)
        if is_seen:
            self.world.tell(TopicsDeleted(frozenset({old})))
        self.world.topics.put(topic, 1)

    @rule(topic=topics)
    def add_partition(self, topic: str) -> None:
        self.world.topics.put(topic, 2)

    @rule(
        group=groups,
        topic=topics,
        kind=st.sampled_from(["join", "leave", "reset", "forget", "delete"]),
        record_count=st.integers(0, 4),
    )
    def crash_within(self, group: str, topic: str, kind: str, record_count: int) -> None:
        topic_id = self.key(group, topic, 0).topic_id
        requests: dict[str, Request] = {
            "join": joining("a", "t", "u", group_id=group),
            "leave": ShareGroupHeartbeat(group_id=group, member_id="a", member_epoch=-1),
            "reset": AlterOffsets(
                group, (NewOffsets(topic_id, topic, (NewOffset(0, Offset(3)),)),)
            ),
            "forget": DeleteOffsets(group, (TopicPartitions(topic_id, topic, ()),)),
            "delete": DeleteShareGroup(group),
        }
        self.world.crash_within(requests[kind], record_count)

    @rule()
    def crash(self) -> None:
        self.world.reload()

    # -- what holds

    @invariant()
    def the_log_says_all_of_it_from_wherever_it_may_begin(self) -> None:
        needed = self.world.shard._upkeep._offsets.needed_from()
        for start in {self.world.log_start, needed}:
            assert self.world.replayed(start) == self.world.shard

    @invariant()
    def targets_are_of_what_is_subscribed_to_and_initialized(self) -> None:
        for group in self.world.shard._groups.values():
            logged = group.logged
            if logged.assignment_epoch < logged.group_epoch:
                continue  # a newer target is due
            for name, member in logged.members.items():
                for topic_id, numbers in logged.target_of(name).items():
                    topic = self.world.topics.name_of(topic_id)
                    assert topic is None or topic in member.subscription
                    assert topic is None or numbers <= logged.topics[topic_id].partitions

    def group_members(self, group: str) -> dict:  # type: ignore[type-arg]
        found = self.world.shard._groups.get(group)
        return dict(found.logged.members) if found is not None else {}

    def key(self, group: str, topic: str, partition: int) -> SharePartitionKey:
        return self.world.key(topic, partition, group)


def acknowledged(found: StateRead) -> frozenset[int]:
    return frozenset(
        offset
        for one in found.batches
        if one.delivery_state is ACKNOWLEDGED
        for offset in range(one.first_offset, one.last_offset + 1)
    )


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
