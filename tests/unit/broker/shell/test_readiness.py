"""Readiness of a broker: registered, serving, not fenced, and about itself alone."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from broker.shell.broker_server import BrokerServer

BROKER = 1


def reason(**changed: Any) -> str | None:
    """Why a broker is not ready that is ready but for some changes."""
    one: dict[str, Any] = {
        "epoch": 7,
        "serving": True,
        "fenced_directories": [None],
        "brokers": {BROKER: False, 2: False},
        "unserved": 0,
        **changed,
    }
    stub = SimpleNamespace(
        cluster=SimpleNamespace(registration=SimpleNamespace(broker_epoch=one["epoch"])),
        listeners=[SimpleNamespace(serving=SimpleNamespace(is_set=lambda: one["serving"]))],
        partitions=SimpleNamespace(
            disks=SimpleNamespace(
                log_managers=[SimpleNamespace(fenced=it) for it in one["fenced_directories"]]
            )
        ),
        metadata=SimpleNamespace(
            image=SimpleNamespace(
                brokers={key: SimpleNamespace(fenced=it) for key, it in one["brokers"].items()}
            )
        ),
        facts=SimpleNamespace(broker_id=BROKER),
        upkeep=SimpleNamespace(hosting=SimpleNamespace(unserved=lambda: one["unserved"])),
    )
    return BrokerServer.not_ready(cast("Any", stub))


@pytest.mark.feature("KU13")
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"epoch": -1}, "not registered"),
        ({"serving": False}, "no metadata"),
        ({"fenced_directories": ["EIO", "EIO"]}, "every log directory is fenced"),
        ({"brokers": {BROKER: True}}, "fenced by the controller"),
        ({"brokers": {2: False}}, "fenced by the controller"),
        ({"unserved": 3}, "3 partitions that are led here cannot be served"),
    ],
)
def test_what_a_broker_lacks_makes_it_unready(changed: dict[str, Any], words: str) -> None:
    found = reason(**changed)
    assert found is not None
    assert words in found


@pytest.mark.feature("KU13")
@pytest.mark.parametrize(
    "changed", [{}, {"brokers": {BROKER: False, 2: True}}, {"fenced_directories": ["EIO", None]}]
)
def test_what_others_lack_does_not(changed: dict[str, Any]) -> None:
    assert reason(**changed) is None
