"""Coordinator replicas: registration, shards, moves, and fencing by stream."""

from collections import Counter
from dataclasses import replace

import pytest
from controller.core.cluster import StoredCluster
from controller.core.effects import CoordinatorRegistered, RemoveCoordinatorZnode, ShardAcquired
from controller.core.inputs import (
    AcquireShard,
    CoordinatorRef,
    FeedAcknowledged,
    FeedLost,
    FeedRegained,
    LiveCoordinatorsChanged,
    RegisterCoordinator,
    RequestHeader,
    Tick,
)
from controller.core.limits import Limits
from controller.core.liveness import CoordinatorListing
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerEpoch, InstantMs
from tidemark.model.metadata import SHARE, TXN, ClusterImage, CoordinatorImage, ShardOwner
from tidemark.model.topics import SHARE_GROUP_STATE
from unit.controller.worlds import (
    NEVER,
    NOW,
    World,
    a_coordinator,
    coordinator_listing,
    create,
    delta_of,
    new_topic,
)

STATE = "__transaction_state"
LIMITS = Limits()


def a_world(*coordinators: CoordinatorImage, shards: int = 4) -> World:
    """Return a world with one broker, the state topic, and these coordinators."""
    world = World(brokers=1)
    if shards:
        world.ask(create(new_topic(STATE, shards)))
    for one in coordinators:
        assert world.join(one).error is ErrorCode.NONE
    return world


def image_of(world: World) -> ClusterImage:
    assert world.machine.image is not None
    return world.machine.image


def owners(world: World) -> list[int]:
    return [one.coordinator_id for one in image_of(world).shards[TXN]]


def epochs(world: World) -> list[int]:
    return [one.owner_epoch for one in image_of(world).shards[TXN]]


def acquire(one: CoordinatorImage, shard: int) -> AcquireShard:
    ref = CoordinatorRef(one.kind, one.coordinator_id, one.incarnation_id)
    return AcquireShard(RequestHeader(1, NEVER), ref, shard)


def settle(world: World, now: int = NOW) -> int:
    """Let time pass until no shard moves. Return the number of pauses."""
    pauses = 0
    while (due := world.machine.next_deadline(InstantMs(now))) is not None and due < now + 10_000:
        now, pauses = due, pauses + 1
        world.step(Tick(), InstantMs(now))
    return pauses


# -- registration


def test_a_coordinator_is_registered_under_the_epoch_of_its_znode() -> None:
    world, one = a_world(shards=0), a_coordinator(1)
    assert world.join(one).result == CoordinatorRegistered(one.coordinator_epoch, "tide")
    assert image_of(world).coordinators == {(TXN, 1): one}


def test_a_repetition_after_a_lost_reply_writes_nothing() -> None:
    one = a_coordinator(1)
    world = a_world(one)
    version = image_of(world).position
    assert world.join(one).error is ErrorCode.NONE
    assert image_of(world).position == version


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"kind": "groups"}, ErrorCode.INVALID_REGISTRATION),
        ({"coordinator_id": -1}, ErrorCode.INVALID_REGISTRATION),
        ({"grpc_endpoint": ""}, ErrorCode.INVALID_REGISTRATION),
        ({"coordinator_epoch": -1}, ErrorCode.BROKER_ID_NOT_REGISTERED),
    ],
)
def test_an_invalid_coordinator_is_refused(changes: dict[str, object], code: ErrorCode) -> None:
    one = replace(a_coordinator(1), **changes)  # type: ignore[arg-type]
    assert a_world(shards=0).join(one).error is code


def test_without_a_live_znode_there_is_no_registration() -> None:
    world, one = a_world(shards=0), a_coordinator(1)
    request = RegisterCoordinator(RequestHeader(1, NEVER), one, "", CoordinatorListing(TXN, 99))
    assert world.ask(request).error is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_coordinator_of_another_cluster_is_refused() -> None:
    world, one = a_world(shards=0), a_coordinator(1)
    request = RegisterCoordinator(RequestHeader(1, NEVER), one, "ebb", coordinator_listing(99, one))
    assert world.ask(request).error is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_two_processes_of_one_id_do_not_take_turns() -> None:
    first, second = a_coordinator(1), a_coordinator(1, epoch=900)
    world = a_world(first)
    listing = coordinator_listing(99, first, second)
    reply = world.ask(RegisterCoordinator(RequestHeader(1, NEVER), second, "", listing))
    assert reply.error is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert image_of(world).coordinators[TXN, 1] == first


def test_a_new_process_inherits_under_higher_epochs() -> None:
    first, second = a_coordinator(1), a_coordinator(1, epoch=900)
    world = a_world(first)
    listing = coordinator_listing(99, second)
    world.coordinators = {(TXN, 1): second}
    assert world.ask(RegisterCoordinator(RequestHeader(1, NEVER), second, "", listing)).error == 0
    assert owners(world) == [1] * 4
    assert min(epochs(world)) > 1


def test_a_new_session_keeps_its_shards() -> None:
    one = a_coordinator(1)
    world = a_world(one)
    world.join(replace(one, coordinator_epoch=777))
    assert epochs(world) == [1] * 4
    assert image_of(world).coordinators[TXN, 1].coordinator_epoch == 777


