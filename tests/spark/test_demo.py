"""A small run of ``make demo``, with its faults."""

import subprocess
import sys
from pathlib import Path

import pytest
from e2e.clusters import Cluster, StartCluster
from tidemark.runtime.exit_codes import ExitCode
from waiting import COMMAND_S

DEMO = Path(__file__).parents[2] / "tools" / "demo.py"
RECORDS = 2_000

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture
def cluster(start_cluster: StartCluster) -> Cluster:
    return start_cluster(brokers=2, txn_coordinators=1)


def demo(cluster: Cluster, *options: str) -> str:
    """What it printed."""
    argv = [sys.executable, str(DEMO), "--dir", str(cluster.layout.directory), *options]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert done.returncode == ExitCode.OK, f"{done.stdout[-6_000:]}\n{done.stderr[-3_000:]}"
    return done.stdout


@pytest.mark.feature("A12", "A21", "C03", "Y02")
@pytest.mark.feature("R01", "R02", "R03", "R04", "R06", "R07", "R08", "R10")
def test_nothing_is_lost_or_repeated_under_fire(cluster: Cluster) -> None:
    small = ("--records", str(RECORDS), "--batches", "20", "--partitions", "4", "--no-report")
    printed = demo(cluster, *small, "--faults", "worker,broker,driver")
    assert f"sent {RECORDS:,} records" in printed
    assert "topic B holds exactly topic A's records" in printed
    assert "directly 50,000,000; over topic A and 500 tasks" in printed
    assert printed.count("kill -9") > 3, "each is told, and the table has a heading"
    assert cluster.running(), "it stops only a cluster that it started"
