"""Requests to a group with members of both protocols, and short forms of their replies."""

from broker.core.groups.classic.group import ClassicGroup
from broker.core.groups.consumer.group import ConsumerGroup
from broker.core.groups.requests import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    GroupSettings,
    JoinGroupReply,
    JoinProtocol,
    SyncGroupReply,
)
from tidemark.codec.consumer_protocol import (
    ConsumerSubscription,
    read_assignment,
    write_assignment,
    write_subscription,
)
from tidemark.model.assignment import TopicIdPartitions
from tidemark.model.errors import ErrorCode
from unit.broker.core.groups.group_worlds import (
    ME,
    ORDERS,
    SETTINGS,
    World,
    join,
    joined,
    sync,
)


def protocol(*owned: int, generation: int = -1, name: str = "range") -> tuple[JoinProtocol, ...]:
    has = (("orders", owned),) if owned else ()
    subscription = ConsumerSubscription(3, ("orders",), has, generation)
    return (JoinProtocol(name, write_subscription(subscription)),)


def classic_world(
    *members: str, settings: GroupSettings = SETTINGS, instances: bool = False
) -> World:
    """A stable classic group in generation 1, in which the members share four partitions."""
    world = World(settings)
    asked = [
        world.send(join(new=one, protocols=protocol(), instance=one.upper() if instances else None))
        for one in members
    ]
    world.pass_time(0)
    assert [joined(world, one).generation_id for one in asked] == [1] * len(members)
    shares = {
        one: write_assignment({"orders": range(4)[place :: len(members)]}, 3)
        for place, one in enumerate(members)
    }
    for one in members:
        instance = one.upper() if instances else None
        world.send(sync(one, 1, shares if one == members[0] else {}, instance=instance))
    return world


def beats(
    world: World, member_id: str, epoch: int = 0, *owned: int, instance: str | None = None
) -> ConsumerGroupHeartbeatReply:
    """A full heartbeat."""
    has = (TopicIdPartitions(ORDERS, owned),) if owned else ()
    request = ConsumerGroupHeartbeat(
        group_id="g",
        member_id=member_id,
        new_member_id="",
        requester=ME,
        member_epoch=epoch,
        instance_id=instance,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=("orders",),
        topic_partitions=has,
    )
    return world.ask(request, ConsumerGroupHeartbeatReply)


def given(reply: ConsumerGroupHeartbeatReply) -> set[int]:
    assert reply.error_code is ErrorCode.NONE, reply.error_message
    assert reply.assignment is not None
    return {one for topic in reply.assignment for one in topic.partitions}


def joins(world: World, member_id: str, *owned: int, **more: object) -> JoinGroupReply:
    """A JoinGroup that is answered at once."""
    generation = more.pop("generation", -1)
    assert isinstance(generation, int)
    request = join(member_id, protocols=protocol(*owned, generation=generation), **more)  # type: ignore[arg-type]
    return world.ask(request, JoinGroupReply)


def synced(world: World, member_id: str, generation: int) -> set[int] | ErrorCode:
    """The partitions in a SyncGroup reply, or its error."""
    reply = world.ask(sync(member_id, generation), SyncGroupReply)
    if reply.error_code is not ErrorCode.NONE:
        return reply.error_code
    return {one for _, numbers in read_assignment(reply.assignment) for one in numbers}


def kind(world: World) -> str:
    """The type of group, and how many of its members use the classic protocol."""
    group = world.shard.state[0]["g"]
    if isinstance(group, ClassicGroup):
        return f"classic {len(group.members)}"
    assert isinstance(group, ConsumerGroup)
    return f"consumer {len(group.logged.classic_ids)} of {group.member_count}"
