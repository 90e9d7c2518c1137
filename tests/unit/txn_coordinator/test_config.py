from typing import Any

import pytest
from broker.shell.rpc.transaction_markers import MARKERS_MAX
from pydantic import ValidationError
from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.service_config import ConfigError, load, load_or_exit
from txn_coordinator.config import SERVICE, TxnCoordinatorConfig
from txn_coordinator.core.settings import TxnSettings
from txn_coordinator.shell.node import settings_of

PREFIX = "TIDEMARK_TXN_COORDINATOR_"


def test_a_replica_needs_a_number() -> None:
    with pytest.raises(ValidationError, match="coordinator_id"):
        TxnCoordinatorConfig()


def test_listening_everywhere_needs_an_advertised_address() -> None:
    with pytest.raises(ValidationError, match=r"set grpc\.advertised"):
        TxnCoordinatorConfig(coordinator_id=1, grpc_listen="0.0.0.0:19190")
    TxnCoordinatorConfig(coordinator_id=1, grpc_listen="0.0.0.0:19190", grpc_advertised="t1:1")


def test_the_keys_are_kafkas() -> None:
    flags = ["--coordinator.id", "3", "--transaction.max.timeout.ms=60000"]
    environment = {f"{PREFIX}TRANSACTIONAL_ID_EXPIRATION_MS": "5000"}
    config = load(TxnCoordinatorConfig, flags, PREFIX, environment)
    settings = settings_of(config)
    found = (settings.transaction_max_timeout_ms, settings.transactional_id_expiration_ms)
    assert found == (60_000, 5_000)


def test_an_unknown_key_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"transaction\.max\.timeout\.ms"):
        load(
            TxnCoordinatorConfig,
            ["--coordinator.id", "1", "--transaction.max.timeout", "1"],
            PREFIX,
            {},
        )


@pytest.mark.parametrize(
    "setting",
    [
        {"transaction_max_timeout_ms": 0},
        {"transactional_id_expiration_ms": 0},
        {"transaction_writers_max": 0},
        {"marker_targets_per_request_max": 0},
        {"marker_targets_per_request_max": MARKERS_MAX + 1},
        {"coordinator_id": -1},
    ],
)
def test_values_out_of_range_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TxnCoordinatorConfig(**{"coordinator_id": 1, **setting})


def test_a_bad_configuration_ends_the_process_with_its_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        load_or_exit(TxnCoordinatorConfig, ["--grpc.listen", "nowhere"], service=SERVICE)
    assert ended.value.code == ExitCode.CONFIG
    assert "coordinator.id must be set" in capsys.readouterr().err


def test_defaults_of_the_state_are_the_configurations() -> None:
    assert settings_of(TxnCoordinatorConfig(coordinator_id=1)) == TxnSettings()
