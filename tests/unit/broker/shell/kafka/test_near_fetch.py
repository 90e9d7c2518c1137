"""Consumers that read from followers: what leader and follower answer."""

from dataclasses import replace
from typing import Any

import pytest
from broker.read_replica_config import RACK_AWARE
from broker.shell.partitions.hosted import HostedPartition
from tidemark.codec.control_record import EndTxnMarker, build_marker
from tidemark.codec.record_batch import TRANSACTIONAL_BIT
from tidemark.codec.records import build_batch
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerId, LeaderEpoch
from tidemark.model.metadata import Endpoint
from unit.broker.shell.kafka.fetch_worlds import (
    COMMITTED_CONSUMER,
    CONSUMER,
    Fetcher,
    FetchWorld,
)
from unit.broker.shell.replicated_worlds import broker

RACKS = {1: "a", 2: "b", 3: "c"}
STALE = {"leader_epoch": LeaderEpoch(0)}


def near_world(selector: str = RACK_AWARE, **of_two: Any) -> FetchWorld:
    """Broker 1 leads one partition; each broker has a rack. ``of_two``: changes to broker 2."""
    world = FetchWorld(1, replica_selector_class=selector)
    ends = (Endpoint("CLIENT", "127.0.0.1", 9092),)
    brokers = [replace(broker(one), rack=rack, endpoints=ends) for one, rack in RACKS.items()]
    brokers[1] = replace(brokers[1], **of_two)
    world.change(brokers_changed=tuple(brokers))
    return world


def fetcher(world: FetchWorld, replica: int, rack: str = "") -> Fetcher:
    made = Fetcher(world, replica)
    made.rack = rack
    made.follow(0)
    return made


def replicated(world: FetchWorld) -> tuple[Fetcher, Fetcher]:
    """One record, which both followers have."""
    two, three = fetcher(world, 2), fetcher(world, 3)
    world.put(0)
    for one in (two, three, two, three):
        one.ask()
    return two, three


# ---------------------------------------------------------------- the leader


@pytest.mark.feature("A06")
def test_a_leader_names_the_follower_in_the_consumers_rack() -> None:
    world = near_world()
    replicated(world)
    consumer = fetcher(world, CONSUMER, "b")
    consumer.ask(wait_ms=500)
    assert not consumer.is_waiting
    assert consumer.preferred() == {0: 2}
    assert consumer.told()[0][2] == 0, "no records beside it"


@pytest.mark.feature("A06")
@pytest.mark.parametrize("rack", ["", "a", "elsewhere"])
def test_a_leader_serves_consumers_that_no_follower_is_near(rack: str) -> None:
    world = near_world()
    replicated(world)
    consumer = fetcher(world, CONSUMER, rack)
    consumer.ask()
    assert consumer.preferred() == {0: -1}
    assert consumer.positions == {0: 1}


@pytest.mark.feature("A06")
@pytest.mark.parametrize(
    "of_two", [{"fenced": True}, {"shutting_down": True}, {"endpoints": ()}, {"rack": "a"}]
)
def test_a_follower_that_consumers_cannot_use_is_not_named(of_two: dict[str, Any]) -> None:
    world = near_world(**of_two)
    replicated(world)
    consumer = fetcher(world, CONSUMER, "b")
    consumer.ask()
    assert consumer.preferred() == {0: -1}


@pytest.mark.feature("A06")
def test_a_follower_is_named_while_it_is_in_sync_also_in_a_session() -> None:
    world = near_world()
    replicated(world)
    world.shrink(0, 3)
    consumer = fetcher(world, CONSUMER, "b")
    for _ in range(3):
        consumer.ask()
    assert consumer.positions == {0: 1}
    world._restate(0, isr=tuple(map(BrokerId, (1, 2, 3))))
    consumer.ask()
    assert consumer.preferred() == {0: 2}


@pytest.mark.feature("A06")
def test_without_the_setting_a_rack_changes_nothing() -> None:
    world = near_world("")
    replicated(world)
    consumer = fetcher(world, CONSUMER, "b")
    consumer.ask()
    assert consumer.preferred() == {0: -1}
    assert consumer.positions == {0: 1}


@pytest.mark.feature("A06")
@pytest.mark.parametrize(("selector", "waits"), [(RACK_AWARE, False), ("", True)])
def test_a_waiting_follower_gets_a_new_high_watermark_at_once(selector: str, waits: bool) -> None:
    world = near_world(selector)
    two, three = fetcher(world, 2), fetcher(world, 3)
    world.put(0)
    two.ask()
    two.ask(wait_ms=500)
    assert two.is_waiting
    three.ask()
    three.ask()
    assert (two.is_waiting, two.told()[0][1]) == (waits, 0 if waits else 1)


