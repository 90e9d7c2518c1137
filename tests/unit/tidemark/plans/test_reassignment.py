"""Plans: what they promise, whatever the cluster looks like, and that none is better."""

from collections import Counter
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.model.topics import TopicPartition
from tidemark.plans.errors import PlanError
from tidemark.plans.reassignment import Move, Replicas, Site, balanced, drained

Current = dict[TopicPartition, Replicas]


def orders(*replicas: Replicas) -> Current:
    return {TopicPartition("orders", number): each for number, each in enumerate(replicas)}


def sites(*numbers: int) -> list[Site]:
    return [Site(number) for number in numbers]


def after(current: Current, moves: list[Move]) -> Current:
    return {**current, **{move.partition: move.after for move in moves}}


def loads(placed: Current, brokers: list[Site]) -> list[int]:
    counts = Counter(broker for replicas in placed.values() for broker in replicas)
    return [counts[site.broker_id] for site in brokers]


def led(placed: Current, brokers: list[Site]) -> list[int]:
    counts = Counter(replicas[0] for replicas in placed.values())
    return [counts[site.broker_id] for site in brokers]


def copies(moves: list[Move]) -> int:
    return sum(len(move.adding) for move in moves)


# ---- by example


def test_what_is_even_stays() -> None:
    assert balanced(orders((1, 2), (2, 3), (3, 1)), sites(1, 2, 3)) == []


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    current = orders((1, 2), (2, 1), (1, 2), (2, 1), (1, 2), (2, 1))
    moves = balanced(current, sites(1, 2, 3))
    placed = after(current, moves)
    assert loads(placed, sites(1, 2, 3)) == [4, 4, 4]
    assert led(placed, sites(1, 2, 3)) == [2, 2, 2]
    assert copies(moves) == 4


def test_uneven_leaders_change_places_without_a_copy() -> None:
    current = orders((1, 2), (1, 2), (1, 2), (1, 2))
    moves = balanced(current, sites(1, 2))
    assert copies(moves) == 0
    assert led(after(current, moves), sites(1, 2)) == [2, 2]


def test_a_drain_moves_only_what_must_go() -> None:
    current = orders((1, 2), (2, 3), (3, 1), (1, 2), (1, 2))
    moves = drained(current, sites(1, 2, 4))
    assert [move.partition.partition for move in moves] == [1, 2]
    assert all(move.removing == (3,) for move in moves)
    assert {move.adding for move in moves} == {(4,)}


def test_a_drain_leaves_the_replicas_of_a_dead_broker() -> None:
    current = orders((1, 5), (3, 2))
    (move,) = drained(current, [*sites(1, 2, 4), Site(5, takes=False)])
    assert (move.partition.partition, move.adding) == (1, (4,))


def test_who_comes_stands_where_somebody_went() -> None:
    (move,) = drained(orders((1, 2, 3)), sites(1, 3, 4))
    assert move.after == (1, 4, 3)


def test_replicas_spread_over_racks() -> None:
    racked = [Site(1, "a"), Site(2, "a"), Site(3, "b"), Site(4, "b")]
    (move,) = balanced(orders((1, 2)), racked)
    assert {racked[one - 1].rack for one in move.after} == {"a", "b"}


def test_too_few_nodes_for_the_replicas_are_named() -> None:
    one_machine = [Site(1, node="m"), Site(2, node="m")]
    with pytest.raises(PlanError, match=r"orders-0 has 2 replicas; brokers 1,2 are on 1 node"):
        balanced(orders((1, 2)), one_machine)


# ---- whatever the cluster looks like


@st.composite
def clusters(draw: st.DrawFn, *, brokers_max: int) -> list[Site]:
    count = draw(st.integers(2, brokers_max))
    racks = draw(st.integers(1, 3))
    nodes = draw(st.integers(2, count))
    return [
        Site(one, rack=f"r{one % nodes % racks}", node=f"n{one % nodes}") for one in range(count)
    ]


