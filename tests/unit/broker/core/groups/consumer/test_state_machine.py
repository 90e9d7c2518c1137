"""Random members with delays, lost replies and pauses, and coordinators that change: no partition
ever has two owners, and after a quiet time every member has its target.
"""

from dataclasses import dataclass, field
from re import fullmatch

import pytest
from broker.core.groups.consumer.member import ConsumerMember
from broker.core.groups.requests import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatReply
from broker.core.groups.subscriptions.resolver import Subscription
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tidemark.model.errors import ErrorCode
from unit.broker.core.groups.consumer.worlds import (
    REBALANCE_MS,
    SESSION_MS,
    Partition,
    World,
    compacted,
    flat_assignment,
    heard,
    heartbeat,
    joining,
    replayed,
    said,
)

pytestmark = pytest.mark.feature("A09", "E14")

SUBSCRIPTIONS = (
    Subscription(("a",), None),
    Subscription(("a", "b"), None),
    Subscription(("b", "c"), None),
    Subscription(("c",), "[ab]"),
    Subscription((), "a|c"),
)
GONE = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}


@dataclass
class Client:
    """A consumer as a good library implements it. It uses new partitions as soon as a reply has
    them, revokes partitions when it is ready, and lists its partitions when they have changed.
    """

    member_id: str
    wanted: Subscription
    instance_id: str | None = None
    assignor: str | None = None
    epoch: int = 0
    owned: set[Partition] = field(default_factory=set)
    target: set[Partition] = field(default_factory=set)
    reported: set[Partition] | None = None
    under_way: tuple[ConsumerGroupHeartbeatReply, set[Partition]] | None = None
    """A reply that has not arrived yet, and the partitions that its request listed as owned."""

    def request(self) -> ConsumerGroupHeartbeat:
        if self.epoch == 0:
            return joining(
                self.member_id,
                *self.wanted.topic_names,
                subscribed_topic_regex=self.wanted.regex,
                instance_id=self.instance_id,
                server_assignor=self.assignor,
            )
        changed = self.reported is None
        told = self.owned == self.reported
        return heartbeat(
            self.member_id,
            self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if changed else -1,
            subscribed_topic_names=self.wanted.topic_names if changed else None,
            subscribed_topic_regex=self.wanted.regex or "" if changed else None,
            topic_partitions=None if told else said(self.owned),
        )

    def hear(self, reply: ConsumerGroupHeartbeatReply, told: set[Partition]) -> None:
        if reply.error_code in GONE:
            self.abandon()
            return
        assert reply.error_code in (ErrorCode.NONE, ErrorCode.UNRELEASED_INSTANCE_ID), reply
        if reply.error_code is not ErrorCode.NONE:
            return
        self.epoch = reply.member_epoch
        self.reported = told
        if reply.assignment is not None:
            self.target = heard(reply)
            self.owned |= self.target

    def receive(self) -> None:
        if self.under_way is not None:
            self.hear(*self.under_way)
            self.under_way = None

    def give_up(self) -> None:
        self.owned &= self.target

    def abandon(self) -> None:
        self.epoch = 0
        self.owned = set()
        self.target = set()
        self.reported = None


