from share_coordinator.core.assignors import AssignorMember, Demand, assign_by_load
from share_coordinator.core.load_watch import is_skewed
from tidemark.model.ids import TopicId
from unit.broker.core.groups.consumer.worlds import topic_id

A = topic_id(1)


def assigned(lags: dict[tuple[TopicId, int], int]) -> list[AssignorMember]:
    """Ten members of ten partitions as these lags place them."""
    group = [AssignorMember(f"m{number}", frozenset({A})) for number in range(10)]
    targets = assign_by_load(group, Demand({A: 10}, lags))
    return [AssignorMember(one.member_id, one.topics, targets[one.member_id]) for one in group]


def test_lag_that_moved_elsewhere_is_reason_enough() -> None:
    assert is_skewed(assigned({(A, 0): 1_000}), Demand({A: 10}, {(A, 9): 1_000}))


def test_lag_that_grew_everywhere_is_not() -> None:
    lags = {(A, 0): 1_000, (A, 1): 1_000}
    assert not is_skewed(assigned(lags), Demand({A: 10}, {at: 2 * lag for at, lag in lags.items()}))


def test_one_place_is_not_worth_a_new_target() -> None:
    lags = {(A, partition): 1_000 for partition in range(10)}
    assert not is_skewed(assigned(lags), Demand({A: 10}, {**lags, (A, 3): 2_400}))
