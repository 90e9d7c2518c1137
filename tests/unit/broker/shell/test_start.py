"""Opening log directories: the place in memory for notes of failed disks."""

import logging
from pathlib import Path

import pytest
from broker.config import BrokerConfig
from broker.shell.start import open_directories


def opened_with(runtime_dir: Path, data: Path) -> None:
    config = BrokerConfig(broker_id=1, log_dirs=(str(data),), runtime_dir=str(runtime_dir))
    open_directories(config).unlock()


def test_a_place_that_takes_notes_is_left_empty(tmp_path: Path) -> None:
    opened_with(tmp_path / "run", tmp_path / "data")
    (place,) = (tmp_path / "run").glob("tidemark-*/failed-disks")
    assert list(place.iterdir()) == []


def test_a_broker_without_such_a_place_starts_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run").write_text("not a directory")
    with caplog.at_level(logging.WARNING):
        opened_with(tmp_path / "run", tmp_path / "data")
    assert "disk failures cannot be recorded in memory" in caplog.messages
