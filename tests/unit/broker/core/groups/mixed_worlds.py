"""Members of both protocols in one group, as their clients behave, with a seed: they join, pause,
leave, and come back with the other protocol; the coordinator fails over, its log is compacted, and
sometimes cut within the records of a decision.
"""

import random
from dataclasses import dataclass, field
from typing import Final

from broker.core.groups.classic.group import ClassicGroup
from broker.core.groups.consumer.group import ConsumerGroup
from broker.core.groups.effects import GroupEffect
from broker.core.groups.id_requests import CoordinatorReply
from broker.core.groups.requests import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    GroupSettings,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinGroupReply,
    JoinProtocol,
    LeaveGroup,
    LeavingMember,
    MemberAssignment,
    OffsetCommit,
    OffsetCommitReply,
    SyncGroup,
    SyncGroupReply,
)
from tidemark.codec import group_records
from tidemark.codec.consumer_protocol import (
    ConsumerSubscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from tidemark.codec.group_records import CoordinatorRecord
from tidemark.model.assignment import TopicIdPartitions
from tidemark.model.errors import ErrorCode
from tidemark.protocol.shard import Decision
from unit.broker.core.groups.group_worlds import (
    ME,
    ORDERS,
    World,
    offsets,
)

NONE: Final = ErrorCode.NONE
SESSION_MS: Final = 10_000
REBALANCE_MS: Final = 4 * SESSION_MS
"""So long that who is silent is removed by its session."""
STEP_MS: Final = 700
PARTITIONS: Final = range(4)
SETTINGS: Final = GroupSettings(
    group_initial_rebalance_delay_ms=0,
    group_consumer_session_timeout_ms=SESSION_MS,
    group_consumer_min_session_timeout_ms=SESSION_MS,
)
GONE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
AGAIN: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNRELEASED_INSTANCE_ID}
)


class CutWorld(World):
    """A world whose next decision may reach the log only in part; its replies are lost then."""

    cut_at: int | None = None

    def _perform(self, decision: Decision[CoordinatorRecord, GroupEffect]) -> None:
        if self.cut_at is None or not decision.records:
            super()._perform(decision)
            return
        for record in decision.records[: self.cut_at]:
            self.log.append((group_records.encode(record), decision.writer, False))
        self.cut_at = None
        self.fail_over()


@dataclass
class Client:
    """What clients of both protocols have in common."""

    story: "Story"
    name: str
    is_cooperative: bool
    instance: str | None
    member_id: str = ""
    epoch: int = -1
    owned: set[int] = field(default_factory=set)
    positions: dict[int, int] = field(default_factory=dict)
    confirmed_at: int = 0
    """When the last request was sent that the coordinator answered without an error."""

    @property
    def world(self) -> CutWorld:
        return self.story.world

    def ask(self, request: object) -> CoordinatorReply | None:
        """Return the reply; None if there is none yet, or it is lost."""
        request_id = self.world.send(request)  # type: ignore[arg-type]
        return self.world.answers.get(request_id)

    def takes(self, partitions: set[int]) -> None:
        """Take partitions over; what is taken after the session has ended is lost soon."""
        has_session = self.world.now < self.confirmed_at + SESSION_MS
        for one in partitions - self.owned:
            if has_session:
                self.story.takes(self, one)
            self.positions[one] = self.story.committed.get(one, 0)
        self.owned |= partitions

    def gives_up(self, partitions: set[int], *, commits: bool = True) -> None:
        """Commit the last positions while the epoch is still valid, and give up."""
        if commits and partitions:
            self.commit(partitions)
        self.owned -= partitions

    def loses_everything(self) -> None:
        self.owned.clear()
        self.epoch = -1

    def works(self) -> None:
        """Read some records, and commit."""
        for one in self.owned:
            self.positions[one] += self.story.dice.randrange(3)
        if self.owned:
            self.commit(self.owned)

    def commit(self, partitions: set[int]) -> None:
        for one in sorted(partitions):
            request = OffsetCommit(
                group_id="g",
                topics=offsets(self.positions[one], one),
                member_id=self.member_id,
                generation_or_epoch=self.epoch,
                group_instance_id=self.instance,
            )
            reply = self.ask(request)
            if isinstance(reply, OffsetCommitReply) and reply.error_code is NONE:
                assert reply.topics[0].partitions[0].error_code is NONE
                self.story.commits(self, one)


