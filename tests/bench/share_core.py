"""CPU times of a share-coordinator's core, without a log: heartbeats, assignments and writes of
state of a share group of 200 members over 100 partitions.
"""

import statistics
import time
from collections.abc import Callable
from typing import Final

from bench.report import Row
from share_coordinator.core.assignors import ASSIGNORS, AssignorMember, Demand
from share_coordinator.core.requests import AskStates
from share_coordinator.core.shard import ShareDecision
from tidemark.codec.share_records import encode
from tidemark.model.ids import LeaderEpoch
from tidemark.model.share_state import (
    UNKNOWN_START,
    DeliveryState,
    SharePartitionKey,
    StateBatch,
    WriteState,
)
from tidemark.runtime.event_loop import collect_young_garbage_only
from unit.share_coordinator.worlds import ASSIGNMENT_MS, G, World, a_write, batch

MEMBERS: Final = 200
PARTITIONS: Final = 100
ROUNDS: Final = 50
BATCHES: Final = 10_000
HEARTBEAT_US_MAX: Final = 100.0
ASSIGNMENT_MS_MAX: Final = 50.0
GROUP: Final = f"share group: {MEMBERS} members, {PARTITIONS} partitions, CPU of the core"


def bench_share_core() -> list[Row]:
    """Heartbeats, assignments, writes of state."""
    collect_young_garbage_only()
    world = a_full_group()
    return [heartbeat(world), join(), *map(assignment, ASSIGNORS), *writes(world)]


def a_full_group() -> World:
    """All members have joined, and have their partitions."""
    world = World(t=PARTITIONS)
    world.checks = False
    for number in range(MEMBERS):
        world.join(f"m{number}", "t")
    world.sleep(ASSIGNMENT_MS)
    for number in range(MEMBERS):
        world.given_to(f"m{number}")
    return world


def heartbeat(world: World) -> Row:
    """One in the member's epoch, without news; MemberTimers and the answer included."""
    epoch = world.logged().members["m7"].member_epoch
    spent = cpu_us(lambda: world.beat("m7", epoch), ROUNDS * 20)
    row = Row(GROUP, "heartbeat without news", extra={"us": spent})
    row.bound, row.held = f"<{HEARTBEAT_US_MAX:.0f} us", spent < HEARTBEAT_US_MAX
    return row


def join() -> Row:
    """Of the last member, at the group's greatest size; its target comes later."""
    spent: list[float] = []
    for _ in range(5):
        world = a_full_group()
        world.beat("m0", -1)
        world.join("m0", "t")  # a target was computed just now: the next ones wait for their turn
        world.beat("m1", -1)
        spent.append(cpu_us(lambda world=world: world.join("m1", "t"), 1))  # type: ignore[misc]
    return Row(GROUP, "a member joins", extra={"us": statistics.median(spent)})


def assignment(name: str) -> Row:
    """A target for all members, from nothing, and after one of them left."""
    topic_id = World(t=PARTITIONS).key("t", 0).topic_id
    lags = {(topic_id, number): number * 10 for number in range(PARTITIONS)}
    demand, assign = Demand({topic_id: PARTITIONS}, lags), ASSIGNORS[name]
    members = [AssignorMember(f"m{number}", frozenset({topic_id})) for number in range(MEMBERS)]
    targets = assign(members, demand)
    settled = [AssignorMember(one.member_id, one.topics, targets[one.member_id]) for one in members]
    first_ms = cpu_us(lambda: assign(members, demand), ROUNDS) / 1_000
    left_ms = cpu_us(lambda: assign(settled[1:], demand), ROUNDS) / 1_000
    row = Row(GROUP, f"assignment, {name}", extra={"first_ms": first_ms, "one_left_ms": left_ms})
    row.bound = f"<{ASSIGNMENT_MS_MAX:.0f} ms"
    row.held = max(first_ms, left_ms) < ASSIGNMENT_MS_MAX
    return row


def writes(world: World) -> list[Row]:
    """State of share-partitions: decided, replayed and encoded."""
    keys = [world.key("t", number) for number in range(PARTITIONS)]
    for key in keys:
        world.write(key, start=0)
    one = [write_of(world, keys[0])]
    all_of_them = [write_of(world, key) for key in keys]
    rows = [
        Row(GROUP, "write of 1 share-partition", extra={"us": written_us(world, one)}),
        Row(
            GROUP,
            f"write of {PARTITIONS} share-partitions",
            extra={"us": written_us(world, all_of_them)},
        ),
    ]
    kept = [batch(2 * at, 2 * at, DeliveryState.ACKNOWLEDGED) for at in range(BATCHES)]
    world.write(keys[0], *kept)
    rows.append(
        Row(
            GROUP,
            f"write of 1 share-partition that has {BATCHES:,} batches",
            extra={"us": written_us(world, one)},
        )
    )
    return rows


def write_of(world: World, key: SharePartitionKey) -> WriteState:
    """One acknowledged batch of ten records."""
    acknowledged: StateBatch = batch(100, 109, DeliveryState.ACKNOWLEDGED)
    return a_write(key, world.epoch_of(key), acknowledged, start=UNKNOWN_START)


def written_us(world: World, requests: list[WriteState]) -> float:
    """CPU time of one request with these writes."""

    def once() -> None:
        request = AskStates(G, tuple(requests))
        decision: ShareDecision = world.shard.decide(1, request, world.now)
        for record in decision.records:
            encode(record)
            world.shard.replay(record, None)

    assert requests[0].leader_epoch == LeaderEpoch(0)
    return cpu_us(once, ROUNDS)


def cpu_us(work: Callable[[], object], rounds: int) -> float:
    """Median CPU time of one call."""
    spent = []
    for _ in range(rounds):
        started = time.process_time_ns()
        work()
        spent.append((time.process_time_ns() - started) / 1_000)
    return statistics.median(spent)
