from dataclasses import replace

import pytest
from controller.core.cluster import StoredCluster
from controller.core.controller import Role
from controller.core.effects import (
    CloseFeed,
    OpenFeed,
    PartitionResults,
    ProducerIds,
    Registered,
    Reply,
    Resign,
)
from controller.core.inputs import (
    AllocateProducerIds,
    Deposed,
    ElectLeaders,
    FeedAcknowledged,
    FeedLost,
    FeedRegained,
    LiveBrokersChanged,
    RegisterBroker,
    RequestHeader,
    StoreFailed,
    StoreWritten,
    Tick,
)
from controller.core.limits import Limits
from controller.core.liveness import incarnation_of
from controller.core.producer_ids import PRODUCER_ID_BLOCK
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_BROKER, BrokerEpoch, BrokerId, InstantMs
from tidemark.model.metadata import BrokerImage, FeedPosition, PartitionImage
from unit.controller.worlds import NEVER, NOW, World, a_broker, a_topic, create, delta_of, new_topic

LEASE_MS = Limits().lease_ms


def later(milliseconds: int) -> InstantMs:
    return InstantMs(NOW + milliseconds)


def only_partition(world: World, topic: str = "a") -> PartitionImage:
    assert world.machine.image is not None
    return world.machine.image.topics[topic].partitions[0]


def vanish(world: World, broker_id: int) -> None:
    del world.live[broker_id]
    world.step(LiveBrokersChanged(world.listing()))


def registration(broker: BrokerImage, world: World, cluster_id: str = "") -> Reply:
    """Register a broker without a live znode."""
    request = RequestHeader(1, NEVER)
    return world.ask(RegisterBroker(request, broker, cluster_id, world.listing()))


@pytest.mark.feature("H07")
def test_a_change_is_written_then_published_then_answered() -> None:
    world = World(brokers=1)
    effects = world.step(create(new_topic("a")))
    assert world.kinds(effects) == ["WriteStore", "Publish", "Reply"]
    assert [topic.name for topic in delta_of(effects).topics_changed] == ["a"]


def test_nothing_is_published_or_answered_before_it_is_written() -> None:
    world = World(brokers=1)
    world.hold = True
    assert world.kinds(world.step(create(new_topic("a")))) == ["WriteStore"]
    assert world.machine.image is not None
    assert world.machine.image.topics == {}
    assert world.kinds(world.written()) == ["Publish", "Reply"]


def test_the_reply_has_the_position_at_which_the_feed_shows_the_change() -> None:
    world = World(brokers=1)
    reply = world.ask(create(new_topic("a")))
    assert world.machine.image is not None
    assert reply.position == world.machine.image.position == FeedPosition(reply.position[0], 2)


def test_a_request_waits_for_the_one_before_and_sees_what_it_did() -> None:
    world = World(brokers=1)
    world.hold = True
    world.step(create(new_topic("a"), request_id=1))
    assert world.step(create(new_topic("a"), request_id=2)) == []
    *_, second = world.written()
    assert isinstance(second, Reply)
    assert second.request_id == 2
    assert second.result[0].error is ErrorCode.TOPIC_ALREADY_EXISTS  # type: ignore[index, union-attr]


def test_a_request_past_its_deadline_is_not_begun() -> None:
    world = World(brokers=1)
    request = replace(create(new_topic("a")), header=RequestHeader(1, InstantMs(500)))
    assert world.ask(request).error is ErrorCode.REQUEST_TIMED_OUT


def test_requests_beyond_the_bound_are_refused_at_once() -> None:
    world = World(brokers=1, requests_waiting_max=1)
    world.hold = True
    world.step(create(new_topic("a"), request_id=1))
    world.step(create(new_topic("b"), request_id=2))
    (refused,) = world.step(create(new_topic("c"), request_id=3))
    assert isinstance(refused, Reply)
    assert (refused.request_id, refused.error) == (3, ErrorCode.REQUEST_TIMED_OUT)


# A request in parts.