class ClassicClient(Client):
    """A consumer of the classic protocol; eager or cooperative."""

    waiting: int | None = None

    def step(self) -> None:
        if self.waiting is not None:
            self.joined()
        elif self.epoch < 0:
            self.join()
        else:
            self.beat()

    def subscription(self) -> bytes:
        owned = (("orders", tuple(sorted(self.owned))),) if self.owned else ()
        return write_subscription(ConsumerSubscription(3, ("orders",), owned, self.epoch))

    def join(self) -> None:
        if not self.is_cooperative:
            self.gives_up(set(self.owned))
        name = "cooperative" if self.is_cooperative else "range"
        self.story.names += 1
        request = JoinGroup(
            group_id="g",
            member_id=self.member_id,
            new_member_id=f"{self.name}-{self.story.names}",
            group_instance_id=self.instance,
            client_id=self.name,
            client_host="/127.0.0.1",
            protocol_type="consumer",
            protocols=(JoinProtocol(name, self.subscription()),),
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id_required=self.instance is None,
        )
        self.waiting = self.world.send(request)
        self.joined()

    def joined(self) -> None:
        assert self.waiting is not None
        reply = self.world.answers.get(self.waiting)
        if reply is None:
            return
        self.waiting = None
        if not isinstance(reply, JoinGroupReply):
            return
        code = reply.error_code
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
        elif code in GONE:
            self.loses_everything()
            self.member_id = ""
        elif code is NONE:
            self.member_id, self.epoch = reply.member_id, reply.generation_id
            self.sync(self.shares(reply))
        else:
            assert code in AGAIN, code

    def shares(self, reply: JoinGroupReply) -> tuple[MemberAssignment, ...]:
        """The leader's assignment. What another member still owns is not given away."""
        if reply.leader != reply.member_id or reply.skip_assignment:
            return ()
        members = sorted(reply.members)
        owners = {
            partition: one.member_id
            for one in members
            for _, partitions in read_subscription(one.metadata).owned
            for partition in partitions
        }
        shares: dict[str, list[int]] = {one.member_id: [] for one in members}
        for number in PARTITIONS:
            wanted = members[number % len(members)].member_id
            if owners.get(number, wanted) == wanted:
                shares[wanted].append(number)
        return tuple(
            MemberAssignment(member_id, write_assignment({"orders": numbers}, 3))
            for member_id, numbers in shares.items()
        )

    def sync(self, assignments: tuple[MemberAssignment, ...]) -> None:
        request = SyncGroup(
            group_id="g",
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            assignments=assignments,
        )
        self.sync_sent_at = self.world.now
        self.syncing = self.world.send(request)
        self.is_synced = False
        self.synced()

    def synced(self) -> None:
        reply = self.world.answers.get(self.syncing)
        if reply is None:
            return
        self.is_synced = True
        if not isinstance(reply, SyncGroupReply):
            self.must_join = True
            return
        if reply.error_code is not NONE:
            self.refused(reply.error_code)
            return
        self.must_join = False
        given = {one for _, numbers in read_assignment(reply.assignment) for one in numbers}
        revoked = self.owned - given
        self.confirmed_at = self.sync_sent_at
        if revoked:
            self.gives_up(revoked)
            self.must_join = True  # as the cooperative protocol demands
        self.takes(given)

    def refused(self, code: ErrorCode) -> None:
        if code in GONE:
            self.loses_everything()
            if code is not ErrorCode.ILLEGAL_GENERATION:
                self.member_id = ""
            return
        assert code in AGAIN, code
        self.must_join = True

    def beat(self) -> None:
        if not self.is_synced:
            self.synced()
            return
        if self.must_join:
            self.join()
            return
        request = Heartbeat(
            group_id="g",
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        reply = self.ask(request)
        if not isinstance(reply, HeartbeatReply) or reply.error_code is ErrorCode.NOT_COORDINATOR:
            return
        if reply.error_code is NONE:
            self.confirmed_at = self.world.now
            self.works()
        else:
            self.refused(reply.error_code)

    def leaves(self) -> None:
        self.gives_up(set(self.owned))
        if self.instance is None and self.member_id:
            self.ask(LeaveGroup(group_id="g", members=(LeavingMember(self.member_id),)))


class ConsumerClient(Client):
    """A consumer of KIP-848's protocol."""

    is_leaving = False

    def step(self) -> None:
        if not self.member_id:
            self.story.names += 1
            self.member_id = f"{self.name}-{self.story.names}"
        request = self.heartbeat(max(self.epoch, 0))
        reply = self.ask(request)
        if not isinstance(reply, ConsumerGroupHeartbeatReply):
            return
        code = reply.error_code
        is_unknown = code is ErrorCode.GROUP_ID_NOT_FOUND and not self.story.exists
        if code in GONE or is_unknown:
            self.loses_everything()
        elif code is NONE:
            self.epoch = reply.member_epoch
            self.confirmed_at = self.world.now
            if reply.assignment is not None:
                self.follow({one for topic in reply.assignment for one in topic.partitions})
            self.works()
        else:
            self.story.refuses(self, code)

    def heartbeat(self, epoch: int) -> ConsumerGroupHeartbeat:
        """A full request, as after any uncertainty."""
        numbers = tuple(sorted(self.owned))
        owned = (TopicIdPartitions(ORDERS, numbers),) if numbers and epoch else ()
        return ConsumerGroupHeartbeat(
            group_id="g",
            member_id=self.member_id,
            new_member_id="",
            requester=ME,
            member_epoch=epoch,
            instance_id=self.instance,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=("orders",),
            topic_partitions=owned,
        )

    def follow(self, given: set[int]) -> None:
        revoked = self.owned - given
        self.gives_up(revoked)
        self.takes(given)

    def leaves(self) -> None:
        self.gives_up(set(self.owned))
        if self.epoch > 0:
            self.ask(self.heartbeat(-1 if self.instance is None else -2))


class Story:
    """Three members, each of one protocol or the other from time to time."""

    def __init__(self, seed: int, *, has_cuts: bool) -> None:
        self.dice = random.Random(seed)
        self.has_cuts = has_cuts
        self.is_cooperative = self.dice.random() < 0.5
        # A static cooperative member that misses a generation keeps its partitions although the
        # leader gives them away: so it is in the classic protocol itself.
        self.is_static = not self.is_cooperative and self.dice.random() < 0.6
        self.world = CutWorld(SETTINGS)
        self.names = 0
        self.committed: dict[int, int] = {}
        self.clients = [self.new_client(f"m{number}") for number in range(3)]
        self.pauses: dict[str, int] = {}
        self.kinds: list[str] = []

    def new_client(self, name: str) -> ClassicClient | ConsumerClient:
        kind = self.dice.choice((ClassicClient, ConsumerClient))
        return kind(self, name, self.is_cooperative, f"i-{name}" if self.is_static else None)

    @property
    def exists(self) -> bool:
        """True if the coordinator has the group."""
        return "g" in self.world.shard.state[0]

    # -- what happens

    def step(self) -> None:
        self.world.pass_time(self.dice.randrange(2 * STEP_MS))
        if self.has_cuts and self.dice.random() < 0.05:
            self.world.cut_at = self.dice.randrange(12)
        index = self.dice.randrange(len(self.clients))
        client = self.clients[index]
        if self.dice.random() < 0.04:
            client.leaves()
            self.clients[index] = self.new_client(client.name)
        elif self.dice.random() < 0.03:
            self.pauses[client.name] = self.world.now + self.dice.randrange(2 * SESSION_MS)
        elif self.pauses.get(client.name, 0) <= self.world.now:
            client.step()
        if self.dice.random() < 0.03:
            if self.dice.random() < 0.6:
                self.world.compact(keeps_tombstones=self.dice.random() < 0.5)
            self.world.fail_over()
        self.note()

    def settle(self) -> None:
        """Let all clients follow, without faults."""
        self.has_cuts = False
        for _ in range(60):
            for client in self.clients:
                client.step()
                self.world.pass_time(STEP_MS)
        self.note()

    def note(self) -> None:
        group = self.world.shard.state[0].get("g")
        kind = type(group).__name__
        if isinstance(group, ConsumerGroup):
            classic = len(group.logged.classic_ids)
            kind = f"mixed {classic}" if classic else "consumer"
        elif isinstance(group, ClassicGroup):
            kind = "classic" if group.members else "empty"
        if not self.kinds or self.kinds[-1] != kind:
            self.kinds.append(kind)

    # -- what must hold

    def refuses(self, client: Client, code: ErrorCode) -> None:
        assert code in AGAIN, (client.name, code)

    def takes(self, taker: Client, partition: int) -> None:
        for other in self.clients:
            if other is not taker and partition in other.owned:
                has_session = self.world.now < other.confirmed_at + SESSION_MS
                assert not has_session, f"{taker.name} takes {partition} that {other.name} has"

    def commits(self, client: Client, partition: int) -> None:
        offset, before = client.positions[partition], self.committed.get(partition, 0)
        assert offset >= before, f"{client.name} sets {partition} back to {offset} from {before}"
        self.committed[partition] = offset