class GroupOfClients(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(a=3, b=4)
        self.clients: dict[str, Client] = {}
        self.made = 0

    # -- members

    def new(self, wanted: Subscription, instance_id: str | None, assignor: str | None) -> Client:
        self.made += 1
        client = Client(f"m{self.made}", wanted, instance_id, assignor)
        self.clients[client.member_id] = client
        return client

    def talk(self, client: Client, fate: str = "answered") -> None:
        client.receive()
        told = set(client.owned)
        reply = self.world.ask(client.request())
        if fate == "answered":
            client.hear(reply, told)
        elif fate == "answered later":
            client.under_way = reply, told
        else:
            client.reported = None

    @precondition(lambda self: len(self.clients) < 6)
    @rule(
        wanted=st.sampled_from(SUBSCRIPTIONS),
        static=st.sampled_from((None, None, "i", "j")),
        assignor=st.sampled_from((None, None, "range", "uniform")),
    )
    def join(self, wanted: Subscription, static: str | None, assignor: str | None) -> None:
        self.talk(self.new(wanted, static, assignor))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), fate=st.sampled_from(("answered", "answered later", "lost")))
    def beat(self, data: st.DataObject, fate: str) -> None:
        self.talk(self.any_client(data), fate)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def receive(self, data: st.DataObject) -> None:
        self.any_client(data).receive()

    @precondition(lambda self: any(one.owned - one.target for one in self.clients.values()))
    @rule(data=st.data())
    def give_up_one(self, data: st.DataObject) -> None:
        owners = [(one, name) for name, client in self.clients.items() for one in client.owned]
        unwanted = [(one, name) for one, name in owners if one not in self.clients[name].target]
        partition, name = data.draw(st.sampled_from(sorted(unwanted)))
        self.clients[name].owned.remove(partition)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        self.any_client(data).give_up()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), wanted=st.sampled_from(SUBSCRIPTIONS))
    def subscribe_anew(self, data: st.DataObject, wanted: Subscription) -> None:
        client = self.any_client(data)
        client.wanted = wanted
        client.reported = None

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), for_a_while=st.booleans())
    def leave(self, data: st.DataObject, for_a_while: bool) -> None:
        client = self.any_client(data)
        del self.clients[client.member_id]
        epoch = -2 if for_a_while and client.instance_id else -1
        self.world.beat(client.member_id, epoch, instance_id=client.instance_id)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        del self.clients[self.any_client(data).member_id]

    @precondition(lambda self: self.clients)
    @rule(
        data=st.data(), asks=st.sampled_from(("beats", "leaves", "sleeps")), vanishes=st.booleans()
    )
    def stop_in_the_middle(self, data: st.DataObject, asks: str, vanishes: bool) -> None:
        """The coordinator dies when only some of a decision's records are safe, and sends no
        reply.
        """
        client, world = self.any_client(data), self.world
        client.receive()
        if asks == "sleeps":
            world.now += SESSION_MS
            records = world.group.wake(world.moment)
        else:
            request = heartbeat(client.member_id, -1) if asks == "leaves" else client.request()
            records, _ = world.decide(request)
        client.reported = None
        if vanishes:
            del self.clients[client.member_id]
        world.append(records[: data.draw(st.integers(0, len(records)))])
        world.reload()

    def any_client(self, data: st.DataObject) -> Client:
        return self.clients[data.draw(st.sampled_from(sorted(self.clients)))]

    # -- the environment

    @rule(ms=st.sampled_from((1_000, 20_000, 50_000)))
    def sleep(self, ms: int) -> None:
        self.world.sleep(ms)

    @rule(name=st.sampled_from("abc"), count=st.integers(1, 6))
    def more_partitions(self, name: str, count: int) -> None:
        if count > self.world.topics.partition_count(name):
            self.world.topics.put(name, count)

    @rule(name=st.sampled_from("abc"))
    def delete_topic(self, name: str) -> None:
        self.world.topics.delete(name)

    @rule(name=st.sampled_from("abc"))
    def hide_or_show_topic(self, name: str) -> None:
        self.world.hidden ^= {name}

    @rule(compact=st.booleans())
    def reload(self, compact: bool) -> None:
        if compact:
            self.world.log = compacted(self.world.log)
        self.world.reload()

    # -- invariants

    def current(self) -> list[tuple[Client, ConsumerMember]]:
        """Clients whose next heartbeat will not be fenced for its epoch."""
        members = self.world.group.logged.members
        return [
            (client, member)
            for client in self.clients.values()
            if client.epoch > 0
            if (member := members.get(client.member_id)) is not None
            if client.epoch in (member.member_epoch, member.previous_epoch)
        ]

    @invariant()
    def owners_may_commit_and_are_alone(self) -> None:
        owned = [
            one
            for client in self.clients.values()
            if self.world.group.commit_refused(client.member_id, client.epoch) is ErrorCode.NONE
            for one in client.owned
        ]
        assert len(owned) == len(set(owned))

    @invariant()
    def the_coordinator_knows_what_its_members_own(self) -> None:
        for client, member in self.current():
            assert client.owned <= flat_assignment(member.owned)

    @invariant()
    def the_log_tells_all(self) -> None:
        assert replayed(self.world.log).logged == self.world.group.logged
        assert replayed(compacted(self.world.log)).logged == self.world.group.logged

    def teardown(self) -> None:
        """A quiet time: clients send heartbeats and follow the replies; every member gets its
        target. Permissions are looked at once more.
        """
        self.world.now += self.world.settings.group_consumer_regex_refresh_interval_ms
        for _ in range(12):
            self.world.sleep(SESSION_MS // 9)  # in the end, crashed members are fenced
            for client in self.clients.values():
                self.talk(client)
                client.give_up()
        for client, member in self.current():
            assert client.owned == flat_assignment(member.assigned)
            assert client.owned == flat_assignment(
                self.world.group.logged.target_of(client.member_id)
            )
        if self.clients:
            assert self.world.group.state == "Stable"
            self.everything_is_read()
        self.the_log_tells_all()

    def everything_is_read(self) -> None:
        group = self.world.group.logged
        topics = self.world.topics
        wanted = {
            name
            for member in group.members.values()
            for name in topics.names()
            if name in member.subscription.topic_names
            or (fullmatch(member.subscription.regex or "", name) and name not in self.world.hidden)
        }
        read = [one for client, _ in self.current() for one in client.owned]
        assert set(read) == topics.all(*wanted)
        assert len(read) == len(set(read))


TestGroupOfClients = GroupOfClients.TestCase
TestGroupOfClients.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
