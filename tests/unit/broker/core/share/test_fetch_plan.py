"""One request's way through its partitions."""

import pytest
from broker.core.share.fetch_plan import FetchLimits, FetchPlan, PartitionTurn
from tidemark.model.ids import TopicId

A, B, C = ((TopicId(bytes(16)), partition) for partition in range(3))


def plan(records: int = 100, bytes_max: int = 900) -> FetchPlan:
    return FetchPlan([A, B, C], FetchLimits(records, bytes_max))


def test_bytes_are_divided_evenly_and_records_are_not() -> None:
    way = plan()
    assert way.next_turn() == PartitionTurn(A, 100, 300, may_exceed=True)
    way.gave(40, 300)
    assert way.next_turn() == PartitionTurn(B, 60, 300, may_exceed=False)


def test_what_a_partition_does_not_use_is_left_to_the_others() -> None:
    way = plan()
    way.next_turn()
    way.gave(0, 0)
    assert way.next_turn() == PartitionTurn(B, 100, 450, may_exceed=True)
    way.gave(10, 100)
    assert way.next_turn() == PartitionTurn(C, 90, 800, may_exceed=False)
    way.gave(10, 100)
    assert way.next_turn() is None
    assert way.served == [B, C]


@pytest.mark.parametrize(("records", "bytes_read"), [(100, 1), (120, 1), (1, 900), (1, 5_000)])
def test_a_full_request_ends(records: int, bytes_read: int) -> None:
    way = plan()
    way.next_turn()
    way.gave(records, bytes_read)
    assert way.next_turn() is None


def test_every_partition_may_give_a_byte() -> None:
    turn = plan(bytes_max=2).next_turn()
    assert turn is not None
    assert turn.bytes_max == 1


@pytest.mark.parametrize("limits", [FetchLimits(0, 100), FetchLimits(100, 0)])
def test_a_request_without_room_reads_nothing(limits: FetchLimits) -> None:
    assert FetchPlan([A], limits).next_turn() is None
