"""A group shard with a log and with clients, and a time that tests control."""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TypeVar

from broker.core.groups.coordinator_shard import CoordinatorShard
from broker.core.groups.effects import GroupEffect, LookUpShareGroup
from broker.core.groups.id_requests import CoordinatorReply, CoordinatorRequest
from broker.core.groups.requests import (
    GroupSettings,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinGroupReply,
    JoinProtocol,
    LeaveGroup,
    LeaveGroupReply,
    LeavingMember,
    MemberAssignment,
    OffsetCommit,
    OffsetCommitReply,
    OffsetFetch,
    OffsetFetchReply,
    OffsetToCommit,
    SyncGroup,
    SyncGroupReply,
    TopicOffsets,
    TopicPartitions,
    TxnOffsetCommit,
)
from broker.core.groups.shard import GroupShard
from tidemark.codec import group_records
from tidemark.codec.group_records import CoordinatorRecord
from tidemark.model.authorization import Requester
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs, TopicId, WallMs
from tidemark.protocol.shard import Decision, Moment, Writer

WALL = 1_700_000_000_000
ORDERS = TopicId(b"orders".ljust(16, b"."))
SESSION_MS = 10_000
REBALANCE_MS = 60_000
PRODUCER = Writer(7, 0)
ME = Requester("User:me", "127.0.0.1")
SETTINGS = GroupSettings(group_initial_rebalance_delay_ms=0)

R = TypeVar("R")


class FewTopics:
    """Topic ``orders`` with four partitions and its present id; None: it is deleted."""

    position = 1
    orders: TopicId | None = ORDERS
    partitions = 4

    def topic_id_of(self, name: str) -> TopicId | None:
        return self.orders if name == "orders" else None

    def name_of(self, topic_id: TopicId) -> str | None:
        return "orders" if topic_id == self.orders else None

    def partition_count(self, name: str) -> int:
        return self.partitions if name in self.names() else 0

    def names(self) -> Collection[str]:
        return () if self.orders is None else ("orders",)


