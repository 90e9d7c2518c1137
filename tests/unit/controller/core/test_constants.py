import pytest
from controller.core.constants import Constants, agreed, check_constants
from tidemark.model.errors import ErrorCode, TidemarkError
from unit.controller.worlds import a_broker

OLD, CHANGING, NEW = Constants(3_000), Constants(5_000, 3_000), Constants(5_000)


def test_the_first_controller_decides() -> None:
    assert agreed(None, OLD) == OLD
    assert agreed(OLD, OLD) == OLD


@pytest.mark.feature("Y03")
def test_a_controller_with_another_lease_is_refused_with_both_values() -> None:
    with pytest.raises(TidemarkError, match=r"has lease\.ms=5000, .* has lease\.ms=3000; set"):
        agreed(OLD, NEW)


def test_a_change_begins_from_the_stored_value_only() -> None:
    assert agreed(OLD, CHANGING) == CHANGING
    with pytest.raises(TidemarkError):
        agreed(OLD, Constants(5_000, 4_000))
    with pytest.raises(TidemarkError):
        agreed(CHANGING, Constants(6_000, 5_000))


def test_while_a_change_is_under_way_both_values_take_part_and_the_longer_counts() -> None:
    assert agreed(CHANGING, OLD) == CHANGING
    assert CHANGING.has(3_000)
    assert CHANGING.has(5_000)
    assert CHANGING.lease_ms_max == Constants(3_000, 5_000).lease_ms_max == 5_000


def test_a_change_can_be_taken_back() -> None:
    assert agreed(CHANGING, Constants(3_000, 5_000)) == Constants(3_000, 5_000)
    assert agreed(Constants(3_000, 5_000), OLD) == OLD


def test_a_controller_that_names_no_older_value_ends_the_change() -> None:
    after = agreed(CHANGING, NEW)
    assert after == NEW
    with pytest.raises(TidemarkError):
        agreed(after, OLD)


@pytest.mark.parametrize("lease_ms", [0, 3_000, 5_000])
def test_a_broker_takes_part_with_either_value_or_of_an_older_release(lease_ms: int) -> None:
    check_constants(CHANGING, a_broker(1, lease_ms=lease_ms))


@pytest.mark.feature("Y03")
def test_a_broker_with_another_lease_is_refused_with_both_values() -> None:
    with pytest.raises(TidemarkError, match=r"broker 1 has lease\.ms=4000, .*=3000") as refused:
        check_constants(OLD, a_broker(1, lease_ms=4_000))
    assert refused.value.code is ErrorCode.INVALID_CONFIG
