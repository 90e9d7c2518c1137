"""Every cell of the table; no partition ever has two owners."""

from dataclasses import replace
from itertools import product

import pytest
from broker.core.groups.consumer.member import ConsumerMember, MemberState
from broker.core.groups.consumer.reconciliation import (
    NEXT_STATE,
    STABLE,
    UNKNOWN,
    UNRELEASED,
    UNREVOKED,
    Finding,
    Goal,
    reconcile,
    still_owns,
)
from tidemark.model.assignment import Assignment
from tidemark.model.ids import TopicId
from unit.broker.core.groups.consumer.worlds import topic_id

A = topic_id(1)
OTHERS = {5, 6}
"""Partitions that another member owns."""

GIVING_UP = 9
"""The partition that members in UNREVOKED must give up."""


def parts(*numbers: int) -> Assignment:
    return {A: frozenset(numbers)} if numbers else {}


def goal(*numbers: int, epoch: int = 10) -> Goal:
    def owner_of(_: TopicId, partition: int) -> str | None:
        if partition in OTHERS:
            return "other"
        return "m" if partition in (0, 1, GIVING_UP) else None

    return Goal(epoch, parts(*numbers), owner_of)


def member(state: MemberState, epoch: int = 8) -> ConsumerMember:
    """Owns 0 and 1; in UNREVOKED it must give up 9."""
    pending = parts(GIVING_UP) if state is UNREVOKED else {}
    return ConsumerMember(
        "m",
        member_epoch=epoch,
        previous_epoch=epoch - 1,
        state=state,
        assigned=parts(0, 1),
        pending_revocation=pending,
    )


TARGET = {
    Finding.MUST_REVOKE: (0,),
    Finding.MUST_WAIT: (0, 1, 2, 5),
    Finding.COMPLETE: (0, 1, 2),
}


@pytest.mark.feature("A09")
@pytest.mark.parametrize(("state", "finding"), list(product(MemberState, TARGET)))
def test_a_member_goes_where_the_table_says(state: MemberState, finding: Finding) -> None:
    after = reconcile(member(state), goal(*TARGET[finding]), parts(0, 1))
    assert after.state is NEXT_STATE[state, finding]


@pytest.mark.parametrize("state", list(MemberState))
def test_who_must_revoke_is_told_to_and_stays_below_the_target(state: MemberState) -> None:
    after = reconcile(member(state), goal(0, 2), parts(0, 1))
    assert after.assigned == parts(0)
    assert after.pending_revocation == parts(1)
    assert after.member_epoch == {UNREVOKED: 9, UNKNOWN: 10}.get(state, 8)


@pytest.mark.parametrize("state", list(MemberState))
def test_who_must_wait_gets_what_is_free_and_the_target_epoch(state: MemberState) -> None:
    after = reconcile(member(state), goal(0, 1, 2, 5), parts(0, 1))
    assert after.assigned == parts(0, 1, 2)
    assert after.pending_revocation == {}
    assert (after.member_epoch, after.previous_epoch) == (10, 8)


@pytest.mark.parametrize("owned", [None, parts(0, 1, GIVING_UP), parts(GIVING_UP)])
def test_who_still_owns_what_it_must_give_up_or_does_not_say_gets_nothing(
    owned: Assignment | None,
) -> None:
    before = member(UNREVOKED)
    assert reconcile(before, goal(0, 1, 2), owned) is before


def test_who_gave_up_what_it_then_shall_have_again_has_it_at_once() -> None:
    after = reconcile(member(UNREVOKED), goal(0, 1, GIVING_UP), parts(0, 1))
    assert after.assigned == parts(0, 1, GIVING_UP)
    assert after.state is STABLE


def test_who_does_not_own_what_it_must_give_up_need_not_say_so_twice() -> None:
    after = reconcile(member(STABLE), goal(0), parts(0))
    assert after.state is STABLE
    assert after.assigned == parts(0)


def test_at_its_target_nothing_changes() -> None:
    before = member(STABLE, epoch=10)
    assert reconcile(before, goal(0, 1), None) is before


def test_who_waits_and_still_must_is_not_changed_again() -> None:
    before = replace(member(UNRELEASED, epoch=10), previous_epoch=10)
    assert reconcile(before, goal(0, 1, 5), None) is before


def test_the_table_has_no_way_back_for_who_did_not_acknowledge() -> None:
    ways = {state for (state, finding) in NEXT_STATE if finding is Finding.NOT_ACKNOWLEDGED}
    assert ways == {UNREVOKED}


def test_owning_is_believed_until_denied() -> None:
    assert still_owns(None, parts(1))
    assert still_owns(parts(1, 2), parts(1))
    assert not still_owns(parts(2), parts(1))
    assert not still_owns({}, parts(1))
