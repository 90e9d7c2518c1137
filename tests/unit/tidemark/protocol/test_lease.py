import pytest
from tidemark.model.ids import InstantMs
from tidemark.protocol.lease import Lease


def at(milliseconds: int) -> InstantMs:
    return InstantMs(milliseconds)


def renewed(now: int) -> Lease:
    lease = Lease(3_000)
    lease.begin(at(now))
    lease.confirmed()
    return lease


def test_nothing_is_held_before_the_first_confirmation() -> None:
    lease = Lease(3_000)
    assert lease.next_renewal(at(0)) == 0
    lease.begin(at(0))
    assert not lease.holds(at(1))


@pytest.mark.feature("Y03")
def test_it_is_held_for_four_fifths_from_before_the_renewal_was_submitted() -> None:
    lease = renewed(1_000)
    assert lease.holds(at(3_399))
    assert not lease.holds(at(3_400))


def test_it_is_renewed_six_times_a_lease() -> None:
    lease = renewed(1_000)
    assert lease.next_renewal(at(1_100)) == 1_500
    assert lease.next_renewal(at(1_600)) == 1_600


def test_a_renewal_of_unknown_outcome_extends_nothing() -> None:
    lease = renewed(1_000)
    lease.begin(at(1_500))
    lease.failed()
    assert not lease.holds(at(3_400))


@pytest.mark.feature("Y03")
def test_a_lost_session_takes_it_at_once() -> None:
    lease = renewed(1_000)
    lease.lost()
    assert not lease.holds(at(1_001))
    assert lease.next_renewal(at(1_001)) == 1_001