def many_led_by_2(requests_waiting_max: int = 10) -> World:
    """A world whose five partitions are not led by their preferred replica, broker 1."""
    topic, brokers = a_topic("a", *[(1, 2)] * 5), (a_broker(1), a_broker(2))
    led = tuple(replace(one, leader=BrokerId(2)) for one in topic.partitions)
    stored = StoredCluster("tide", brokers, (replace(topic, partitions=led),))
    world = World(
        stored=stored,
        live=brokers,
        elections_at_once=2,
        requests_waiting_max=requests_waiting_max,
    )
    for broker in brokers:
        world.step(FeedRegained(broker.broker_epoch))
    world.hold = True
    return world


ELECT_ALL = ElectLeaders(RequestHeader(1, NEVER), preferred=True, partitions=None)


@pytest.mark.feature("H09")
def test_partitions_are_led_as_requested_before_all_others_are_without_a_leader() -> None:
    world, leaderless = many_led_by_2(), []
    replies = [world.step(ELECT_ALL)]
    while world.held is not None:
        replies.append(world.written())
        image = world.machine.image
        assert image is not None
        leaders = [one.leader for one in image.topics["a"].partitions]
        leaderless.append(leaders.count(NO_BROKER))
        replies.append(world.step(FeedAcknowledged(a_broker(2).broker_epoch, image.position)))
    assert leaders == [1] * 5
    assert max(leaderless) < 5
    (reply,) = [one for step in replies for one in step if isinstance(one, Reply)]
    assert isinstance(reply.result, PartitionResults)
    assert [one.error for one in reply.result.partitions] == [ErrorCode.NONE] * 5


def test_other_requests_are_decided_between_the_parts_of_one() -> None:
    world = many_led_by_2()
    world.step(ELECT_ALL)
    world.step(create(new_topic("b"), request_id=2))
    world.written()
    assert [one.request_id for one in world.written() if isinstance(one, Reply)] == [2]


def test_the_rest_of_a_request_counts_as_one_that_waits() -> None:
    world = many_led_by_2(requests_waiting_max=2)
    world.step(ELECT_ALL)
    assert world.step(create(new_topic("b"), request_id=2)) == []
    (refused,) = world.step(create(new_topic("c"), request_id=3))
    assert isinstance(refused, Reply)
    assert (refused.request_id, refused.error) == (3, ErrorCode.REQUEST_TIMED_OUT)


def test_a_deposed_controller_refuses_the_rest_of_a_request() -> None:
    world = many_led_by_2()
    world.step(ELECT_ALL)
    _, refused = world.step(Deposed("test"))
    assert isinstance(refused, Reply)
    assert (refused.request_id, refused.error) == (1, ErrorCode.NOT_CONTROLLER)


# Roles.


def test_a_standby_answers_nothing_but_not_controller() -> None:
    world = World(brokers=1)
    world.step(Deposed("test"))
    assert world.ask(create(new_topic("a"))).error is ErrorCode.NOT_CONTROLLER


def test_a_deposed_controller_refuses_all_requests_and_has_no_state() -> None:
    world = World(brokers=1)
    world.hold = True
    world.step(create(new_topic("a"), request_id=1))
    world.step(create(new_topic("b"), request_id=2))
    closed, first, second = world.step(Deposed("session expired"))
    assert closed == CloseFeed("session expired")
    assert [reply.error for reply in (first, second) if isinstance(reply, Reply)] == [
        ErrorCode.NOT_CONTROLLER
    ] * 2
    assert (world.machine.role, world.machine.image) == (Role.STANDBY, None)


def test_a_write_that_ends_after_its_term_changes_nothing() -> None:
    world = World(brokers=1)
    world.hold = True
    world.step(create(new_topic("a")))
    world.step(Deposed("test"))
    assert world.written() == []
    assert world.elect(epoch=2) == [OpenFeed(world.machine.image)]  # type: ignore[arg-type]
    assert world.machine.image is not None
    assert world.machine.image.topics == {}


