"""Progress of the recovery of logs: in words, in a metric, in the log, and for probes."""

import asyncio
import logging
import threading
from pathlib import Path

import pytest
from broker.config import BrokerConfig
from broker.shell import recovering
from broker.shell.metrics.recovery import RecoveryCollector
from broker.shell.recovering import Health, recovered
from broker.shell.start import OpenedDirectories, open_directories
from broker.storage.recovery_progress import RecoveryProgress
from tidemark.model.ids import TopicId
from tidemark.model.topic_configs import topic_config
from tidemark.model.topics import TopicPartition
from waiting import PATIENCE_S


def values(progress: RecoveryProgress) -> dict[str, float]:
    (family,) = RecoveryCollector(progress).collect()
    return {sample.labels["dir"]: sample.value for sample in family.samples}


@pytest.mark.feature("KU11")
def test_logs_that_are_left_are_counted_down_and_the_present_one_is_named() -> None:
    progress = RecoveryProgress(["/a", "/b"])
    assert progress.words() == ("recovering logs: /a is not looked at yet; /b is not looked at yet")
    one = progress.of("/a")
    one.look(["orders-0", "orders-1", "clicks-0", "meta.properties"])
    assert values(progress) == {"/a": 3, "/b": 0}
    one.begin("orders-0")
    one.begin("orders-1")
    assert values(progress) == {"/a": 2, "/b": 0}
    assert "2 of 3 left in /a, orders-1 now" in progress.words()
    one.finish()
    progress.leave_out(["/b"])
    assert values(progress) == {"/a": 0, "/b": 0}
    assert progress.words() == "log directories are open"


@pytest.mark.feature("KU11")
def test_a_long_recovery_is_logged_and_probes_get_its_progress(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = BrokerConfig(broker_id=1, log_dirs=(str(tmp_path),))
    health, may_end = Health(config), threading.Event()

    def slow(_: BrokerConfig, __: int, progress: RecoveryProgress) -> OpenedDirectories:
        one = progress.of(str(tmp_path))
        one.look(["orders-0", "orders-1"])
        one.begin("orders-0")
        assert may_end.wait(PATIENCE_S)
        one.finish()
        return OpenedDirectories((), "")

    class Seen(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "recovering logs" in record.getMessage():
                may_end.set()

    monkeypatch.setattr(recovering, "open_directories", slow)
    seen = Seen()
    recovering.log.addHandler(seen)
    try:
        with caplog.at_level(logging.INFO):
            asyncio.run(recovered(config, 1, health.progress, say_every_s=0.01))
    finally:
        recovering.log.removeHandler(seen)
    said = [one for one in caplog.records if "recovering logs" in one.message]
    assert f"2 of 2 left in {tmp_path}, orders-0 now" in said[0].message
    assert health.not_started() == health.not_ready() == "log directories are open"


@pytest.mark.feature("KU11")
def test_after_a_crash_every_log_is_counted(tmp_path: Path) -> None:
    config = BrokerConfig(
        broker_id=1, log_dirs=(str(tmp_path / "data"),), runtime_dir=str(tmp_path)
    )
    first = open_directories(config)
    (manager,) = first.managers
    for number in range(3):
        place = TopicPartition("orders", number)
        manager.create(place, TopicId(bytes(16)), topic_config({}, {}), 0)
    first.unlock()  # and not closed, as by a crash
    progress = RecoveryProgress(config.log_dirs)
    opened = asyncio.run(recovered(config, 16, progress))
    one = progress.of(str(tmp_path / "data"))
    assert (one.total, one.begun, one.remaining, one.is_over) == (3, 3, 0, True)
    opened.unlock()
