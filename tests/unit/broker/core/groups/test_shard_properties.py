"""Groups under random joins, leaves, expired sessions, commits and failovers: invariants of every
state.
"""

import random
from collections.abc import Callable

import pytest
from broker.core.groups.classic.group import ClassicGroup
from broker.core.groups.classic.states import GroupState
from broker.core.groups.effects import Answer
from broker.core.groups.requests import (
    DescribeGroup,
    DescribeGroupReply,
    GroupSettings,
    HeartbeatReply,
    JoinGroupReply,
    JoinProtocol,
    SyncGroupReply,
)
from tidemark.model.errors import ErrorCode
from unit.broker.core.groups.group_worlds import (
    REBALANCE_MS,
    SESSION_MS,
    World,
    beat,
    commit,
    committed,
    join,
    leave,
    position,
    subscription,
    sync,
)

RANGE = JoinProtocol("range", subscription("orders"))
STICKY = JoinProtocol("sticky", subscription("orders", "bills"))
PROTOCOLS = ((RANGE,), (RANGE, STICKY), (STICKY, RANGE))
FORGET = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


class Client:
    """A consumer: its own view of its state, and its waiting request."""

    def __init__(self, number: int, *, is_static: bool) -> None:
        self.number = number
        self.instance = f"i{number}" if is_static else None
        self.next: Callable[[Story], None] = self.join
        self.member_id = ""
        self.generation = -1
        self.leads: tuple[str, ...] = ()
        self.waits: int | None = None
        self.is_awake = True
        self.patience_ms = (SESSION_MS // 2, REBALANCE_MS)[number % 2]
        """Rebalance timeouts, some shorter than sessions."""
        self.protocols: tuple[JoinProtocol, ...] = (RANGE,)

    def join(self, groups: "Story", *, known_first: bool = True) -> None:
        groups.names += 1
        asked = join(
            self.member_id,
            new=f"m{self.number}-{groups.names}",
            instance=self.instance,
            protocols=self.protocols,
            known_first=known_first,
            rebalance_ms=self.patience_ms,
        )
        self.waits = groups.world.send(asked)

    def sync(self, groups: "Story") -> None:
        shares = {one: bytes([number]) for number, one in enumerate(self.leads)}
        asked = sync(self.member_id, self.generation, shares, instance=self.instance)
        self.waits = groups.world.send(asked)

    def heartbeat(self, groups: "Story") -> None:
        self.waits = groups.world.send(beat(self.member_id, self.generation, self.instance))

    def hear(self, reply: object) -> None:
        """Apply a reply as a consumer does."""
        self.waits = None
        match reply:
            case JoinGroupReply(error_code=ErrorCode.NONE):
                self.member_id, self.generation = reply.member_id, reply.generation_id
                self.leads = tuple(one.member_id for one in reply.members)
                self.next = self.sync
            case JoinGroupReply(error_code=ErrorCode.MEMBER_ID_REQUIRED):
                self.member_id = reply.member_id
            case SyncGroupReply(error_code=ErrorCode.NONE):
                self.next = self.heartbeat
            case HeartbeatReply(error_code=ErrorCode.NONE):
                pass
            case JoinGroupReply() | SyncGroupReply() | HeartbeatReply():
                self.next = self.join
                if reply.error_code in FORGET:
                    self.member_id = ""


class Story:
    """Five consumers of one group, two of them static; some are slow, some crash, and brokers
    too.
    """

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        delay_ms, size_max = self.dice.choice([0, 3_000]), self.dice.choice([3, 100])
        settings = GroupSettings(group_initial_rebalance_delay_ms=delay_ms, group_max_size=size_max)
        self.world = World(settings)
        self.clients = [Client(number, is_static=number < 2) for number in range(5)]
        self.names = 0
        self.generation = 0
        self.offset: int | ErrorCode = -1
        self.seen: set[GroupState] = set()

    def step(self) -> None:
        """Let a consumer do what it should, most of the time."""
        acts = (self.act, self.wait, self.commit, self.join, self.stray, self.restart, self.nod)
        rare = (self.leave, self.fail_over)
        self.dice.choices((*acts, *rare), (60, 20, 6, 4, 4, 3, 8, 2, 1))[0]()
        self.check()

    def someone(self) -> Client:
        return self.dice.choice(self.clients)

    def act(self) -> None:
        for client in self.dice.sample(self.clients, 5):
            if client.is_awake and client.waits is None:
                client.next(self)
                self.hear()

    def nod(self) -> None:
        """Pause or resume a consumer."""
        client = self.someone()
        client.is_awake = not client.is_awake

    def join(self) -> None:
        """Change a consumer's subscription, or let it drop its last request."""
        client = self.someone()
        client.protocols = self.dice.choice(PROTOCOLS)
        client.join(self, known_first=self.dice.random() < 0.5)

    def stray(self) -> None:
        """Let a consumer do anything else."""
        client = self.someone()
        self.dice.choice((client.sync, client.heartbeat))(self)

    def restart(self) -> None:
        number = self.dice.randrange(5)
        self.clients[number] = Client(number, is_static=number < 2)

    def leave(self) -> None:
        self.world.send(leave(self.someone().member_id))

    def commit(self) -> None:
        client, offset = self.someone(), self.dice.randrange(100)
        asked = commit(offset, client.member_id, client.generation, instance=client.instance)
        if committed(self.world, asked) is ErrorCode.NONE:
            self.offset = offset

    def wait(self) -> None:
        waits = (1, 3_000, SESSION_MS // 2, SESSION_MS, REBALANCE_MS, 300_000)
        self.world.pass_time(self.dice.choices(waits, (40, 30, 20, 4, 4, 1))[0])

    def fail_over(self) -> None:
        if self.dice.random() < 0.5:
            self.world.compact(keeps_tombstones=self.dice.random() < 0.5)
        self.world.fail_over()

    def hear(self) -> None:
        for client in self.clients:
            if client.waits in self.world.answers:
                client.hear(self.world.answers[client.waits])

    # -- invariants after every step

    def check(self) -> None:
        self.hear()
        group = self.world.shard._groups.get("g")
        assert group is None or isinstance(group, ClassicGroup)
        waiting: set[int | None] = {None}
        if group is None:
            self.generation = 0  # an empty group without offsets is removed in time
        if group is not None:
            self.seen.add(group.state)
            self.check_generation(group)
            for one in group.members.values():
                waiting |= {one.awaiting_join, one.awaiting_sync}
        asked = set(range(1, self.world.asked + 1))
        assert asked - self.world.answers.keys() == waiting - {None}

    def check_generation(self, group: ClassicGroup) -> None:
        if group.state is GroupState.STABLE:
            assert group.generation >= self.generation
            self.generation = group.generation
            owned = [one.assignment for one in group.members.values() if one.assignment]
            assert len(owned) == len(set(owned)), "two members have the same"

    def check_log(self) -> None:
        """A stable group is in the log as it is in memory."""
        asked = DescribeGroup("g")
        told = self.world.ask(asked, DescribeGroupReply)
        [answer] = self.world.reloaded().decide(1, asked, self.world.moment).effects
        assert isinstance(answer, Answer)
        assert isinstance(answer.reply, DescribeGroupReply)
        if told.state == "Stable":
            assert set(answer.reply.members) == set(told.members)
            assert answer.reply.protocol_name == told.protocol_name

    def end(self) -> None:
        """Enough time without requests ends everything: no request waits for ever."""
        self.world.pass_time(1_000_000)
        assert set(range(1, self.world.asked + 1)) == self.world.answers.keys()
        assert position(self.world) == self.offset
        assert self.world.ask(DescribeGroup("g"), DescribeGroupReply).members == ()


@pytest.mark.feature("A09", "E14")
@pytest.mark.parametrize("seed", range(10))
def test_whatever_consumers_do_every_request_is_answered_once(seed: int) -> None:
    story = Story(seed)
    for number in range(200):
        story.step()
        if number % 10 == 0:
            story.check_log()
    story.end()
    assert GroupState.STABLE in story.seen
