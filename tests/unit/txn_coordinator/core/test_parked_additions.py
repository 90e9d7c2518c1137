"""Additions that wait: by id, in order, until the deadline of the first."""

from tidemark.model.ids import InstantMs
from txn_coordinator.core.parked_additions import Parked, ParkedAdditions
from txn_coordinator.core.requests import AddPartitions
from unit.txn_coordinator.worlds import P0, P1

ALL = 10


def parked(request_id: int, transactional_id: str = "a") -> Parked:
    return Parked(request_id, AddPartitions(transactional_id, 7, 0, (P0, P1)))


def a_room(*waiting: tuple[Parked, int]) -> ParkedAdditions:
    room = ParkedAdditions()
    for one, due in waiting:
        room.park(one, InstantMs(due))
    return room


def test_those_of_an_id_leave_in_the_order_in_which_they_came() -> None:
    one, two, other = parked(1), parked(2), parked(3, "b")
    room = a_room((one, 100), (other, 110), (two, 120))
    assert room.take("a") == [one, two]
    assert (room.take("a"), room.ids(), room.first_due()) == ([], {"b"}, 110)


def test_those_of_an_id_are_due_with_the_first() -> None:
    one, two, other = parked(1), parked(2), parked(3, "b")
    room = a_room((one, 100), (other, 110), (two, 120))
    assert room.take_due(InstantMs(99), ALL) == []
    assert room.take_due(InstantMs(100), ALL) == [one, two]
    assert room.take_due(InstantMs(110), ALL) == [other]
    assert (room.ids(), room.first_due()) == (set(), None)


def test_an_id_that_left_may_wait_again() -> None:
    room = a_room((parked(1), 100))
    room.take("a")
    room.park(parked(2), InstantMs(300))
    assert room.take_due(InstantMs(299), ALL) == []
    assert room.take_due(InstantMs(300), ALL) == [parked(2)]


def test_many_ids_are_refused_a_part_at_a_time() -> None:
    room = a_room(*((parked(number, f"id-{number}"), 100) for number in range(5)))
    assert len(room.take_due(InstantMs(100), 3)) == 3
    assert room.first_due() == 100
    assert len(room.take_due(InstantMs(100), 3)) == 2
