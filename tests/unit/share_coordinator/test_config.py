from typing import Any

import pytest
from pydantic import ValidationError
from share_coordinator.config import ShareCoordinatorConfig
from share_coordinator.core.settings import ShareSettings
from tidemark.model.share_group_configs import ShareGroupOptions
from tidemark.runtime.service_config import load

PREFIX = "TIDEMARK_SHARE_COORDINATOR_"


def test_a_replica_needs_a_number() -> None:
    with pytest.raises(ValidationError, match="coordinator_id"):
        ShareCoordinatorConfig()


def test_listening_everywhere_needs_an_advertised_address() -> None:
    with pytest.raises(ValidationError, match=r"set grpc\.advertised"):
        ShareCoordinatorConfig(coordinator_id=1, grpc_listen="0.0.0.0:19290")
    ShareCoordinatorConfig(coordinator_id=1, grpc_listen="0.0.0.0:19290", grpc_advertised="s:1")


def test_the_keys_are_kafkas() -> None:
    flags = ["--coordinator.id", "3", "--group.share.max.size=7", "--group.share.assignors", "load"]
    environment = {f"{PREFIX}GROUP_SHARE_HEARTBEAT_INTERVAL_MS": "6000"}
    settings = load(ShareCoordinatorConfig, flags, PREFIX, environment).settings()
    assert (settings.group_share_max_size, settings.assignor_name) == (7, "load")
    assert settings.options.group_share_heartbeat_interval_ms == 6_000


def test_defaults_of_the_state_are_the_configurations() -> None:
    assert ShareCoordinatorConfig(coordinator_id=1).settings() == ShareSettings()


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ({"group_share_max_size": 0}, "group_share_max_size"),
        ({"group_share_max_size": 1_001}, "group_share_max_size"),
        ({"share_coordinator_append_linger_ms": -1}, "append_linger"),
        ({"group_share_assignors": "simple,range"}, "'range': the assignors are simple, load"),
        ({"group_share_assignors": " , "}, "the assignors are simple, load"),
        ({"group_share_heartbeat_interval_ms": 45_000}, "must be less than group.share"),
        (
            {"group_share_min_session_timeout_ms": 60_001},
            "min.session.timeout.ms is 60001, more than",
        ),
        (
            {"group_share_max_heartbeat_interval_ms": 4_999},
            "min.heartbeat.interval.ms is 5000, more than",
        ),
    ],
)
def test_values_that_cannot_be_are_refused(setting: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        ShareCoordinatorConfig(**{"coordinator_id": 1, **setting})


def test_options_of_the_leaders_are_not_the_coordinators() -> None:
    settings = ShareCoordinatorConfig(coordinator_id=1).settings()
    assert settings.options == ShareGroupOptions()
    assert "group_share_delivery_count_limit" not in ShareCoordinatorConfig.model_fields
