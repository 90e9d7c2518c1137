from share_coordinator.core.assignors_balance import balance
from unit.broker.core.groups.consumer.worlds import topic_id
from unit.share_coordinator.worlds import Partition

A, B = topic_id(1), topic_id(2)
A0, A1, B0, B1 = (A, 0), (A, 1), (B, 0), (B, 1)


def evenly(previous: dict[str, set[Partition]], readers: dict[Partition, str]) -> list[int]:
    """Sizes after balancing with one member a partition, by member."""
    wanted = dict.fromkeys(readers, 1)
    placed = balance(previous, {at: list(names) for at, names in readers.items()}, wanted)
    return [len(placed[name]) for name in sorted(placed)]


def test_surplus_is_taken_from_the_fullest() -> None:
    previous = {"x": {A0, A1}, "y": {A0}}
    placed = balance(previous, {A0: ["x", "y"], A1: ["x", "y"]}, {A0: 1, A1: 1})
    assert placed == {"x": {A1}, "y": {A0}}


def test_places_move_past_members_that_may_not_have_them() -> None:
    # x may read all, y and z one topic each: x gives up what only they can take.
    previous = {"x": {A0, A1, B0, B1}, "y": set[Partition](), "z": set[Partition]()}
    readers = {A0: "xy", A1: "xy", B0: "xz", B1: "xz"}
    assert max(evenly(previous, readers)) == 2


def test_a_partition_with_one_reader_stays_with_it() -> None:
    previous = {"x": {A0, A1}, "y": set[Partition]()}
    assert evenly(previous, {A0: "x", A1: "x"}) == [2, 0]


def test_no_members() -> None:
    assert balance({}, {}, {}) == {}
