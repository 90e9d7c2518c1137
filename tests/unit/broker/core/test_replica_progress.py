import pytest
from broker.core.replica_progress import FollowerFetch, ReplicaProgress
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.ids import BrokerEpoch, BrokerId, InstantMs

LAG_MS = 10_000


def at(milliseconds: int) -> InstantMs:
    return InstantMs(milliseconds)


def fetch(log_end: int, synced_end: int = -1, epoch: int = 7) -> FollowerFetch:
    return FollowerFetch(BrokerId(2), BrokerEpoch(epoch), log_end, synced_end, 0)


@pytest.mark.feature("G04")
def test_one_that_is_silent_lags_after_the_lag_time() -> None:
    follower = ReplicaProgress(at(0))
    assert not follower.lags(at(LAG_MS), LAG_MS)
    assert follower.lags(at(LAG_MS + 1), LAG_MS)


@pytest.mark.feature("G02", "G05")
def test_one_that_fetches_but_never_catches_up_lags() -> None:
    follower = ReplicaProgress(at(0))
    for second in range(1, 12):
        follower.fetched(fetch(second), leader_end=1_000 * second, now=at(1_000 * second))
    assert follower.lags(at(11_000), LAG_MS)


@pytest.mark.feature("G02")
def test_one_that_has_what_there_was_at_its_last_fetch_was_caught_up_then() -> None:
    follower = ReplicaProgress(at(0))
    follower.fetched(fetch(5), leader_end=100, now=at(9_000))
    follower.fetched(fetch(100), leader_end=200, now=at(9_500))
    assert not follower.lags(at(19_000), LAG_MS)
    assert follower.lags(at(19_001), LAG_MS)


@pytest.mark.feature("Y10")
def test_with_group_commit_only_what_is_on_disk_counts() -> None:
    follower = ReplicaProgress(at(0))
    follower.fetched(fetch(9, synced_end=4), leader_end=9, now=at(1))
    assert (follower.counted_end(synced=False), follower.counted_end(synced=True)) == (9, 4)


def test_a_follower_that_tells_no_synced_end_has_synced_nothing() -> None:
    follower = ReplicaProgress(at(0))
    follower.fetched(fetch(9), leader_end=9, now=at(1))
    assert follower.counted_end(synced=True) == -1


def test_a_leader_that_stood_still_excuses_its_followers() -> None:
    follower = ReplicaProgress(at(0))
    follower.extend(60_000, at(60_000))
    assert not follower.lags(at(60_000), LAG_MS)


def test_an_excuse_never_reaches_into_the_future() -> None:
    follower = ReplicaProgress(at(50_000))
    follower.extend(60_000, at(60_000))
    assert follower.lags(at(60_000 + LAG_MS + 1), LAG_MS)


class Standing:
    """A fetch in a session that continues to fetch."""

    def __init__(self, now: int) -> None:
        self.fetched_at = at(now)


def test_a_standing_fetch_keeps_a_follower_caught_up() -> None:
    follower, standing = ReplicaProgress(at(0)), Standing(1)
    follower.fetched(fetch(5), leader_end=5, now=at(1))
    assert follower.stands(standing, leader_end=5)
    standing.fetched_at = at(50_000)
    assert not follower.lags(at(50_000 + LAG_MS), LAG_MS)
    assert follower.lags(at(50_000 + LAG_MS + 1), LAG_MS)


def test_no_fetch_stands_where_the_leader_has_more() -> None:
    follower, standing = ReplicaProgress(at(0)), Standing(1)
    follower.fetched(fetch(5), leader_end=6, now=at(1))
    assert not follower.stands(standing, leader_end=6)
    standing.fetched_at = at(50_000)
    assert follower.lags(at(50_000), LAG_MS)


@pytest.mark.feature("G02")
def test_a_standing_fetch_that_ends_was_the_fetch_before() -> None:
    follower, standing = ReplicaProgress(at(0)), Standing(1)
    follower.fetched(fetch(5), leader_end=5, now=at(1))
    follower.stands(standing, leader_end=5)
    standing.fetched_at = at(20_000)
    follower.fetched(fetch(5), leader_end=9, now=at(20_400))
    assert follower.caught_up_at == 20_000
    standing.fetched_at = at(90_000)
    follower.fetched(fetch(9), leader_end=12, now=at(21_000))
    assert follower.caught_up_at == 20_400


def test_a_leader_that_stood_still_excuses_who_stands_too() -> None:
    follower, standing = ReplicaProgress(at(0)), Standing(1)
    follower.fetched(fetch(5), leader_end=5, now=at(1))
    follower.stands(standing, leader_end=5)
    standing.fetched_at = at(1_000)
    follower.extend(60_000, at(61_500))
    assert follower.caught_up_at == 61_000


Steps = st.lists(
    st.tuples(st.sampled_from(["append", "repeat", "catch up", "fetch half"]), st.integers(1, 50)),
    max_size=40,
)


@pytest.mark.feature("G02")
@given(Steps)
def test_a_standing_fetch_says_what_its_repetitions_would(steps: list[tuple[str, int]]) -> None:
    """The plain twin receives every fetch."""
    follower, twin = ReplicaProgress(at(0)), ReplicaProgress(at(0))
    standing: Standing | None = None
    now, leader_end, end = 0, 0, 0
    for step, passed_ms in steps:
        now += passed_ms
        if step == "append":
            leader_end, standing = leader_end + 2, None
            continue
        if step != "repeat":
            end = leader_end if step == "catch up" else end + (leader_end - end) // 2
        twin.fetched(fetch(end), leader_end, at(now))
        if step == "repeat" and standing is not None:
            standing.fetched_at = at(now)
        else:
            follower.fetched(fetch(end), leader_end, at(now))
            made = Standing(now)
            standing = made if follower.stands(made, leader_end) else None
        assert follower.caught_up_at == twin.caught_up_at
