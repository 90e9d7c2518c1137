"""Replicas of one partition: roles, the ISR and its proposals, and the offset that all have."""

import pytest
from broker.core.partition import FollowerFetch, Role
from broker.core.replica_set import ReplicaSet
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerEpoch, BrokerId, InstantMs, TopicId
from unit.broker.core.replicated import a_partition, state, three

NOW = InstantMs(1_000)
LAG_MS = 10_000
LIVE = {BrokerId(one): BrokerEpoch(10) for one in (1, 2, 3)}


class Standing:
    """A fetch in a session that fetches on."""

    fetched_at = NOW


@pytest.mark.parametrize(
    ("isr", "broker", "fetch_offset", "may"),
    [
        ((1, 2, 3), 2, 1, True),
        ((1, 2, 3), 2, 0, False),  # it lacks a record
        ((1, 2), 2, 1, True),  # another replica joins by its own fetches
        ((1, 2), 3, 1, False),  # by its next fetch it may join
        ((1, 2, 3), 9, 1, False),  # nobody of this partition
    ],
)
def test_a_fetch_stands_where_nothing_is_missing(
    *, isr: tuple[int, ...], broker: int, fetch_offset: int, may: bool
) -> None:
    leader, *followers = three(isr)
    leader.write(1)
    for follower in followers * 2:
        follower.fetch_from(leader, NOW)
    part = leader.partition
    stands = part.replica_set.fetch_may_stand(
        BrokerId(broker), fetch_offset, Standing(), part.log_end
    )
    assert stands == may


def test_a_fetch_of_a_follower_stands_while_it_is_proposed_and_no_longer_once_it_is_refused() -> (
    None
):
    leader, *followers = three((1, 2))
    leader.write(1)
    for follower in followers * 2:
        follower.fetch_from(leader, NOW)
    part = leader.partition

    def may_stand() -> bool:
        return part.replica_set.fetch_may_stand(BrokerId(3), 1, Standing(), part.log_end)

    assert not may_stand()
    proposal = part.propose(NOW, LIVE, LAG_MS)
    assert proposal is not None
    assert proposal.members == (1, 2, 3)
    assert may_stand()
    part.proposal_answered(proposal, ErrorCode.INELIGIBLE_REPLICA, None)
    assert not may_stand()


def test_a_look_is_due_when_the_next_member_begins_to_lag() -> None:
    leader, second, _ = three()
    part = leader.partition
    first_at = part.replica_set.next_lag(NOW, LAG_MS)
    assert first_at == NOW + LAG_MS + 1, "both have one lag time for their first fetch"
    second.fetch_from(leader, InstantMs(NOW + 500))
    assert part.replica_set.next_lag(NOW, LAG_MS) == first_at, "the third has not fetched"
    late = InstantMs(first_at - 1)
    assert part.propose(late, LIVE, LAG_MS) is None
    proposal = part.propose(first_at, LIVE, LAG_MS)
    assert proposal is not None
    assert proposal.members == (1, 2)
    assert part.replica_set.next_lag(first_at, LAG_MS) == NOW + 500 + LAG_MS + 1


def test_members_are_unfetched_until_they_fetch_from_this_leader() -> None:
    leader, second, third = three((1, 2))

    def unfetched() -> list[tuple[int, ...]]:
        return [leader.partition.replica_set.unfetched, second.partition.replica_set.unfetched]

    assert unfetched() == [(2,), ()], "who is not in sync is waited for by nobody"
    third.fetch_from(leader, NOW)
    assert unfetched() == [(2,), ()]
    second.fetch_from(leader, NOW)
    assert unfetched() == [(), ()]
    for one in (leader, second, third):
        one.take(state(2, (1, 2), epoch=6, version=2), NOW)
    assert unfetched() == [(), (1,)]


@pytest.mark.feature("G17")
def test_a_member_that_is_to_leave_counts_until_that_is_agreed() -> None:
    leader, second, _ = three()
    leader.write(1)
    late = InstantMs(NOW + LAG_MS + 1)
    second.fetch_from(leader, late)
    second.fetch_from(leader, late)
    proposal = leader.partition.propose(late, LIVE, LAG_MS)
    assert proposal is not None
    assert proposal.members == (1, 2)
    assert leader.partition.high_watermark == 0
    agreed = state(1, (1, 2), version=2)
    leader.partition.proposal_answered(proposal, ErrorCode.NONE, agreed)
    assert leader.partition.high_watermark == 1


def test_a_member_that_may_have_joined_counts_from_the_proposal_on() -> None:
    leader, second, _ = three((1,))
    second.fetch_from(leader, NOW)
    assert leader.partition.propose(NOW, LIVE, LAG_MS) is not None
    leader.write(1)
    assert (leader.partition.isr, leader.partition.high_watermark) == ((1,), 0)


