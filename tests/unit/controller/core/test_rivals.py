"""Two processes of one broker id: what the first one led is elected a lease after it was gone."""

from dataclasses import replace

import pytest
from controller.core.effects import Reply
from controller.core.inputs import (
    FeedAcknowledged,
    FeedLost,
    FeedRegained,
    LiveBrokersChanged,
    RegisterBroker,
    RequestHeader,
    Tick,
)
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerEpoch, BrokerId, InstantMs
from tidemark.model.metadata import BrokerImage, PartitionImage
from unit.controller.worlds import NEVER, World, a_broker, create, new_topic, stored_by

LEASE_MS = 3_000
GONE_AT = 2_500
"""Time at which the live znode of the first process is removed."""
OLD_DISKS, NEW_DISKS = (b"o" * 16,), (b"n" * 16,)


def at(milliseconds: int) -> InstantMs:
    return InstantMs(milliseconds)


def first() -> BrokerImage:
    return a_broker(1, boot_id="one", log_dir_ids=OLD_DISKS)


def rival() -> BrokerImage:
    """Another process with the id of the first, on another machine."""
    return a_broker(1, epoch=200, boot_id="two", log_dir_ids=NEW_DISKS, node="elsewhere")


def led_by_the_first() -> World:
    """Brokers 1 and 2 have a partition that 1 leads; then 1 is cut off, and its znode removed."""
    world = World()
    second = a_broker(2, boot_id="three", log_dir_ids=(b"2" * 16,))
    for broker in (first(), second):
        world.register(broker)
        world.step(FeedRegained(broker.broker_epoch))
    world.ask(create(new_topic("a", -1, -1, assignments=A)))
    world.step(FeedLost(first().broker_epoch), at(2_000))
    del world.live[1]
    world.step(LiveBrokersChanged(world.listing()), at(GONE_AT))
    return world


A = ((0, (BrokerId(1), BrokerId(2))),)


def partition(world: World) -> PartitionImage:
    assert world.machine.image is not None
    return world.machine.image.topics["a"].partitions[0]


def register(world: World, broker: BrokerImage, now: InstantMs) -> ErrorCode:
    """Create the live znode and register; then acknowledge the whole feed."""
    world.live[1] = broker
    request = RegisterBroker(RequestHeader(7, NEVER), broker, "", world.listing())
    (reply,) = [one for one in world.step(request, now) if isinstance(one, Reply)]
    assert world.machine.image is not None
    if reply.error is ErrorCode.NONE:
        world.step(FeedAcknowledged(broker.broker_epoch, world.machine.image.position), now)
    return reply.error


@pytest.mark.feature("Y03")
def test_a_process_with_other_directories_does_not_end_the_wait_for_the_lease() -> None:
    world = led_by_the_first()
    code = register(world, rival(), at(GONE_AT + 20))
    assert code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    world.step(Tick(), at(GONE_AT + LEASE_MS - 1))
    assert (partition(world).leader, partition(world).leader_epoch) == (1, 0)
    world.step(Tick(), at(GONE_AT + LEASE_MS))
    assert (partition(world).leader, partition(world).isr) == (2, (2,))
    assert register(world, rival(), at(GONE_AT + LEASE_MS)) is ErrorCode.NONE


@pytest.mark.feature("Y03")
def test_the_refusal_names_the_lease_that_is_waited_for() -> None:
    world = led_by_the_first()
    register(world, rival(), at(GONE_AT + 20))
    (reply,) = [one for one in world.effects if isinstance(one, Reply) and one.request_id == 7]
    assert "directories" in reply.message
    assert "2980 ms" in reply.message


@pytest.mark.feature("Y03")
def test_a_new_controller_waits_a_lease_from_its_first_look() -> None:
    world = led_by_the_first()
    stored = stored_by(world)
    after = World(stored=stored, live=(rival(), world.live[2]))
    code = register(after, rival(), at(1_000))
    assert code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    after.step(Tick(), at(1_000 + LEASE_MS))
    assert register(after, rival(), at(1_000 + LEASE_MS)) is ErrorCode.NONE


def test_a_process_that_holds_the_directories_need_not_wait() -> None:
    world = led_by_the_first()
    again = replace(first(), incarnation_id=b"again", broker_epoch=rival().broker_epoch)
    assert register(world, again, at(GONE_AT + 20)) is ErrorCode.NONE
    assert (partition(world).leader, partition(world).leader_epoch) == (1, 1)


@pytest.mark.feature("Y03")
def test_a_live_znode_from_before_the_last_registration_must_be_made_again() -> None:
    world = led_by_the_first()
    early = replace(rival(), broker_epoch=BrokerEpoch(first().broker_epoch - 1))
    end_of_lease = at(GONE_AT + LEASE_MS)
    assert register(world, early, end_of_lease) is ErrorCode.STALE_BROKER_EPOCH
    (reply,) = [one for one in world.effects if isinstance(one, Reply) and one.request_id == 7]
    assert "must be made again" in reply.message
    assert register(world, rival(), end_of_lease) is ErrorCode.NONE