# -- owners of shards


@pytest.mark.feature("H15")
def test_shards_are_spread_over_the_living_as_soon_as_there_is_a_state_topic() -> None:
    world = a_world(a_coordinator(1), a_coordinator(2), shards=0)
    assert image_of(world).shards == {}
    world.ask(create(new_topic(STATE, 5)))
    assert owners(world) == [1, 2, 1, 2, 1]
    assert epochs(world) == [1] * 5


def test_each_kind_of_coordinator_has_the_shards_of_its_own_topic() -> None:
    world = a_world(a_coordinator(1), shards=2)
    world.ask(create(new_topic(SHARE_GROUP_STATE, 3)))
    one = replace(a_coordinator(2), kind=SHARE)
    listing = CoordinatorListing(SHARE, 99, frozenset({(2, one.incarnation_id)}))
    assert world.ask(RegisterCoordinator(RequestHeader(1, NEVER), one, "", listing)).error is (
        ErrorCode.NONE
    )
    shards = image_of(world).shards
    assert [owner.coordinator_id for owner in shards[TXN]] == [1] * 2
    assert [owner.coordinator_id for owner in shards[SHARE]] == [2] * 3


def test_without_a_coordinator_shards_are_nobodys() -> None:
    world = a_world()
    assert image_of(world).shards == {TXN: tuple(map(ShardOwner, range(4)))}


@pytest.mark.feature("H15")
def test_the_shards_of_the_dead_move_at_once_under_higher_epochs() -> None:
    world = a_world(a_coordinator(1), a_coordinator(2), shards=0)
    world.ask(create(new_topic(STATE, 4)))
    delta = delta_of(world.leave(TXN, 2))
    assert delta.coordinators_gone == ((TXN, 2),)
    assert delta.shards_changed == {TXN: (ShardOwner(1, 1, 2), ShardOwner(3, 1, 2))}
    assert owners(world) == [1] * 4


def test_the_last_one_to_go_leaves_nobodys_shards() -> None:
    world = a_world(a_coordinator(1))
    world.leave(TXN, 1)
    assert image_of(world).shards[TXN] == tuple(ShardOwner(n, -1, 1) for n in range(4))
    assert image_of(world).coordinators == {}


def test_a_new_coordinator_gets_its_share_a_few_shards_at_a_time() -> None:
    world = a_world(a_coordinator(1), shards=50)
    world.join(a_coordinator(2))
    assert owners(world).count(2) == LIMITS.shard_moves_max
    pauses = settle(world)
    assert owners(world).count(2) == 25
    assert pauses >= 25 // LIMITS.shard_moves_max - 1
    assert max(epochs(world)) == 2


def test_a_death_ends_the_wait_for_a_balance_that_is_not_needed() -> None:
    world = a_world(a_coordinator(1), shards=50)
    world.join(a_coordinator(2))
    world.leave(TXN, 2)
    assert owners(world) == [1] * 50
    assert settle(world) <= 1


@pytest.mark.feature("E12")
def test_only_the_owner_acquires_and_each_time_under_a_higher_epoch() -> None:
    one, two = a_coordinator(1), a_coordinator(2)
    world = a_world(one, two, shards=0)
    world.ask(create(new_topic(STATE, 2)))
    assert world.ask(acquire(one, 0)).result == ShardAcquired(2)
    assert world.ask(acquire(one, 0)).result == ShardAcquired(3)
    assert world.ask(acquire(two, 0)).error is ErrorCode.NOT_COORDINATOR
    assert image_of(world).shards[TXN][0] == ShardOwner(0, 1, 3)


@pytest.mark.parametrize("shard", [-1, 4])
def test_there_is_no_other_shard(shard: int) -> None:
    one = a_coordinator(1)
    assert a_world(one).ask(acquire(one, shard)).error is ErrorCode.NOT_COORDINATOR


def test_an_earlier_process_of_the_owner_acquires_nothing() -> None:
    world = a_world(a_coordinator(1))
    refused = world.ask(acquire(a_coordinator(1, epoch=3), 0))
    assert refused.error is ErrorCode.NOT_COORDINATOR
    assert "another process" in refused.message


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["join", "leave", "acquire", "wait"]), st.integers(1, 4)),
    max_size=20,
)


class Walk:
    """A world that coordinators join and leave, with the invariants of every step."""

    def __init__(self) -> None:
        self.world = a_world(shards=7)
        self.holders: dict[tuple[int, int], bytes] = {}
        self.epoch = 500
        self.now = int(NOW)

    def take(self, action: str, number: int) -> None:
        known = self.world.coordinators.get((TXN, number))
        before = epochs(self.world)
        if action == "join":
            self.epoch += 10
            one = a_coordinator(number, epoch=self.epoch)
            assert self.world.join(one).error is ErrorCode.NONE
        elif action == "wait":
            self.now += LIMITS.shard_move_interval_ms
            self.world.step(Tick(), InstantMs(self.now))
        elif known is not None and action == "leave":
            self.world.leave(TXN, number)
        elif known is not None:
            self.world.ask(acquire(known, number))
        assert all(now >= then for now, then in zip(epochs(self.world), before, strict=True))
        self.look()

    def look(self) -> None:
        """An owner epoch belongs to one process, for ever."""
        image = image_of(self.world)
        for one in image.shards[TXN]:
            owner = image.shard_owner(TXN, one.shard)
            if owner is not None:
                key = one.shard, one.owner_epoch
                assert self.holders.setdefault(key, owner.incarnation_id) == owner.incarnation_id