def test_a_failed_write_ends_the_term() -> None:
    world = World(brokers=1)
    world.hold = True
    world.step(create(new_topic("a")))
    assert world.held is not None
    effects = world.step(StoreFailed(world.held.write_id, "fenced"))
    assert world.kinds(effects) == ["CloseFeed", "Reply", "Resign"]
    assert effects[-1] == Resign("fenced")


@pytest.mark.feature("H03")
def test_a_new_controller_fences_brokers_that_died_before_its_term() -> None:
    world = World()
    world.step(Deposed("test"))
    stored = StoredCluster("tide", (a_broker(1),), (a_topic("a", (1,)),))
    effects = world.elect(stored, epoch=2)
    assert world.kinds(effects) == ["OpenFeed", "WriteStore", "Publish"]
    assert [broker.fenced for broker in delta_of(effects).brokers_changed] == [True]
    assert only_partition(world).leader == 1


@pytest.mark.feature("Y03", "H08")
def test_a_new_controller_counts_the_lease_from_its_own_first_read() -> None:
    world = World()
    world.step(Deposed("test"))
    brokers = (a_broker(1), a_broker(2))
    world.live[2] = brokers[1]
    world.elect(StoredCluster("tide", brokers, (a_topic("a", (1, 2)),)), epoch=2)
    world.step(Tick(), later(LEASE_MS - 1))
    assert only_partition(world).leader == 1
    world.step(Tick(), later(LEASE_MS))
    assert (only_partition(world).leader, only_partition(world).isr) == (2, (2,))


# Brokers.


@pytest.mark.feature("H03")
def test_a_broker_without_a_session_is_fenced_and_its_partition_leaderless() -> None:
    world = World(brokers=2)
    world.ask(
        create(
            new_topic(
                "a", assignments=((0, (BrokerId(1),)),), partition_count=-1, replication_factor=-1
            )
        )
    )
    vanish(world, 1)
    assert world.machine.image is not None
    assert world.machine.image.brokers[BrokerId(1)].fenced
    assert (only_partition(world).leader, only_partition(world).leader_epoch) == (1, 0)
    world.step(Tick(), later(LEASE_MS))
    assert (only_partition(world).leader, only_partition(world).leader_epoch) == (-1, 1)


@pytest.mark.feature("H03")
def test_it_leads_again_once_a_new_incarnation_has_registered() -> None:
    world = World(brokers=1)
    world.ask(create(new_topic("a")))
    vanish(world, 1)
    reply = world.register(a_broker(1, epoch=200), cluster_id="tide")
    assert reply.result == Registered(BrokerEpoch(201), "tide")
    assert (only_partition(world).leader, only_partition(world).leader_epoch) == (1, 1)


def test_an_unnoticed_restart_gets_a_new_leader_epoch() -> None:
    world = World(brokers=1)
    world.ask(create(new_topic("a")))
    world.register(a_broker(1, epoch=200))
    assert only_partition(world).leader_epoch > 0
    assert only_partition(world).leader == 1


def test_a_registration_repeated_after_a_lost_reply_changes_nothing() -> None:
    world = World(brokers=1)
    effects = world.step(
        RegisterBroker(RequestHeader(2, NEVER), a_broker(1), "tide", world.listing())
    )
    assert world.kinds(effects) == ["Reply"]


def test_a_second_broker_of_one_id_is_refused_while_the_first_lives() -> None:
    world = World(brokers=1)
    twin = a_broker(1, epoch=200)
    both = world.listing().live | {incarnation_of(twin)}
    listing = replace(world.listing(), live=both)
    reply = world.ask(RegisterBroker(RequestHeader(2, NEVER), twin, "", listing))
    assert reply.error is ErrorCode.DUPLICATE_BROKER_REGISTRATION


