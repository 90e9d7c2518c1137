import pytest
from controller.config import ControllerConfig
from pydantic import ValidationError


def test_a_replica_needs_a_number() -> None:
    with pytest.raises(ValidationError, match="controller_id"):
        ControllerConfig()


def test_listening_everywhere_needs_an_advertised_address() -> None:
    with pytest.raises(ValidationError, match=r"set grpc\.advertised"):
        ControllerConfig(controller_id=1, grpc_listen="0.0.0.0:19090")
    ControllerConfig(controller_id=1, grpc_listen="0.0.0.0:19090", grpc_advertised="c1:19090")