@pytest.mark.feature("E12")
@given(ACTIONS)
@settings(max_examples=60, deadline=None)
def test_no_two_processes_ever_have_a_shard_under_the_same_epoch(
    actions: list[tuple[str, int]],
) -> None:
    walk = Walk()
    for action, number in actions:
        walk.take(action, number)
    living = len(walk.world.coordinators)
    for _ in range(7):
        walk.take("wait", 1)
    loads = Counter(owners(walk.world))
    assert len(loads) == max(1, living)
    assert max(loads.values()) - min(loads.values()) <= 1


# Terms.


def test_a_new_term_goes_on_where_the_old_one_ended() -> None:
    one = a_coordinator(1)
    stored = StoredCluster("tide", coordinators=(one,), shards={TXN: (ShardOwner(0, 1, 7),)})
    world = World(stored=stored, coordinators=(one,))
    assert image_of(world).shards[TXN] == (ShardOwner(0, 1, 7),)
    assert world.ask(acquire(one, 0)).result == ShardAcquired(8)


def test_a_coordinator_that_died_between_two_terms_owns_nothing() -> None:
    stored = StoredCluster(
        "tide", coordinators=(a_coordinator(1),), shards={TXN: (ShardOwner(0, 1, 7),)}
    )
    world = World(stored=stored)
    assert image_of(world).coordinators == {}
    assert image_of(world).shards[TXN] == (ShardOwner(0, -1, 7),)


def test_an_earlier_listing_does_not_undo_a_later_one() -> None:
    one = a_coordinator(1)
    world = a_world(one)
    world.step(LiveCoordinatorsChanged(CoordinatorListing(TXN, -1)))
    assert (TXN, 1) in image_of(world).coordinators


# Streams.


def lost_stream(world: World, one: CoordinatorImage) -> None:
    world.step(FeedRegained(BrokerEpoch(one.coordinator_epoch)))
    world.step(FeedLost(BrokerEpoch(one.coordinator_epoch)))


def fenced(world: World, after_ms: int) -> list[RemoveCoordinatorZnode]:
    effects = world.step(Tick(), InstantMs(NOW + after_ms))
    return [effect for effect in effects if isinstance(effect, RemoveCoordinatorZnode)]


def test_a_stream_that_stays_broken_costs_the_znode_once() -> None:
    one = a_coordinator(1)
    world = a_world(one)
    world.step(FeedRegained(BrokerEpoch(101)))  # the broker's
    lost_stream(world, one)
    assert fenced(world, LIMITS.feed_lost_fence_ms - 1) == []
    removal = RemoveCoordinatorZnode(TXN, 1, one.incarnation_id)
    assert fenced(world, LIMITS.feed_lost_fence_ms) == [removal]
    assert fenced(world, 2 * LIMITS.feed_lost_fence_ms) == []


def test_a_stream_that_comes_back_costs_nothing() -> None:
    one = a_coordinator(1)
    world = a_world(one)
    world.step(FeedRegained(BrokerEpoch(101)))
    lost_stream(world, one)
    world.step(FeedRegained(BrokerEpoch(one.coordinator_epoch)))
    assert fenced(world, 10 * LIMITS.feed_lost_fence_ms) == []


def test_a_controller_without_subscribers_fences_nobody() -> None:
    one = a_coordinator(1)
    world = a_world(one)
    lost_stream(world, one)
    assert fenced(world, LIMITS.feed_lost_fence_ms) == []
    due = world.machine.next_deadline(InstantMs(NOW + LIMITS.feed_lost_fence_ms))
    assert due is None or due > NOW + LIMITS.feed_lost_fence_ms


def test_a_coordinators_acknowledgement_is_no_brokers() -> None:
    one = a_coordinator(1)
    world = a_world(one)
    epoch = BrokerEpoch(one.coordinator_epoch)
    assert world.step(FeedAcknowledged(epoch, image_of(world).position)) == []


def test_a_coordinator_that_never_has_a_stream_is_fenced_once_brokers_have_one() -> None:
    one, patience_ms = a_coordinator(1), LIMITS.no_subscriber_resign_ms
    world = a_world(one)
    assert fenced(world, patience_ms - 1) == []
    world.step(FeedRegained(BrokerEpoch(101)), InstantMs(NOW + patience_ms - 1))
    assert fenced(world, 2 * patience_ms - 2) == []
    removal = RemoveCoordinatorZnode(TXN, 1, one.incarnation_id)
    assert fenced(world, 2 * patience_ms - 1) == [removal]