@pytest.mark.parametrize(
    ("broker", "cluster_id", "code"),
    [
        (a_broker(1), "", ErrorCode.BROKER_ID_NOT_REGISTERED),
        (a_broker(1), "ebb", ErrorCode.INCONSISTENT_CLUSTER_ID),
        (a_broker(-1), "", ErrorCode.INVALID_REGISTRATION),
        (a_broker(1, endpoints=()), "", ErrorCode.INVALID_REGISTRATION),
        (a_broker(1, endpoints=a_broker(1).endpoints * 2), "", ErrorCode.INVALID_REGISTRATION),
    ],
)
def test_a_wrong_registration_is_refused(
    broker: BrokerImage, cluster_id: str, code: ErrorCode
) -> None:
    assert registration(broker, World(), cluster_id).error is code


def test_a_listing_read_earlier_does_not_raise_the_dead() -> None:
    world = World(brokers=1)
    stale = world.listing()
    vanish(world, 1)
    reply = world.ask(RegisterBroker(RequestHeader(2, NEVER), a_broker(1), "", stale))
    assert reply.error is ErrorCode.BROKER_ID_NOT_REGISTERED


# Producer ids.


def test_blocks_of_producer_ids_never_overlap() -> None:
    world = World(brokers=2)
    blocks = [
        world.ask(AllocateProducerIds(RequestHeader(n, NEVER), BrokerId(n), BrokerEpoch(100 + n)))
        for n in (1, 2)
    ]
    assert [reply.result for reply in blocks] == [
        ProducerIds(0, PRODUCER_ID_BLOCK),
        ProducerIds(PRODUCER_ID_BLOCK, PRODUCER_ID_BLOCK),
    ]


@pytest.mark.parametrize(
    ("broker_id", "epoch", "code"),
    [(1, 7, ErrorCode.STALE_BROKER_EPOCH), (9, 109, ErrorCode.BROKER_ID_NOT_REGISTERED)],
)
def test_producer_ids_are_for_brokers_of_their_epoch(
    broker_id: int, epoch: int, code: ErrorCode
) -> None:
    world = World(brokers=1)
    request = AllocateProducerIds(RequestHeader(1, NEVER), BrokerId(broker_id), BrokerEpoch(epoch))
    assert world.ask(request).error is code


def test_nothing_is_due_while_a_change_is_on_its_way() -> None:
    """Nothing is decided then: a timer that is due would be due again at once, for ever."""
    world = World(brokers=2)
    machine = world.machine
    assert machine.image is not None
    epoch = machine.image.brokers[BrokerId(1)].broker_epoch
    machine.step(create(new_topic("a")), NOW)
    machine.step(FeedLost(epoch), NOW)
    assert machine.next_deadline(later(60_000)) is None
    machine.step(StoreWritten(machine._write_ids), later(1))
    assert machine.next_deadline(later(1)) is not None


def cut_off_from_zookeeper(world: World, *listening: int) -> None:
    """Every broker's session ends; those that listen still do."""
    image = world.machine.image
    assert image is not None
    for number in listening:
        world.step(FeedRegained(image.brokers[BrokerId(number)].broker_epoch))
    world.live.clear()
    world.step(LiveBrokersChanged(world.listing()))


def test_subscribed_brokers_are_alive_though_none_has_a_session() -> None:
    """Cut 8: no election and no write, because no other broker could lead the partitions."""
    world = World(brokers=2)
    world.step(create(new_topic("a", replication_factor=2)))
    before = world.machine.image
    cut_off_from_zookeeper(world, 1)
    world.step(Tick(), later(2 * LEASE_MS))
    assert world.machine.image is before
    assert before is not None
    world.step(FeedLost(before.brokers[BrokerId(1)].broker_epoch))
    after = world.machine.image
    assert after is not None
    assert all(one.fenced for one in after.brokers.values())


def test_a_broker_registers_again_while_its_predecessor_counts_as_alive_without_a_session() -> None:
    world = World(brokers=2)
    cut_off_from_zookeeper(world, 2)
    again = replace(a_broker(1, epoch=200), incarnation_id=b"another")
    assert world.register(again).error is ErrorCode.NONE


def test_brokers_that_neither_listen_nor_have_a_session_are_dead() -> None:
    world = World(brokers=2)
    cut_off_from_zookeeper(world)
    assert world.machine.image is not None
    assert all(one.fenced for one in world.machine.image.brokers.values())
