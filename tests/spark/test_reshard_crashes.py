"""The job ``reshard`` in processes of its own, killed at chosen steps: nothing lost, none twice."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from e2e.clusters import Cluster
from spark.conftest import ROOT, SPARK_CONF, WORKER_PATH
from spark.sink_topics import committed_records
from spark.spark_records import create, produce
from spark.step_faults import Faults
from tidemark_spark.sink.failpoints import Step
from waiting import COMMAND_S

SERVERS = 2
PARTITIONS = 3
RECORDS_EACH = 60
RECORDS_A_BATCH = 40


class Job:
    """Runs ``reshard``, again and again, over the same topics and checkpoint."""

    def __init__(self, cluster: Cluster, source: str, target: str, directory: Path) -> None:
        self.sink_id = f"sink-{target}"
        self.faults = Faults(directory / "faults")
        self._arguments = [
            *("--bootstrap-servers", cluster.grpc(), "--source", source, "--target", target),
            *("--key", "field:1", "--checkpoint", str(directory / "checkpoint")),
            *("--sink-id", self.sink_id, "--available-now", "--tasks", "2"),
            *("--max-offsets-per-trigger", str(RECORDS_A_BATCH)),
        ]

    def run(self) -> subprocess.CompletedProcess[str]:
        """To its end, whatever that is: ``local[2,3]`` tries a task three times."""
        return subprocess.run(
            [sys.executable, str(ROOT / "spark-jobs" / "jobs" / "reshard.py"), *self._arguments],
            env={**os.environ, **self._environment()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )

    def _environment(self) -> Mapping[str, str]:
        settings = " ".join(f"--conf {name}='{value}'" for name, value in SPARK_CONF.items())
        return {
            **self.faults.environment,
            "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in WORKER_PATH),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": f"--master local[2,3] {settings} pyspark-shell",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }


def records_of(server: int) -> list[bytes]:
    """Ten users who ask in turn; each third asks the same again."""
    return [
        b"user-%d\t%d\t%d" % (number % 10, server, number // 30) for number in range(RECORDS_EACH)
    ]


@pytest.mark.feature("R06", "R07", "R08")
def test_a_killed_worker_and_a_killed_driver_lose_and_repeat_nothing(
    cluster: Cluster, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    source = create(cluster, topic_name("by-server"), SERVERS)
    target = create(cluster, topic_name("by-user"), PARTITIONS)
    for server in range(SERVERS):
        produce(cluster, source, records_of(server), partition=server)
    job = Job(cluster, source, target, tmp_path)

    # A worker dies with records on their way; then the driver, with a batch that is committed and
    # of which Spark's own log does not know. It dies in the first batch too, of which the log has
    # no start, while the group's offsets are its end already.
    job.faults.arm(Step.SEND, job.sink_id, 0)
    deaths = [f"{Step.COMMIT_AFTER}.{batch}" for batch in (0, 1)]
    for batch in range(len(deaths)):
        job.faults.arm(Step.COMMIT_AFTER, job.sink_id, batch, "kill-jvm")
        assert job.run().returncode != 0
    assert job.faults.struck(job.sink_id) == {"send.0", *deaths}
    last = job.run()
    assert last.returncode == 0, last.stderr[-2_000:]
    assert "lag 0" in last.stdout.splitlines()[-1]
    records = committed_records(cluster, target, PARTITIONS)
    asked = [(server, value) for server in range(SERVERS) for value in records_of(server)]
    found = [(int((record.value or b"").split(b"\t")[1]), record.value) for record in records]
    assert Counter(found) == Counter(asked)
    for user in range(10):
        name = b"user-%d" % user
        assert len({record.partition for record in records if record.key == name}) == 1
        for server in range(SERVERS):
            key = (server, name + b"\t")
            assert [v for s, v in found if (s, (v or b"")[:7]) == key] == [
                v for s, v in asked if (s, v[:7]) == key
            ]
