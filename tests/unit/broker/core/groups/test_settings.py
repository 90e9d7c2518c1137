"""Settings: Kafka's names, defaults and bounds."""

import pytest
from broker.core.groups.settings import GroupSettings


def test_defaults_are_kafkas() -> None:
    defaults = GroupSettings()
    assert defaults.group_initial_rebalance_delay_ms == 3_000
    assert defaults.offset_metadata_max_bytes == 4_096
    assert defaults.offsets_retention_ms == 7 * 24 * 3_600_000
    assert defaults.group_consumer_assignors[0] == "uniform"


@pytest.mark.parametrize(
    "wrong",
    [
        {"group_min_session_timeout_ms": 10, "group_max_session_timeout_ms": 9},
        {"group_min_session_timeout_ms": 0},
        {"group_initial_rebalance_delay_ms": -1},
        {"group_max_size": 0},
        {"group_consumer_max_size": 0},
        {"group_consumer_session_timeout_ms": 5_000},
        {"group_consumer_assignors": ()},
    ],
)
def test_what_cannot_work_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(AssertionError):
        GroupSettings(**wrong)  # type: ignore[arg-type]
