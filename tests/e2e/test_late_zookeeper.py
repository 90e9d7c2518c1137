"""Services that start before ZooKeeper answers: they wait, are alive, and say for what."""

from pathlib import Path

import pytest
from e2e.broker_processes import BrokerProcess
from e2e.zookeeper import running_zookeeper
from tidemark.runtime.exit_codes import ExitCode
from waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.e2e

LIMIT = "--zookeeper.connect.timeout.ms"


def logged(broker: BrokerProcess, words: str) -> bool:
    return any(words in str(line.get("message", "")) for line in broker.logged())


@pytest.mark.feature("KU11")
def test_a_broker_waits_for_a_zookeeper_that_answers_late_and_is_alive(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path) as zookeeper:
        zookeeper.pause()
        hasty = BrokerProcess(1, zookeeper.connect, tmp_path, LIMIT, "300")
        patient = BrokerProcess(2, zookeeper.connect, tmp_path, LIMIT, "86400000")
        for broker in (hasty, patient):
            broker.start()
        assert hasty.process is not None
        assert hasty.process.wait(PATIENCE_S) == ExitCode.UNAVAILABLE
        wait_for(lambda: logged(patient, "still waiting for ZooKeeper"))
        assert patient.http("/livez")[0] == 200
        assert patient.http("/readyz")[0] == 503
        zookeeper.resume()
        wait_for(lambda: logged(patient, "ZooKeeper answers"))
        assert patient.is_running  # without a controller it does not join
        assert patient.stop() == ExitCode.OK


@pytest.mark.feature("KU11")
def test_a_broker_that_waits_for_zookeeper_ends_when_it_is_told_to(tmp_path: Path) -> None:
    broker = BrokerProcess(1, "127.0.0.1:1", tmp_path, LIMIT, "86400000")
    broker.start()
    wait_for(lambda: logged(broker, "waiting for ZooKeeper"))
    assert broker.stop() == ExitCode.OK