@st.composite
def worlds(
    draw: st.DrawFn, brokers_max: int = 7, partitions_max: int = 14
) -> tuple[Current, list[Site]]:
    where = draw(clusters(brokers_max=brokers_max))
    nodes = len({site.node for site in where})
    anybody = st.sampled_from(range(len(where) + 2))  # two that are to be left
    replicas = st.integers(1, min(nodes, 3)).flatmap(
        lambda factor: st.lists(anybody, min_size=factor, max_size=factor, unique=True)
    )
    placed = draw(st.lists(replicas, min_size=1, max_size=partitions_max))
    return orders(*map(tuple, placed)), where


def require_sound(current: Current, moves: list[Move], where: list[Site]) -> None:
    node = {site.broker_id: site.node for site in where}
    for move in moves:
        assert move.before == current[move.partition]
        assert move.before != move.after
        assert len(move.after) == len(move.before)
        assert len({node[one] for one in move.after}) == len(move.after)


@given(worlds())
@settings(max_examples=40, deadline=None)
def test_a_plan_is_sound_and_settles(world: tuple[Current, list[Site]]) -> None:
    current, where = world
    moves = balanced(current, where)
    require_sound(current, moves, where)
    placed = after(current, moves)
    assert {one for replicas in placed.values() for one in replicas} <= {s.broker_id for s in where}
    assert balanced(placed, where) == []


@given(worlds())
@settings(max_examples=40, deadline=None)
def test_racks_of_a_partition_differ_by_one_where_nodes_allow(
    world: tuple[Current, list[Site]],
) -> None:
    current, where = world
    placed = after(current, balanced(current, where))
    nodes_in = {rack: {s.node for s in where if s.rack == rack} for rack in {s.rack for s in where}}
    rack = {site.broker_id: site.rack for site in where}
    for replicas in placed.values():
        counts = Counter(rack[one] for one in replicas)
        fullest = max(counts[name] for name in nodes_in)
        open_racks = [name for name in nodes_in if counts[name] < len(nodes_in[name])]
        assert all(fullest - counts[name] <= 1 for name in open_racks)


@given(worlds())
@settings(max_examples=40, deadline=None)
def test_without_racks_and_shared_nodes_loads_differ_by_one(
    world: tuple[Current, list[Site]],
) -> None:
    current, where = world
    free = sites(*(site.broker_id for site in where))
    moves = balanced(current, free)
    placed = after(current, moves)
    assert max(loads(placed, free)) - min(loads(placed, free)) <= 1


@given(worlds(), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_a_drain_touches_nobody_else(world: tuple[Current, list[Site]], gone: int) -> None:
    current, where = world
    here = {site.broker_id for site in where}
    current = {name: each for name, each in current.items() if set(each) <= here}
    left = [site for site in where if site.broker_id != gone]
    try:
        moves = drained(current, left)
    except PlanError:
        return
    require_sound(current, moves, where)
    assert {move.partition for move in moves} == {n for n, each in current.items() if gone in each}
    assert all(len(move.adding) == len(move.removing) for move in moves)


# ---- the plain twin: every assignment there is


def plain_best(current: Current, where: list[Site]) -> tuple[int, int]:
    """(sum of squared loads, copies) of the best of all allowed assignments."""
    node = {site.broker_id: site.node for site in where}
    choices = [
        [
            chosen
            for chosen in combinations(sorted(node), len(before))
            if len({node[one] for one in chosen}) == len(chosen)
        ]
        for before in current.values()
    ]
    best = []
    for placed in product(*choices):
        counts = Counter(one for chosen in placed for one in chosen)
        new = sum(
            len(set(chosen) - set(before))
            for chosen, before in zip(placed, current.values(), strict=True)
        )
        best.append((sum(load**2 for load in counts.values()), new))
    return min(best)


@given(worlds(brokers_max=4, partitions_max=4))
@settings(max_examples=40, deadline=None)
def test_no_plan_is_more_even_or_copies_less(world: tuple[Current, list[Site]]) -> None:
    current, where = world
    where = [site._replace(rack="") for site in where]
    moves = balanced(current, where)
    squares = sum(load**2 for load in loads(after(current, moves), where))
    assert (squares, copies(moves)) == plain_best(current, where)
