"""The job ``reshard`` in processes of its own, over the same topics and checkpoint again and again,
with faults at chosen steps; and what its target must then have.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from e2e.clusters import Cluster
from spark.conftest import ROOT, SPARK_CONF, WORKER_PATH
from spark.spark_records import produce
from spark.step_faults import Faults
from tidemark.client.consumer.fetched_chunk import ConsumerRecord
from waiting import COMMAND_S

SERVERS = 2
"""Partitions of the source."""
PARTITIONS = 3
"""Of the target."""
RECORDS_EACH = 60
RECORDS_A_BATCH = 40
USERS = 10


class Job:
    """Runs ``reshard``, again and again, over the same topics and checkpoint."""

    def __init__(
        self, cluster: Cluster, source: str, target: str, directory: Path, checkpoint: str = ""
    ) -> None:
        self.sink_id = f"sink-{target}"
        self.faults = Faults(directory / "faults")
        self._arguments = [
            *("--bootstrap-servers", cluster.grpc(), "--source", source, "--target", target),
            *("--key", "field:1", "--checkpoint", checkpoint or str(directory / "checkpoint")),
            *("--sink-id", self.sink_id, "--available-now", "--tasks", "2"),
            *("--max-offsets-per-trigger", str(RECORDS_A_BATCH)),
        ]

    def run(self) -> subprocess.CompletedProcess[str]:
        """To its end, whatever that is."""
        return subprocess.run(
            [sys.executable, str(ROOT / "spark-jobs" / "jobs" / "reshard.py"), *self._arguments],
            env={**os.environ, **environment_of(), **self.faults.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )


def environment_of() -> dict[str, str]:
    """Return the environment of a job's driver; ``local[2,3]`` tries a task three times."""
    settings = " ".join(f"--conf {name}='{value}'" for name, value in SPARK_CONF.items())
    return {
        "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in WORKER_PATH),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"--master local[2,3] {settings} pyspark-shell",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def records_of(server: int) -> list[bytes]:
    """Ten users who ask in turn; each third asks the same again."""
    return [
        b"user-%d\t%d\t%d" % (number % USERS, server, number // 30)
        for number in range(RECORDS_EACH)
    ]


def fill(cluster: Cluster, source: str) -> None:
    """Write the records of every server to its partition of the source."""
    for server in range(SERVERS):
        produce(cluster, source, records_of(server), partition=server)


def check_resharded(records: Iterable[ConsumerRecord]) -> None:
    """Check that a target has each record once, those of a user in one partition, and those of a
    user and a server in their order. ``records``: all of it, by partition and offset.
    """
    found = list(records)
    values = [record.value or b"" for record in found]
    asked = [value for server in range(SERVERS) for value in records_of(server)]
    assert Counter(values) == Counter(asked)
    for user in range(USERS):
        name = b"user-%d" % user
        assert len({record.partition for record in found if record.key == name}) == 1
        for server in range(SERVERS):
            start = b"%s\t%d\t" % (name, server)
            assert [value for value in values if value.startswith(start)] == [
                value for value in asked if value.startswith(start)
            ]
