import pytest
from share_coordinator.core import reservations
from share_coordinator.core.reservations import Parked, Reservations
from tidemark.model.errors import ErrorCode
from unit.share_coordinator.worlds import World, joining

A, B = joining("a", "t"), joining("b", "t")


def test_the_first_of_a_group_asks_and_all_are_parked() -> None:
    parked = Reservations()
    assert [parked.park(1, A), parked.park(2, B)] == [True, False]
    assert parked.take("jobs") == [Parked(1, A), Parked(2, B)]
    assert parked.take("jobs") == []
    assert parked.park(3, A)


def test_only_so_many_are_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservations, "PARKED_MAX", 1)
    world = World(t=1)
    world.holds_ids = True
    world.tell(joining("a", "t"))
    refused = world.join("a", "t", group_id="other")
    assert refused.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
