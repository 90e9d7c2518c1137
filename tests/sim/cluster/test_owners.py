"""Each rule for ownership of a partition rejects a history made by hand, and accepts a similar one
that keeps the rule.
"""

from collections.abc import Callable

import pytest

from sim.checkers import BrokenError
from sim.cluster.consumer_member import Owners

SESSION_MS = 600


def owners() -> Owners:
    """w1 has it since 100, in epoch 3, and was last a member at 150."""
    made = Owners(SESSION_MS)
    made.takes("w1", 95, 3, now=100)
    made.keeps("w1", 150, 3)
    return made


def taken_from_an_owner(one: Owners) -> None:
    one.takes("w2", 200, 4, now=210)


def taken_before_the_session_ends(one: Owners) -> None:
    one.takes("w2", 740, 4, now=749)


def epoch_falls(one: Owners) -> None:
    one.keeps("w1", 160, 2)


REJECTED: dict[Callable[[Owners], None], str] = {
    taken_from_an_owner: "nobody is given what another still has",
    taken_before_the_session_ends: "nobody is given what another still has",
    epoch_falls: "a member's epoch never falls",
}


@pytest.mark.parametrize("bad", REJECTED, ids=lambda one: one.__name__)
def test_owners_that_may_not_be_are_rejected(bad: Callable[[Owners], None]) -> None:
    with pytest.raises(BrokenError) as found:
        bad(owners())
    assert found.value.invariant == REJECTED[bad]


def test_what_was_given_up_may_be_taken() -> None:
    one = owners()
    one.gives_up("w1")
    one.takes("w2", 200, 4, now=210)
    assert set(one.renewed) == {"w2"}


def test_what_nobody_was_heard_of_for_a_session_may_be_taken() -> None:
    one = owners()
    one.takes("w2", 740, 4, now=750)
    assert one.renewed["w2"] == 740


def test_who_joins_anew_begins_with_any_epoch() -> None:
    one = owners()
    one.begins_anew("w1")
    one.takes("w1", 200, 1, now=210)
    assert one.epochs == {"w1": 1}
