"""The job ``reshard``, killed at chosen steps: nothing lost, none twice."""

from collections.abc import Callable
from pathlib import Path

import pytest
from e2e.clusters import Cluster
from spark.reshard_job import PARTITIONS, SERVERS, Job, check_resharded, fill
from spark.sink_topics import committed_records
from spark.spark_records import create
from tidemark_spark.sink.failpoints import Step


@pytest.mark.feature("R06", "R07", "R08")
def test_a_killed_worker_and_a_killed_driver_lose_and_repeat_nothing(
    cluster: Cluster, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    source = create(cluster, topic_name("by-server"), SERVERS)
    target = create(cluster, topic_name("by-user"), PARTITIONS)
    fill(cluster, source)
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
    check_resharded(committed_records(cluster, target, PARTITIONS))
