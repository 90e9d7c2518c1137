"""Commitment: where the high watermark stands, and when a write is acknowledged."""

import pytest
from broker.core.partition import AppendPlan
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.errors import ErrorCode
from unit.broker.core.replicated import NOW, SIZE, WALL, PlainReplica, header, lead_in, state, three


@pytest.mark.feature("G09", "G10", "G12", "C08")
def test_the_watermark_is_the_minimum_over_the_isr() -> None:
    leader, second, third = three()
    leader.write(1)
    second.fetch_from(leader, NOW)
    second.fetch_from(leader, NOW)
    assert leader.partition.high_watermark == 0
    third.fetch_from(leader, NOW)
    third.fetch_from(leader, NOW)
    assert leader.partition.high_watermark == 1
    assert second.partition.high_watermark == 0
    second.fetch_from(leader, NOW)
    assert second.partition.high_watermark == 1


@pytest.mark.feature("G14", "J2")
def test_below_the_minimum_it_stands_still_and_acks_all_is_refused() -> None:
    leader, *_ = three((1,), min_insync_replicas="2")
    refused = leader.write(1, acks=-1)
    assert refused is not None
    assert refused.error_code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert leader.write(2) is None
    assert leader.partition.high_watermark == 0


@pytest.mark.feature("G14")
def test_below_the_minimum_fetches_do_not_move_the_watermark() -> None:
    leader, second, _ = three((1, 2), min_insync_replicas="3")
    leader.write(1)
    second.fetch_from(leader, NOW)
    second.fetch_from(leader, NOW)
    assert leader.partition.high_watermark == 0


@pytest.mark.feature("G19")
def test_a_new_leader_keeps_its_watermark_and_tells_no_latest_before_it_is_committed() -> None:
    leader, second, third = three()
    leader.write(1)
    second.fetch_from(leader, NOW)
    for one in (second, third):
        one.take(state(2, (2, 3), epoch=6, version=2), NOW)
    assert (second.partition.high_watermark, second.partition.commitment.is_known) == (0, False)
    third.fetch_from(second, NOW)
    third.fetch_from(second, NOW)
    assert (second.partition.high_watermark, second.partition.commitment.is_known) == (1, True)


@pytest.mark.feature("Y03")
def test_without_a_lease_acks_1_waits_for_the_isr() -> None:
    leader, *_ = three()
    leader.write(1)
    assert leader.partition.commitment.acknowledgeable(1, 1)
    assert not leader.partition.commitment.acknowledgeable(1, 1, has_lease=False)


@pytest.mark.parametrize("acks", [-2, 2, 7])
def test_other_acks_are_refused(acks: int) -> None:
    leader, *_ = three()
    refused = leader.write(1, acks=acks)
    assert refused is not None
    assert refused.error_code is ErrorCode.INVALID_REQUIRED_ACKS


@given(st.integers(-1, 1), st.booleans(), st.sampled_from([(1,), (1, 2)]), st.booleans())
def test_a_write_that_may_not_wait_is_acknowledged_at_once(
    acks: int,
    is_group: bool,
    isr: tuple[int, ...],
    has_lease: bool,
) -> None:
    leader = PlainReplica.of(1, flush="group" if is_group else "os")
    leader.take(state(1, isr, replicas=2), NOW)
    leader.write(1, acks=1)
    commitment = leader.partition.commitment
    at_once = commitment.acknowledgeable(1, acks, has_lease=has_lease)
    if acks != 0 and (has_lease or acks != 1):
        assert at_once or commitment.may_wait(acks)
    assert at_once == (leader.partition.high_watermark >= 1) or (acks == 1 and has_lease)


def test_alone_an_append_commits_and_with_others_it_does_not() -> None:
    part = PlainReplica.of(1).partition
    for epoch, replicas, gained in ((5, (1,), SIZE), (6, (1, 2), 0), (7, (1,), SIZE)):
        lead_in(part, epoch, replicas, replicas)
        plan = part.admit(header(), SIZE, acks=1, now_ms=WALL)
        assert isinstance(plan, AppendPlan)
        assert part.appended(plan, WALL) == gained
        part.check()
