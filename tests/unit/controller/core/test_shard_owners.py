"""Shards spread over coordinators: even, stable, and under epochs that only rise."""

from collections import Counter

import pytest
from controller.core.shard_owners import (
    Owners,
    assign,
    check_owners,
    extended,
    given_to,
    needs_rebalancing,
    of_coordinator,
    rebalance,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.model.metadata import NO_COORDINATOR, ShardOwner, with_owners

LIVE = st.frozensets(st.integers(1, 6), max_size=5)
COUNTS = st.integers(0, 23)
HISTORIES = st.lists(st.tuples(LIVE, COUNTS), max_size=5)


def settled(owners: Owners, live: frozenset[int], shard_count: int) -> Owners:
    """After assignment and all the rebalancing that there is to do."""
    owners = with_owners(owners, assign(owners, live, shard_count))
    while moves := rebalance(owners, live, 3):
        owners = with_owners(owners, moves)
    return owners


def after(history: list[tuple[frozenset[int], int]]) -> Owners:
    owners: Owners = ()
    for live, shard_count in history:
        owners = settled(owners, live, shard_count)
    return owners


def loads(owners: Owners, live: frozenset[int]) -> list[int]:
    counts = Counter(one.coordinator_id for one in owners)
    return [counts[one] for one in live]


@given(HISTORIES, LIVE, COUNTS)
@settings(max_examples=60, deadline=None)
def test_every_shard_has_one_live_owner_and_each_owner_the_same_within_one(
    history: list[tuple[frozenset[int], int]], live: frozenset[int], shard_count: int
) -> None:
    owners = settled(after(history), live, shard_count)
    check_owners(owners, live)
    assert len(owners) >= shard_count
    assert all((one.coordinator_id != NO_COORDINATOR) == bool(live) for one in owners)
    assert not live or max(loads(owners, live)) - min(loads(owners, live)) <= 1


@given(HISTORIES, LIVE, COUNTS)
@settings(max_examples=60, deadline=None)
def test_the_epoch_rises_whenever_a_shard_is_given_and_never_falls(
    history: list[tuple[frozenset[int], int]], live: frozenset[int], shard_count: int
) -> None:
    before = after(history)
    for moved in (assign(before, live, shard_count), rebalance(before, live, 4)):
        for one in moved:
            was = extended(before, shard_count)[one.shard]
            given_away = one.coordinator_id == NO_COORDINATOR
            assert one.owner_epoch == was.owner_epoch + (not given_away)


@given(HISTORIES, LIVE, COUNTS)
@settings(max_examples=60, deadline=None)
def test_a_live_replica_loses_no_shard_to_an_assignment(
    history: list[tuple[frozenset[int], int]], live: frozenset[int], shard_count: int
) -> None:
    before = after(history)
    moved = {one.shard for one in assign(before, live, shard_count)}
    kept = {one.shard for one in before if one.coordinator_id in live}
    assert not moved & kept


@given(HISTORIES, LIVE, COUNTS)
@settings(max_examples=60, deadline=None)
def test_no_more_shards_move_than_it_takes_to_even_out(
    history: list[tuple[frozenset[int], int]], live: frozenset[int], shard_count: int
) -> None:
    owners = with_owners(after(history), assign(after(history), live, shard_count))
    moves = rebalance(owners, live, 1_000)
    fair = len(owners) // len(live) if live else 0
    # Twin: a replica gives away what exceeds its fair share and one, unless others lack more.
    surplus = sum(max(0, load - fair - 1) for load in loads(owners, live))
    lack = sum(max(0, fair - load) for load in loads(owners, live))
    assert len(moves) == max(surplus, lack)
    assert all(owners[one.shard].coordinator_id != one.coordinator_id for one in moves)


def test_nothing_to_do_changes_nothing() -> None:
    owners = settled((), frozenset({1, 2}), 5)
    assert assign(owners, {1, 2}, 5) == ()
    assert not needs_rebalancing(owners, {1, 2})
    assert rebalance(owners, {1, 2}, 5) == ()


def test_only_so_many_move_at_a_time() -> None:
    owners = settled((), frozenset({1}), 50)
    moves = rebalance(owners, {1, 2}, 5)
    assert [one.coordinator_id for one in moves] == [2] * 5
    assert [one.shard for one in moves] == [45, 46, 47, 48, 49]


def test_without_anyone_shards_are_nobodys_and_keep_their_epochs() -> None:
    owners = settled((), frozenset({1}), 2)
    assert assign(owners, set(), 2) == (ShardOwner(0, -1, 1), ShardOwner(1, -1, 1))
    assert assign((), set(), 2) == (ShardOwner(0), ShardOwner(1))
    assert assign((ShardOwner(0),), set(), 1) == ()


def test_a_topic_that_is_gone_takes_no_epoch_with_it() -> None:
    owners = settled((), frozenset({1}), 3)
    assert assign(owners, {1}, 0) == ()


def test_an_owner_may_be_assigned_its_own_shard_again() -> None:
    assert given_to(ShardOwner(3, 1, 7), 1) == ShardOwner(3, 1, 8)


def test_the_shards_of_a_replica_are_found() -> None:
    owners = settled((), frozenset({1, 2}), 4)
    assert [one.shard for one in of_coordinator(owners, 2)] == [1, 3]


@pytest.mark.parametrize(
    ("owner", "words"),
    [
        (ShardOwner(1, 1, 1), "is in place 0"),
        (ShardOwner(0, 9, 1), "registered"),
        (ShardOwner(0, 1, 0), "without an epoch"),
        (ShardOwner(0, -1, -1), "only rise"),
    ],
)
def test_impossible_owners_are_a_bug(owner: ShardOwner, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check_owners((owner,), {1})
