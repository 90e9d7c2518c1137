"""docs/testing.md describes every fault of the simulators by its name."""

import pytest
from sim.__main__ import FAULTS
from tidy.exercise import ROOT


@pytest.mark.parametrize("fault", sorted({fault for world in FAULTS.values() for fault in world}))
def test_the_page_of_the_simulators_describes_the_fault(fault: str) -> None:
    assert f"`{fault}`" in (ROOT / "docs/testing.md").read_text()