# ---------------------------------------------------------------- the follower


def following(selector: str = RACK_AWARE) -> tuple[FetchWorld, HostedPartition]:
    """Broker 1 follows broker 2 in epoch 1."""
    world = near_world(selector)
    world._restate(0, leader=BrokerId(2), leader_epoch=LeaderEpoch(1))
    return world, world.at(0)


def receive(world: FetchWorld, batch: bytes) -> None:
    """As fetched from the leader."""
    hosted = world.at(0)
    stored = bytearray(batch)
    stored[:8] = hosted.partition.log_end.to_bytes(8, "big")
    stored[12:16] = (1).to_bytes(4, "big")
    appender, now_ms = world.parts.partitions.appender, world.clock.wall_ms()
    problem = appender.append_replicated(hosted, memoryview(stored), 1, now_ms)
    assert problem is None


def record(world: FetchWorld, **fields: Any) -> bytes:
    return build_batch([(world.clock.wall_ms(), None, b"x", ())], **fields)


def commit(world: FetchWorld, end: int) -> None:
    """As a leader's answer says."""
    hosted = world.at(0)
    assert hosted.partition.leader_told(end)
    on_readable = world.parts.replication.manager._parts.on_readable
    assert on_readable is not None
    on_readable(hosted)
    world.run()


def reader(world: FetchWorld, replica: int = CONSUMER, epoch: int = 1) -> Fetcher:
    made = fetcher(world, replica, "a")
    made.epochs[0] = epoch
    return made


@pytest.mark.feature("A06")
def test_a_follower_serves_what_is_below_its_high_watermark_as_it_moves() -> None:
    world, _ = following()
    receive(world, record(world))
    receive(world, record(world))
    consumer = reader(world)
    consumer.ask(wait_ms=500)
    assert consumer.is_waiting
    commit(world, 1)
    assert consumer.positions == {0: 1}
    consumer.ask()
    consumer.ask(wait_ms=500)
    assert consumer.is_waiting
    commit(world, 2)
    assert consumer.positions == {0: 2}


@pytest.mark.feature("A06")
def test_a_follower_waits_until_enough_is_readable() -> None:
    world, _ = following()
    batch = record(world)
    receive(world, batch)
    receive(world, batch)
    consumer = reader(world)
    consumer.ask(wait_ms=500, bytes_min=2 * len(batch))
    commit(world, 1)
    assert consumer.is_waiting
    commit(world, 2)
    assert consumer.positions == {0: 2}


@pytest.mark.feature("A06")
@pytest.mark.parametrize(
    ("offset", "epoch", "code"),
    [
        (0, 0, ErrorCode.FENCED_LEADER_EPOCH),
        (0, 2, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (1, 1, ErrorCode.NONE),
        (3, 1, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_a_follower_judges_offset_and_leader_epoch(offset: int, epoch: int, code: int) -> None:
    world, _ = following()
    receive(world, record(world))
    consumer = reader(world, epoch=epoch)
    consumer.positions[0] = offset
    consumer.ask()
    assert consumer.told() == {0: (code, 0 if code in (0, 1) else -1, 0)}


@pytest.mark.feature("A06")
def test_a_follower_that_is_not_in_sync_sends_its_consumers_back() -> None:
    world, _ = following()
    world._restate(0, leader=BrokerId(2), isr=(BrokerId(2), BrokerId(3)))
    consumer = reader(world)
    consumer.ask()
    assert consumer.told()[0][0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.feature("A06")
def test_without_the_setting_a_follower_serves_nobody() -> None:
    world, _ = following("")
    consumer = reader(world)
    consumer.ask()
    assert consumer.told()[0][0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.feature("A06", "M02")
def test_a_follower_serves_committed_records_up_to_its_last_stable_offset() -> None:
    world, hosted = following()
    txn = {"producer_id": 7, "producer_epoch": 0, "attributes_extra": TRANSACTIONAL_BIT}
    receive(world, record(world, **txn, base_sequence=0))
    receive(world, record(world))
    commit(world, 2)
    consumer = reader(world, COMMITTED_CONSUMER)
    consumer.ask(wait_ms=500)
    assert consumer.is_waiting
    marker = EndTxnMarker(commits=False, coordinator_epoch=0)
    receive(world, build_marker(marker, producer_id=7, producer_epoch=0, timestamp=1))
    assert hosted.partition.last_stable == 0
    commit(world, 3)
    assert consumer.positions == {0: 3}
    assert consumer.aborted() == [(7, 0)]