@pytest.mark.feature("G06")
def test_who_caught_up_joins_in_the_incarnation_that_fetched() -> None:
    leader, second, _ = three((1,))
    leader.write(1)
    second.fetch_from(leader, NOW)
    assert leader.partition.propose(NOW, LIVE, LAG_MS) is None
    second.fetch_from(leader, NOW)
    other = {**LIVE, BrokerId(2): BrokerEpoch(99)}
    assert leader.partition.propose(NOW, other, LAG_MS) is None
    proposal = leader.partition.propose(NOW, LIVE, LAG_MS)
    assert proposal is not None
    assert proposal.members == (1, 2)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
    ],
)
def test_an_unknown_outcome_stays_pending_until_a_newer_state(code: ErrorCode) -> None:
    leader, second, _ = three((1,))
    second.fetch_from(leader, NOW)
    proposal = leader.partition.propose(NOW, LIVE, LAG_MS)
    assert proposal is not None
    leader.partition.proposal_answered(proposal, code, None)
    assert leader.partition.replica_set.isr.maximal == (1, 2)
    leader.take(state(1, (1,), version=2), NOW)
    assert list(leader.partition.replica_set.isr.maximal) == [1]


def test_a_refused_proposal_counts_no_more() -> None:
    leader, second, _ = three((1,))
    second.fetch_from(leader, NOW)
    proposal = leader.partition.propose(NOW, LIVE, LAG_MS)
    assert proposal is not None
    leader.partition.proposal_answered(proposal, ErrorCode.INELIGIBLE_REPLICA, None)
    assert leader.partition.replica_set.isr.maximal == (1,)


@pytest.mark.feature("G21", "G22", "G24")
def test_a_returning_leader_cuts_what_it_alone_has_and_keeps_the_rest() -> None:
    leader, second, third = three()
    leader.write(1)
    for one in (second, third):
        one.fetch_from(leader, NOW)
    leader.write(2)
    for one in (second, third, leader):
        one.take(state(2, (2, 3), epoch=6, version=2), NOW)
    second.write(3)
    for _ in range(3):
        leader.fetch_from(second, NOW)
    assert leader.names(9) == [1, 3]


def test_an_older_word_changes_nothing() -> None:
    leader, *_ = three()
    assert not leader.partition.lead(state(1, (1,), epoch=4), NOW)
    assert not leader.partition.follow(state(2, (2,), epoch=4))
    assert leader.partition.role is Role.LEADER


def test_a_leader_that_stood_still_accuses_nobody() -> None:
    leader, second, third = three()
    for one in (second, third):
        one.fetch_from(leader, NOW)
    assert leader.partition.propose(NOW, LIVE, LAG_MS) is None
    assert leader.partition.propose(InstantMs(NOW + 60_000), LIVE, LAG_MS) is None


def test_a_failed_disk_ends_every_role() -> None:
    part = a_partition(1)
    part.lead(state(1, (1, 2, 3)), NOW)
    part.become_failed()
    part.check()
    assert not part.follow(state(2, (2,), epoch=9))


def test_an_isr_agreed_together_with_our_end_still_counts_until_the_feed_says_so() -> None:
    leader, second, _ = three((1,))
    second.fetch_from(leader, NOW)
    proposal = leader.partition.propose(NOW, LIVE, LAG_MS)
    assert proposal is not None
    moved = state(-1, (2,), epoch=6, version=3)
    leader.partition.proposal_answered(proposal, ErrorCode.NONE, moved)
    leader.write(1)
    assert leader.partition.high_watermark == 0


@pytest.mark.feature("G04")
def test_who_leads_again_after_long_excuses_nobody_for_that_time() -> None:
    leader, *_ = three()
    assert leader.partition.propose(NOW, LIVE, LAG_MS) is None
    leader.take(state(2, (1, 2, 3), epoch=6, version=2), NOW)
    again = InstantMs(NOW + 3_600_000)
    leader.take(state(1, (1, 2, 3), epoch=7, version=3), again)
    assert leader.partition.propose(again, LIVE, LAG_MS) is None
    assert leader.partition.propose(InstantMs(again + LAG_MS), LIVE, LAG_MS) is None
    late = leader.partition.propose(InstantMs(again + LAG_MS + 1), LIVE, LAG_MS)
    assert late is not None
    assert late.members == (1,)


def test_a_follower_joins_once_its_log_begins_where_the_leader_s_does() -> None:
    leader, second, _ = three((1,))
    leader.write(1)
    second.fetch_from(leader, NOW)
    leader.partition.log_start_moved(1)
    second.fetch_from(leader, NOW)
    assert leader.partition.propose(NOW, LIVE, LAG_MS) is None
    second.fetch_from(leader, NOW)
    proposal = leader.partition.propose(NOW, LIVE, LAG_MS)
    assert proposal is not None
    assert proposal.members == (1, 2)


ENDS = st.dictionaries(st.integers(1, 5), st.integers(0, 30), min_size=1)


def plain_common_end(ends: dict[int, int], members: set[int]) -> int:
    """Slow and obvious: the first offset that some member lacks."""
    offset = 0
    while all(ends[member] > offset for member in members):
        offset += 1
    return offset


@given(st.data())
def test_the_common_end_agrees_with_its_plain_twin(data: st.DataObject) -> None:
    ends = {1: data.draw(st.integers(0, 30))} | data.draw(ENDS)
    members = {1} | data.draw(st.sets(st.sampled_from(sorted(ends))))
    replicas = ReplicaSet(BrokerId(1), TopicId(bytes(16)), 0)
    replicas.begin_leading(state(1, tuple(sorted(members)), replicas=5), NOW)
    for follower in ends.keys() - {1}:
        fetch = FollowerFetch(BrokerId(follower), BrokerEpoch(1), ends[follower], -1, -1)
        replicas.fetched(fetch, 30, NOW)
    assert replicas.common_end(ends[1], synced=False) == plain_common_end(ends, members)
