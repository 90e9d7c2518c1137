import pytest
from controller.core.limits import Limits


@pytest.mark.parametrize("wrong", [{"requests_waiting_max": 0}, {"lease_ms": 0}])
def test_what_cannot_be_is_our_bug(wrong: dict[str, int]) -> None:
    with pytest.raises(AssertionError, match=next(iter(wrong))):
        Limits(**wrong)
