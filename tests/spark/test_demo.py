"""A small run of ``make demo``, with its faults, whose drivers start from a class archive."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from e2e.clusters import Cluster, StartCluster
from tidemark.runtime.exit_codes import ExitCode
from waiting import COMMAND_S

TOOLS = Path(__file__).parents[2] / "tools"
RECORDS = 2_000

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.long]


@pytest.fixture
def cluster(start_cluster: StartCluster) -> Cluster:
    return start_cluster(brokers=2, txn_coordinators=1, has_own_zookeeper=True)


@pytest.fixture(scope="module")
def class_archive() -> Path:
    """The archive of ``make sparkclasses``."""
    argv = [sys.executable, str(TOOLS / "spark_classes.py")]
    made = subprocess.run(argv, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert made.returncode == ExitCode.OK, made.stderr[-3_000:]
    return Path(made.stdout.splitlines()[-1])


def demo(cluster: Cluster, *options: str) -> str:
    """What it printed. Its JVMs end at once if they cannot use their class archive."""
    done = subprocess.run(
        [sys.executable, str(TOOLS / "demo.py"), "--dir", str(cluster.layout.directory), *options],
        env={**os.environ, "JAVA_TOOL_OPTIONS": "-Xshare:on"},
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    assert done.returncode == ExitCode.OK, f"{done.stdout[-6_000:]}\n{done.stderr[-3_000:]}"
    return done.stdout


@pytest.mark.feature("A12", "A21", "C03", "Y02")
@pytest.mark.feature("R01", "R02", "R03", "R04", "R06", "R07", "R08", "R10")
def test_nothing_is_lost_or_repeated_under_fire(cluster: Cluster, class_archive: Path) -> None:
    assert class_archive.is_file()
    small = ("--records", str(RECORDS), "--batches", "20", "--partitions", "4", "--no-report")
    printed = demo(cluster, *small, "--faults", "worker,broker,driver")
    assert f"sent {RECORDS:,} records" in printed
    assert "topic B holds exactly topic A's records" in printed
    assert "directly 50,000,000; over topic A and 500 tasks" in printed
    assert printed.count("kill -9") > 3, "each is told, and the table has a heading"
    assert cluster.running(), "it stops only a cluster that it started"
