from dataclasses import replace

import pytest
from broker.core.unsound import (
    AGAIN,
    FOUND_AT_START,
    Unsound,
    UnsoundReports,
    is_new_here,
    may_repair,
    must_report,
)
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.backoff import EVEN
from tidemark.model.ids import BrokerId, InstantMs, LeaderEpoch, PartitionEpoch, TopicId
from tidemark.model.metadata import PartitionImage

ME, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
STATE = PartitionImage(
    0, (ME, TWO, THREE), (ME, TWO, THREE), TWO, LeaderEpoch(4), PartitionEpoch(9)
)
LIVE = (ME, TWO, THREE)
ONE = Unsound(TopicId(bytes(16)), 0, 4, is_offline=True, reason="EIO")


def out(**changes: object) -> PartitionImage:
    return replace(STATE, isr=(TWO, THREE), **changes)  # type: ignore[arg-type]


def reported(state: PartitionImage, *, since: int = 4, offline: bool = False) -> bool:
    return must_report(state, ME, unsound_since=since, is_offline=offline, live=LIVE)


def test_a_member_is_reported_and_so_is_whoever_could_become_one() -> None:
    assert reported(STATE)
    assert reported(out(elr=(ME,)))
    assert reported(out()), "a fetch of this epoch may be under way"
    assert not reported(out(leader_epoch=5))
    assert not reported(out(), since=FOUND_AT_START)


def test_a_damaged_replica_is_not_reported_while_nobody_else_could_lead() -> None:
    alone = replace(STATE, isr=(ME,), leader=ME)
    assert not reported(alone)
    assert reported(alone, offline=True)


def test_the_only_replica_is_not_reported() -> None:
    assert not reported(replace(STATE, replicas=(ME,), isr=(ME,), leader=ME), offline=True)


@given(
    st.sets(st.sampled_from(LIVE)),
    st.sets(st.sampled_from(LIVE)),
    st.sampled_from((BrokerId(-1), *LIVE)),
    st.integers(0, 6),
)
def test_a_replica_is_repaired_only_once_it_counts_nowhere(
    isr: set[BrokerId], elr: set[BrokerId], leader: BrokerId, since: int
) -> None:
    state = replace(STATE, isr=tuple(isr), elr=tuple(elr), leader=leader)
    if may_repair(state, ME, unsound_since=since):
        assert not reported(state, since=since, offline=True)
        assert ME not in isr | elr
        assert leader in (TWO, THREE)


def test_a_log_that_was_never_made_is_new_and_one_that_was_is_not() -> None:
    first = replace(STATE, leader_epoch=LeaderEpoch(0), partition_epoch=PartitionEpoch(0))
    assert is_new_here(first, ME)
    assert not is_new_here(STATE, ME)
    assert is_new_here(out(adding=(ME,)), ME)
    assert not is_new_here(replace(STATE, adding=(ME,)), ME)


def test_reports_are_asked_again_later_and_later_without_an_answer() -> None:
    reports = UnsoundReports()
    assert reports.next_request([ONE], InstantMs(0)) == (ONE,)
    assert reports.next_request([ONE], InstantMs(0)) == (), "one is in flight"
    reports.failed(InstantMs(0), EVEN)
    assert reports.next_request([ONE], InstantMs(49)) == ()
    assert reports.next_request([ONE], reports.next_try(InstantMs(10))) == (ONE,)


@pytest.mark.parametrize("pause", [0, 1, 2])
def test_a_replica_that_stays_unsound_is_reported_more_and_more_seldom(pause: int) -> None:
    reports, now = UnsoundReports(), 0
    for count in range(pause + 1):
        assert reports.next_request([ONE], InstantMs(now)) == (ONE,)
        reports.answered(InstantMs(now), EVEN)
        now += round(AGAIN.first_ms) << count
    assert reports.next_request([], InstantMs(now - 1)) == ()
    assert reports.next_request([ONE], InstantMs(now - 1)) == ()
    assert reports.next_request([ONE], InstantMs(now)) == (ONE,)
