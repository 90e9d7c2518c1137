"""Log levels of processes by their HTTP ports."""

from pathlib import Path

import pytest
from tidemark.cli.debug.log_levels import embedded_processes, levels, rows_of
from tidemark.cli.dev.layout import Layout
from tidemark.cli.failure import CommandError
from tidemark.runtime.exit_codes import ExitCode


def embedded(directory: Path) -> Path:
    """A cluster that was laid out, and never started."""
    layout = Layout.on_free_ports(directory, brokers=2, controllers=1)
    layout.shape.write(layout.shape_path)
    return directory


def test_all_loggers_come_first_and_others_by_name() -> None:
    rows = rows_of("broker-1", {"level": "INFO", "loggers": {"kazoo": "ERROR", "asyncio": "INFO"}})
    shown = [(row["process"], row["logger"], row["level"]) for row in rows]
    assert shown == [
        ("broker-1", "", "INFO"),
        ("broker-1", "asyncio", "INFO"),
        ("broker-1", "kazoo", "ERROR"),
    ]


def test_processes_of_an_embedded_cluster_are_found_by_name(tmp_path: Path) -> None:
    found = embedded_processes(embedded(tmp_path), ())
    assert {"broker-1", "broker-2", "controller-1"} <= found.keys()
    assert "zookeeper" not in found
    assert list(embedded_processes(tmp_path, ["broker-2"])) == ["broker-2"]


@pytest.mark.parametrize("has_cluster", [True, False])
def test_a_process_that_is_not_there_is_named(tmp_path: Path, *, has_cluster: bool) -> None:
    directory = embedded(tmp_path) if has_cluster else None
    with pytest.raises(CommandError, match="no process named 'broker-9'") as refused:
        embedded_processes(directory, ["broker-9"])
    assert refused.value.exit_code is ExitCode.USAGE
    assert ("controller-1" in refused.value.hint) is has_cluster


def test_a_process_that_does_not_answer_is_named_with_its_address() -> None:
    with pytest.raises(CommandError) as refused:
        levels({"broker-1": "127.0.0.1:1"}, logger=None)
    assert refused.value.exit_code is ExitCode.UNAVAILABLE
    assert refused.value.address == "127.0.0.1:1"
