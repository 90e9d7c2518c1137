from typing import Any

import pytest
from share_coordinator.core.settings import ShareSettings


@pytest.mark.parametrize(
    "setting",
    [
        {"group_share_max_size": 0},
        {"group_share_assignment_interval_ms": 0},
        {"share_coordinator_snapshot_update_records_per_snapshot": 0},
        {"group_share_assignors": ()},
        {"group_share_assignors": ("range",)},
    ],
)
def test_settings_that_cannot_be(setting: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        ShareSettings(**setting)


def test_the_first_assignor_assigns() -> None:
    assert ShareSettings(group_share_assignors=("load", "simple")).assignor_name == "load"
    assert ShareSettings().assignor_name == "simple"
