"""The streaming sink in Spark: workers and drivers killed at every step, checkpoints behind."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from e2e.clusters import Cluster
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from spark.conftest import register_source
from spark.sink_topics import committed_offset, committed_values, describe_sink
from spark.spark_records import create
from spark.step_faults import Faults
from tidemark.model.topics import TopicPartition
from tidemark_spark.sink.failpoints import Step
from waiting import COMMAND_S

Name = Callable[[str], str]
TASK_STEPS = (Step.ENLIST, Step.SEND, Step.FLUSH, Step.MESSAGE)
COMMIT_STEPS = (Step.COMMIT_BEFORE, Step.OFFSETS, Step.COMMIT_SENT, Step.COMMIT_AFTER)
ROWS = 5
"""Of each batch."""


@pytest.fixture(scope="module")
def faults(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faults]:
    """In the session's Python processes."""
    armed = Faults(tmp_path_factory.mktemp("faults"))
    environment = spark.sparkContext.environment
    environment.update(armed.environment)
    register_source(spark)  # whose processes get the environment as it is now
    yield armed
    for name in armed.environment:
        del environment[name]
    register_source(spark)


class Query:
    """A stream of text files into a topic, one file a batch."""

    def __init__(self, cluster: Cluster, topic: str, directory: Path, **options: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.sink_id = f"sink-{topic}"
        self.files = directory / "files"
        self.checkpoint = directory / "checkpoint"
        self.options = {
            "bootstrap.servers": cluster.grpc(),
            "topic": topic,
            "sink.id": self.sink_id,
            "checkpointLocation": str(self.checkpoint),
            **options,
        }
        self.files.mkdir(parents=True)
        self.batches = 0

    def add(self, rows: int = ROWS) -> None:
        """The next batch's file: numbers that go on from batch to batch."""
        numbers = range(self.batches * ROWS, self.batches * ROWS + rows)
        path = self.files / f"{self.batches:03}.txt"
        path.write_text("".join(f"{number:04}\n" for number in numbers))
        stamp = 1_700_000_000 + self.batches  # the file source goes by it
        os.utime(path, (stamp, stamp))
        self.batches += 1

    def run(self, spark: SparkSession) -> None:
        """Until all files are written. Raises StreamingQueryException."""
        rows = (
            spark.readStream.option("maxFilesPerTrigger", 1)
            .text(str(self.files))
            .selectExpr(
                "value",
                "'sink-stream' AS source_topic",
                "0 AS source_partition",
                "CAST(value AS BIGINT) AS source_offset",
            )
        )
        query = (
            rows.writeStream.format("tidemark")
            .options(**self.options)
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def run_to_the_end(self, spark: SparkSession) -> int:
        """Started again from its checkpoint until it ends well; how often it did not."""
        failures = 0
        while True:
            try:
                self.run(spark)
            except StreamingQueryException:
                failures += 1
                assert failures <= 10, "a query that never ends well"
            else:
                return failures

    def forget_commits(self, *batch_ids: int) -> None:
        """As if the checkpoint had been restored from before these batches were noted as done."""
        for batch_id in batch_ids:
            for name in (str(batch_id), f".{batch_id}.crc"):
                (self.checkpoint / "commits" / name).unlink(missing_ok=True)

    def forget_plans(self, *batch_ids: int) -> None:
        """As if they had not been planned."""
        for batch_id in batch_ids:
            for part in ("offsets", "sources/0"):
                for name in (str(batch_id), f".{batch_id}.crc"):
                    (self.checkpoint / part / name).unlink(missing_ok=True)

    @property
    def written(self) -> list[int]:
        return [int(value) for value in committed_values(self.cluster, self.topic)]

    @property
    def wanted(self) -> list[int]:
        """All rows, once."""
        return list(range(self.batches * ROWS))


@pytest.fixture
def query(cluster: Cluster, topic_name: Name, tmp_path: Path) -> Query:
    return Query(cluster, create(cluster, topic_name("out")), tmp_path)


@pytest.mark.feature("Y02")
def test_a_worker_killed_at_each_step_of_a_task(
    spark: SparkSession, faults: Faults, query: Query
) -> None:
    for batch_id, step in enumerate(TASK_STEPS, 1):
        faults.arm(step, query.sink_id, batch_id)
    for _ in range(len(TASK_STEPS) + 2):
        query.add()
    query.run(spark)
    assert faults.struck(query.sink_id) == {
        f"{step}.{batch_id}" for batch_id, step in enumerate(TASK_STEPS, 1)
    }
    assert query.written == query.wanted


def test_a_task_that_fails_is_tried_again(
    spark: SparkSession, faults: Faults, query: Query
) -> None:
    query.add()
    faults.arm(Step.FLUSH, query.sink_id, 0, "fail")
    query.run(spark)
    assert faults.struck(query.sink_id) == {"flush.0"}
    assert query.written == query.wanted


@pytest.mark.feature("R07", "Y02")
def test_the_driver_stopped_at_each_step_goes_on_from_its_checkpoint(
    spark: SparkSession, faults: Faults, cluster: Cluster, query: Query, topic_name: Name
) -> None:
    group = topic_name("group")
    source = TopicPartition(create(cluster, "sink-stream"), 0)
    query.options |= {"group.id": group, "source.offsets": "true"}
    for batch_id, step in enumerate(COMMIT_STEPS):
        faults.arm(step, query.sink_id, batch_id)
        query.add()
    # The commit fails, and then the abort that follows it is cut off.
    faults.arm(Step.COMMIT_BEFORE, query.sink_id, query.batches, "fail")
    faults.arm(Step.ABORT, query.sink_id, query.batches)
    query.add()
    assert query.run_to_the_end(spark) == len(COMMIT_STEPS) + 1
    assert len(faults.struck(query.sink_id)) == len(COMMIT_STEPS) + 2
    assert query.written == query.wanted
    assert committed_offset(cluster, group, source) == len(query.wanted)


@pytest.mark.feature("Y02")
def test_a_checkpoint_one_batch_behind_is_done_again_and_recognised(
    spark: SparkSession, query: Query
) -> None:
    for _ in range(2):
        query.add()
    query.run(spark)
    query.forget_commits(1)
    query.add()
    query.run(spark)
    assert query.written == query.wanted
    assert describe_sink(query.cluster, query.sink_id).batch_id == 2


def test_a_checkpoint_two_batches_behind_is_an_error(spark: SparkSession, query: Query) -> None:
    for _ in range(3):
        query.add()
    query.run(spark)
    query.forget_commits(1, 2)
    query.forget_plans(2)
    with pytest.raises(StreamingQueryException) as found:
        query.run(spark)
    assert "StaleCheckpointError" in str(found.value)
    assert "restore the newest checkpoint" in str(found.value)
    assert query.written == query.wanted


def test_a_batch_planned_anew_with_other_rows_is_an_error(
    spark: SparkSession, query: Query
) -> None:
    for _ in range(2):
        query.add()
    query.run(spark)
    query.forget_commits(1)
    (query.files / "001.txt").write_text("0005\n")
    with pytest.raises(StreamingQueryException, match="rows 5 then, 1 now"):
        query.run(spark)


def test_a_deleted_checkpoint_is_a_new_query_that_writes_everything_again(
    spark: SparkSession, query: Query
) -> None:
    query.add()
    query.run(spark)
    former = describe_sink(query.cluster, query.sink_id).query_id
    shutil.rmtree(query.checkpoint)
    query.run(spark)
    assert query.written == sorted(query.wanted * 2)
    assert describe_sink(query.cluster, query.sink_id).retired == (former,)


def test_batches_without_rows_are_committed(spark: SparkSession, query: Query) -> None:
    query.add(rows=0)
    query.add()
    query.run(spark)
    assert describe_sink(query.cluster, query.sink_id).batch_id == 1
    assert query.written == [5, 6, 7, 8, 9]


def test_writes_in_foreach_batch_are_repeated_without_effect(
    spark: SparkSession, query: Query
) -> None:
    query.add()
    rows = spark.readStream.text(str(query.files))
    named = {**query.options, "query.id": "each"}
    del named["checkpointLocation"]

    def write(batch: DataFrame, batch_id: int) -> None:
        for _ in range(2):  # as after a crash between the first one's commit and Spark's note
            writer = batch.write.format("tidemark").options(**named)
            writer.option("batch.id", batch_id).mode("append").save()

    each = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(query.checkpoint))
    each.trigger(availableNow=True).start().awaitTermination()
    assert query.written == query.wanted


DRIVER = """
import sys, json
from pyspark.sql import SparkSession
from tidemark_spark import register
given = json.loads(sys.argv[1])
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
for name, value in given["conf"].items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
register(spark)
rows = spark.readStream.option("maxFilesPerTrigger", 1).text(given["files"])
query = rows.writeStream.format("tidemark").options(**given["options"]).trigger(availableNow=True)
query.start().awaitTermination()
"""


@pytest.mark.feature("Y02")
def test_a_driver_killed_before_it_heard_of_its_commit(
    spark: SparkSession, faults: Faults, query: Query, tmp_path: Path
) -> None:
    """The whole driver dies, its JVM and all; another goes on from its checkpoint."""
    for _ in range(3):
        query.add()
    faults.arm(Step.COMMIT_SENT, query.sink_id, 1, "kill-jvm")
    names = (
        "spark.driver.host",
        "spark.driver.bindAddress",
        "spark.driver.extraJavaOptions",
        "spark.driver.memory",
    )
    given = {
        "conf": {
            # Its tasks have a process each, as where workers are not reused.
            "spark.python.worker.reuse": "false",
            **{name: spark.conf.get(name) for name in names},
        },
        "files": str(query.files),
        "options": query.options,
    }
    died = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(given)],
        env={**os.environ, **faults.environment, "SPARK_LOCAL_DIRS": str(tmp_path)},
        capture_output=True,
        check=False,
        start_new_session=True,
        timeout=COMMAND_S,
    )
    assert died.returncode != 0
    assert faults.struck(query.sink_id) == {"commit-sent.1"}, died.stderr.decode()[-2_000:]
    assert describe_sink(query.cluster, query.sink_id).batch_id == 1
    query.run(spark)
    assert query.written == query.wanted