class World:
    """The runtime: appends, replays at once, answers."""

    def __init__(self, settings: GroupSettings = SETTINGS) -> None:
        self.settings = settings
        self.topics = FewTopics()
        self.log: list[tuple[tuple[bytes, bytes | None] | None, Writer | None, bool]] = []
        self.now = 1_000
        self.answers: dict[int, CoordinatorReply] = {}
        self.look_ups: list[str] = []
        self.asked = 0
        self.commits = True
        """False: no follower takes what is appended."""
        self._uncommitted: list[GroupEffect] = []
        self.configs: dict[str, dict[str, str]] = {}
        self.hidden: set[tuple[Requester, str]] = set()
        """Topics that somebody may not describe."""
        self.coordinator = self._new_shard()
        self._perform(self.coordinator.loaded(self.moment))

    @property
    def shard(self) -> GroupShard:
        """The groups of the coordinator."""
        return self.coordinator.groups

    @property
    def moment(self) -> Moment:
        return Moment(InstantMs(self.now), WallMs(WALL + self.now))

    # -- the runtime

    def send(self, request: CoordinatorRequest) -> int:
        """Send a request; the reply may come later."""
        self.asked += 1
        self._perform(self.coordinator.decide(self.asked, request, self.moment))
        return self.asked

    def ask(self, request: CoordinatorRequest, kind: type[R]) -> R:
        """Send a request that is answered at once."""
        return self.answer(self.send(request), kind)

    def answer(self, request_id: int, kind: type[R]) -> R:
        reply = self.answers[request_id]
        assert isinstance(reply, kind)
        return reply

    def error_of(self, request_id: int) -> ErrorCode | None:
        """Return the reply, or None if there is none yet."""
        reply = self.answers.get(request_id)
        return None if reply is None else reply.error_code

    def pass_time(self, ms: int) -> None:
        """Advance the time, and wake the shard at its deadlines."""
        until = self.now + ms
        for _ in range(10_000):
            deadline = self.coordinator.next_deadline()
            if deadline is None or deadline > until:
                break
            self.now = max(self.now, deadline)
            self._perform(self.coordinator.wake(self.moment))
        self.now = until

    def end_transaction(self, writer: Writer, *, commits: bool) -> None:
        self.log.append((None, writer, commits))
        self.coordinator.replay_end(writer, commits=commits)
        self.coordinator.check()

    def fail_over(self) -> None:
        """Let another broker load the log; waiting requests are answered with an error."""
        self.coordinator = self.reloaded()
        waiting = set(range(1, self.asked + 1)) - self.answers.keys()
        gone = HeartbeatReply(ErrorCode.NOT_COORDINATOR)
        self.answers |= dict.fromkeys(waiting, gone)
        self._perform(self.coordinator.loaded(self.moment))

    def _new_shard(self) -> CoordinatorShard:
        return CoordinatorShard(
            GroupShard(
                self.settings,
                lambda: self.topics,
                lambda group_id: self.configs.get(group_id, {}),
                lambda requester, topic: (requester, topic) not in self.hidden,
            )
        )

    def reloaded(self) -> CoordinatorShard:
        shard = self._new_shard()
        for record, writer, commits in self.log:
            if record is not None:
                decoded = group_records.decode(*record)
                assert decoded is not None
                shard.replay(decoded, writer)
            else:
                assert writer is not None
                shard.replay_end(writer, commits=commits)
        return shard

    def compact(self, *, keeps_tombstones: bool = True) -> None:
        """Compact. Below the first record of an open transaction only the last record of each key
        is kept, of those that count; a tombstone is removed in the end.
        """
        outcomes = [self._outcome(index) for index in range(len(self.log))]
        end = outcomes.index(None) if None in outcomes else len(self.log)
        last = {
            record[0]: index
            for index, (record, _, _) in enumerate(self.log[:end])
            if record is not None and outcomes[index]
        }
        self.log = [
            entry
            for index, entry in enumerate(self.log)
            if index >= end
            or entry[0] is None
            or (last.get(entry[0][0]) == index and (keeps_tombstones or entry[0][1] is not None))
        ]

    def _outcome(self, index: int) -> bool | None:
        """True if an entry of the log counts; None: its transaction is open."""
        record, writer, _ = self.log[index]
        if record is None or writer is None:
            return True
        for later, other, commits in self.log[index:]:
            if later is None and other is not None and other.producer_id == writer.producer_id:
                return commits
        return None

    def _perform(self, decision: Decision[CoordinatorRecord, GroupEffect]) -> None:
        for record in decision.records:
            self.log.append((group_records.encode(record), decision.writer, False))
            self.coordinator.replay(record, decision.writer)
        self._uncommitted += decision.effects
        if self.commits:
            self.commit_all()
        self.coordinator.check()

    def commit_all(self) -> None:
        """Release what waited for the log."""
        effects, self._uncommitted = self._uncommitted, []
        for answer in effects:
            if isinstance(answer, LookUpShareGroup):
                self.look_ups.append(answer.group_id)
                continue
            assert answer.to not in self.answers, f"{answer.to} is answered twice: {answer.reply}"
            assert answer.to <= self.asked
            self.answers[answer.to] = self.coordinator.reply_now(answer)


# -- requests


