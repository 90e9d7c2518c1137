import pytest
from broker.core.replica_progress import FollowerFetch, ReplicaProgress
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
    follower.excuse(60_000, at(60_000))
    assert not follower.lags(at(60_000), LAG_MS)


def test_an_excuse_never_reaches_into_the_future() -> None:
    follower = ReplicaProgress(at(50_000))
    follower.excuse(60_000, at(60_000))
    assert follower.lags(at(60_000 + LAG_MS + 1), LAG_MS)
