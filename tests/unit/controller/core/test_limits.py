import pytest
from controller.core.limits import Limits


@pytest.mark.parametrize("wrong", [{"requests_waiting_max": 0}, {"lease_ms": 0}])
def test_impossible_states_are_a_bug(wrong: dict[str, int]) -> None:
    with pytest.raises(AssertionError, match=next(iter(wrong))):
        Limits(**wrong)