def subscription(*topics: str) -> bytes:
    """The consumers' own protocol, version 0."""
    names = b"".join(len(one).to_bytes(2, "big") + one.encode() for one in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


RANGE = (JoinProtocol("range", subscription("orders")),)


def join(
    member_id: str = "",
    *,
    group_id: str = "g",
    new: str = "m",
    instance: str | None = None,
    protocols: tuple[JoinProtocol, ...] = RANGE,
    known_first: bool = False,
    session_ms: int = SESSION_MS,
    rebalance_ms: int = REBALANCE_MS,
    skips: bool = True,
    protocol_type: str = "consumer",
) -> JoinGroup:
    return JoinGroup(
        group_id=group_id,
        member_id=member_id,
        new_member_id=new,
        group_instance_id=instance,
        client_id="client",
        client_host="/127.0.0.1",
        protocol_type=protocol_type,
        protocols=protocols,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id_required=known_first,
        can_skip_assignment=skips,
    )


def sync(
    member_id: str,
    generation: int,
    assignments: Mapping[str, bytes] = MappingProxyType({}),
    *,
    instance: str | None = None,
) -> SyncGroup:
    return SyncGroup(
        group_id="g",
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance,
        assignments=tuple(MemberAssignment(*one) for one in assignments.items()),
    )


def beat(member_id: str, generation: int, instance: str | None = None) -> Heartbeat:
    return Heartbeat(
        group_id="g", generation_id=generation, member_id=member_id, group_instance_id=instance
    )


def leave(*members: str | LeavingMember) -> LeaveGroup:
    return LeaveGroup(
        group_id="g",
        members=tuple(LeavingMember(one) if isinstance(one, str) else one for one in members),
    )


def offsets(offset: int, partition: int = 0, metadata: str = "") -> tuple[TopicOffsets, ...]:
    return (TopicOffsets("orders", ORDERS, (OffsetToCommit(partition, offset, 5, metadata),)),)


def commit(
    offset: int,
    member_id: str = "",
    generation: int = -1,
    *,
    group_id: str = "g",
    instance: str | None = None,
    retention_ms: int = -1,
) -> OffsetCommit:
    return OffsetCommit(
        group_id=group_id,
        topics=offsets(offset),
        member_id=member_id,
        generation_or_epoch=generation,
        group_instance_id=instance,
        retention_ms=retention_ms,
    )


def txn_commit(
    offset: int,
    member_id: str = "",
    generation: int = -1,
    *,
    producer: Writer = PRODUCER,
    instance: str | None = None,
) -> TxnOffsetCommit:
    return TxnOffsetCommit(
        group_id="g",
        topics=offsets(offset),
        transactional_id="t",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        member_id=member_id,
        generation_id=generation,
        group_instance_id=instance,
    )


def fetch(*, stable: bool = False, group_id: str = "g") -> OffsetFetch:
    asked = (TopicPartitions("orders", ORDERS, (0,)),)
    return OffsetFetch(group_id=group_id, topics=asked, require_stable=stable)


# -- clients


def position(world: World, group_id: str = "g", *, stable: bool = False) -> int | ErrorCode:
    """Return the group's offset in orders-0, or the error."""
    reply = world.ask(fetch(stable=stable, group_id=group_id), OffsetFetchReply)
    [[one]] = [topic.offsets for topic in reply.topics]
    return one.offset if one.error_code is ErrorCode.NONE else one.error_code


def committed(world: World, request: OffsetCommit | TxnOffsetCommit) -> ErrorCode:
    """Return the result of a commit in one partition."""
    reply = world.ask(request, OffsetCommitReply)
    if reply.error_code is not ErrorCode.NONE:
        return reply.error_code
    return reply.topics[0].partitions[0].error_code


def heard(world: World, member_id: str, generation: int, instance: str | None = None) -> ErrorCode:
    return world.ask(beat(member_id, generation, instance), HeartbeatReply).error_code


def left(world: World, *members: str | LeavingMember) -> list[ErrorCode]:
    reply = world.ask(leave(*members), LeaveGroupReply)
    assert reply.error_code is ErrorCode.NONE
    return [one.error_code for one in reply.members]


def joined(world: World, request_id: int) -> JoinGroupReply:
    return world.answer(request_id, JoinGroupReply)


def assigned(world: World, request_id: int) -> SyncGroupReply:
    return world.answer(request_id, SyncGroupReply)


def stable(world: World, *members: str, instances: bool = False) -> int:
    """Return the generation of a stable group of these members, with the first one as leader."""
    asked = [
        world.send(join(new=member, instance=member.upper() if instances else None))
        for member in members
    ]
    world.pass_time(0)
    generation = joined(world, asked[0]).generation_id
    for member in reversed(members):
        shares = {one: one.encode() for one in members} if member == members[0] else {}
        world.send(sync(member, generation, shares))
    return generation
