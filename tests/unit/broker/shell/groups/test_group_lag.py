"""Lag of groups: ends from replicas here, from leaders elsewhere, bounded and cached."""

import asyncio
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from broker.core.groups.statistics import GroupFigures
from broker.core.partition import Role
from broker.metrics_config import MetricsConfig
from broker.shell.groups.group_lag import GroupLag, GroupSum, LagFigures, sums_of
from manual_clock import ManualClock
from tidemark.model.topics import TopicPartition

ID = b"i" * 16


class Ends:
    """Leaders elsewhere, which answer with one end."""

    def __init__(self, end: int | None) -> None:
        self.end = end
        self.asked: list[list[TopicPartition]] = []

    async def of(self, partitions: Iterable[TopicPartition], **_: object) -> dict[Any, int]:
        self.asked.append(sorted(partitions))
        return {} if self.end is None else {(ID, one.partition): self.end for one in self.asked[-1]}


def group(name: str, members: int, **offsets: int) -> GroupFigures:
    """A group with offsets in partitions ``p0``, ``p1`` of one topic."""
    positions = {
        TopicPartition("t", int(at[1:])): SimpleNamespace(value=SimpleNamespace(offset=offset))
        for at, offset in offsets.items()
    }
    return GroupFigures(name, members, cast("Any", positions))


def hosted(role: Role, high_watermark: int) -> Any:
    partition = SimpleNamespace(role=role, high_watermark=high_watermark, broker_id=1)
    return SimpleNamespace(partition=partition)


class World:
    """Partition 0 is led here, 1 and 2 are followed (2 not in sync), 3 is elsewhere."""

    def __init__(self, *groups: GroupFigures, end: int | None = 40, **options: Any) -> None:
        self.groups: Sequence[GroupFigures] = groups
        self.ends = Ends(end)
        self.clock = ManualClock()
        self.here = {
            ("t", 0): hosted(Role.LEADER, 10),
            ("t", 1): hosted(Role.FOLLOWER, 20),
            ("t", 2): hosted(Role.FOLLOWER, 30),
        }
        isrs = [SimpleNamespace(isr=isr) for isr in ((1, 2), (1, 2), (2,), (2,))]
        topic = SimpleNamespace(topic_id=ID, partitions=isrs)
        metadata = SimpleNamespace(image=SimpleNamespace(topics={"t": topic}))
        self.lag = GroupLag(
            MetricsConfig(**options),
            cast("Any", SimpleNamespace(figures=lambda: iter(self.groups))),
            cast("Any", self.here),
            cast("Any", metadata),
            cast("Any", self.ends),
            self.clock,
        )

    def read(self) -> LagFigures:
        asyncio.run(self.lag.refresh())
        return self.lag.figures


def lags(figures: LagFigures) -> list[tuple[str, int, int | None]]:
    return [(one.group_id, one.at.partition, one.lag) for one in figures.positions]


@pytest.mark.feature("AD73")
def test_ends_come_from_in_sync_replicas_here_and_else_from_leaders() -> None:
    world = World(group("g", 2, p0=4, p1=5, p2=6, p3=50))
    assert lags(world.read()) == [("g", 0, 6), ("g", 1, 15), ("g", 2, 34), ("g", 3, 0)]
    assert [[at.partition for at in asked] for asked in world.ends.asked] == [[2, 3]]
    assert world.lag.figures.members == [("g", 2)]


def test_a_partition_that_the_metadata_does_not_show_is_asked_for_elsewhere() -> None:
    """The topic was created again with fewer partitions, and this broker has not followed yet."""
    world = World(group("g", 0, p4=1))
    world.here["t", 4] = hosted(Role.FOLLOWER, 9)
    assert lags(world.read()) == [("g", 4, 39)]


def test_lag_of_a_partition_whose_leader_does_not_answer_is_unknown() -> None:
    assert lags(World(group("g", 0, p3=1), end=None).read()) == [("g", 3, None)]


def test_figures_are_kept_for_a_while_and_then_computed_again() -> None:
    world = World(group("g", 0, p0=4))
    world.read()
    world.groups = [group("g", 0, p0=9)]
    world.clock.advance(9_999)
    assert lags(world.read()) == [("g", 0, 6)]
    world.clock.advance(1)
    assert lags(world.read()) == [("g", 0, 1)]


def test_groups_beyond_the_bound_are_cut_those_with_members_last() -> None:
    idle, busy = group("a", 0, p0=1, p1=1), group("b", 1, p0=2)
    figures = World(idle, busy, metrics_group_positions_max=2).read()
    assert lags(figures) == [("b", 0, 8)]
    assert (figures.cut, figures.members) == (2, [("b", 1), ("a", 0)])


def test_nothing_is_computed_while_it_is_switched_off() -> None:
    world = World(group("g", 1, p3=1), metrics_group_lag_enable=False)
    assert (world.read(), world.ends.asked) == (LagFigures(), [])


@pytest.mark.feature("AD44")
def test_groups_are_summed_and_those_with_the_largest_lag_come_first() -> None:
    world = World(group("a", 0, p0=9), group("b", 2, p0=4, p3=1), group("c", 1), end=None)
    world.read()
    assert sums_of(world.lag.figures) == [
        GroupSum("b", lag=6, unknown=1, members=2),
        GroupSum("a", lag=1, unknown=0, members=0),
        GroupSum("c", lag=0, unknown=0, members=1),
    ]
