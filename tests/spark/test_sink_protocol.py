"""The sink's protocol with a real coordinator, without Spark: repeats, rivals, crashes."""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
import pytest
from e2e.clusters import Cluster, StartCluster
from spark.sink_topics import committed_offset, committed_values, describe_sink
from spark.spark_records import create, numbered
from tidemark.client.transactions.sink_batches import BatchId
from tidemark.model.topics import TopicPartition
from tidemark_spark import worker_clients
from tidemark_spark.errors import TidemarkSparkError
from tidemark_spark.sink import failpoints
from tidemark_spark.sink.commit_protocol import TaskName, TaskReport
from tidemark_spark.sink.driver import abort_batch, close_batch, commit_batch
from tidemark_spark.sink.errors import (
    ReplayMismatchError,
    RetiredQueryError,
    RowError,
    SinkError,
    StaleCheckpointError,
)
from tidemark_spark.sink.failpoints import HOOK_VARIABLE, Step
from tidemark_spark.sink.schema import SinkSchema
from tidemark_spark.sink.task_writer import SinkJob, write_task
from tidemark_spark.sink.write_options import WriteOptions, write_options
from waiting import wait_for

Name = Callable[[str], str]
SOURCE = TopicPartition("sink-source", 4)
GROUP_COLUMNS = (
    ("source_topic", "string"),
    ("source_partition", "int"),
    ("source_offset", "bigint"),
)


@pytest.fixture(autouse=True)
def _no_client_outlives_its_test() -> Iterator[None]:
    yield
    worker_clients.close_all()


class Driver:
    """A query's driver and its tasks, in this process."""

    def __init__(self, options: WriteOptions, query_id: str, token: str = "run-1") -> None:
        columns = [("value", "binary"), *(GROUP_COLUMNS if options.source_offsets else ())]
        self.options = options
        self.job = SinkJob(options, SinkSchema.of(columns, options), token)
        self.sink_id = options.sink_id or query_id
        self.query_id = query_id
        self.attempts = 0

    def batch(self, batch_id: int) -> BatchId:
        return BatchId(self.sink_id, self.query_id, batch_id)

    def task(self, batch_id: int, values: Sequence[bytes], task: int = 0) -> TaskReport:
        """One attempt, whose rows are values; in a source they would be from 100 on."""
        self.attempts += 1
        columns: dict[str, pa.Array] = {"value": pa.array(values, pa.binary())}
        if self.options.source_offsets:
            count = len(values)
            columns["source_topic"] = pa.array([SOURCE.topic] * count)
            columns["source_partition"] = pa.array([SOURCE.partition] * count, pa.int32())
            columns["source_offset"] = pa.array(range(100, 100 + count), pa.int64())
        name = TaskName(self.job.token, task, self.attempts, self.attempts)
        return write_task(self.job, self.batch(batch_id), name, [pa.record_batch(columns)])

    def run(self, batch_id: int, values: Sequence[bytes]) -> None:
        """A whole batch of one task."""
        commit_batch(self.options, [self.task(batch_id, values)])


@pytest.fixture
def driver(cluster: Cluster, topic_name: Name) -> Callable[..., Driver]:
    """``driver("q", token="run-2", delivery="...")``: of one topic and one sink a test."""
    topic = create(cluster, topic_name("out"))

    def start(query_id: str, *, token: str = "run-1", **options: str) -> Driver:
        return Driver(_options(cluster, **({"topic": topic} | options)), query_id, token)

    return start


def _options(cluster: Cluster, **given: str) -> WriteOptions:
    named = {name.replace("__", "."): value for name, value in given.items()}
    defaults = {"bootstrap.servers": cluster.grpc(), "sink.id": f"sink-{given['topic']}"}
    if named.get("delivery") == "at-least-once":
        del defaults["sink.id"]
    return write_options(defaults | named, streaming=True)


def written(cluster: Cluster, driver: Driver) -> list[bytes]:
    assert driver.options.topic is not None
    return committed_values(cluster, driver.options.topic)


def test_a_batch_is_visible_once_committed(cluster: Cluster, driver: Callable[..., Driver]) -> None:
    query = driver("q")
    query.run(0, [b"a", b"b"])
    query.run(1, [b"c"])
    assert written(cluster, query) == [b"a", b"b", b"c"]
    assert describe_sink(cluster, query.sink_id).note == '{"rows":1,"bytes":1}'


@pytest.mark.feature("Y02")
def test_a_task_that_comes_after_a_failed_write_leaves_nothing_open(
    cluster: Cluster, driver: Callable[..., Driver]
) -> None:
    query = driver("q")
    query.task(0, [b"a"])
    close_batch(query.options, query.batch(0))
    late = query.task(0, [b"b"], task=1)
    assert late.receipt is None
    assert written(cluster, query) == []
    assert describe_sink(cluster, query.sink_id).open_batch is None


@pytest.mark.feature("Y02")
def test_only_the_attempts_that_the_commit_names_count(
    cluster: Cluster, driver: Callable[..., Driver]
) -> None:
    query = driver("q")
    query.task(0, [b"a"])  # failed afterwards, and was tried again
    winner = query.task(0, [b"a"])
    query.task(0, [b"a"])  # a speculative twin
    commit_batch(query.options, [winner, query.task(0, [b"b"], task=1)])
    assert written(cluster, query) == [b"a", b"b"]


def test_a_zombie_attempt_leaves_nothing(cluster: Cluster, driver: Callable[..., Driver]) -> None:
    query = driver("q")
    query.run(0, [b"a"])
    assert query.task(0, [b"a"]).receipt is None
    query.run(1, [b"b"])
    with pytest.raises(StaleCheckpointError):
        query.task(0, [b"a"])
    assert written(cluster, query) == [b"a", b"b"]


def test_a_batch_again_is_recognised_and_counted(
    cluster: Cluster, driver: Callable[..., Driver]
) -> None:
    driver("q").run(0, [b"a", b"b"])
    again = driver("q", token="run-2")
    report = again.task(0, [b"a", b"b"])
    outcome = commit_batch(again.options, [report])
    assert report.receipt is None
    assert outcome is not None
    assert not outcome.first
    assert written(cluster, again) == [b"a", b"b"]


def test_a_batch_with_other_rows_is_an_error(
    cluster: Cluster, driver: Callable[..., Driver]
) -> None:
    driver("q").run(0, [b"a", b"b"])
    again = driver("q", token="run-2")
    with pytest.raises(ReplayMismatchError, match="rows 2 then, 3 now") as found:
        again.run(0, [b"a", b"b", b"c"])
    assert "replay.mismatch=skip" in found.value.hint


def test_a_batch_with_other_rows_may_be_skipped(
    cluster: Cluster, driver: Callable[..., Driver], caplog: pytest.LogCaptureFixture
) -> None:
    driver("q").run(0, [b"a"])
    again = driver("q", token="run-2", replay__mismatch="skip")
    again.run(0, [b"a", b"b"])
    assert "rows 1 then, 2 now" in caplog.text
    assert written(cluster, again) == [b"a"]


def test_a_checkpoint_two_batches_behind_is_refused(
    cluster: Cluster, driver: Callable[..., Driver]
) -> None:
    query = driver("q")
    for number in range(3):
        query.run(number, [b"%d" % number])
    with pytest.raises(StaleCheckpointError, match="batch 1 of query 'q'") as found:
        driver("q", token="run-2").run(1, [b"1"])
    assert "restore the newest checkpoint" in found.value.hint
    assert written(cluster, query) == [b"0", b"1", b"2"]


def test_a_deleted_checkpoint_writes_again_and_says_so(
    cluster: Cluster, driver: Callable[..., Driver], caplog: pytest.LogCaptureFixture
) -> None:
    former = driver("former")
    for number in range(2):
        former.run(number, [b"%d" % number])
    with caplog.at_level(logging.WARNING):
        driver("new", token="run-2").run(0, [b"0", b"1"])
    assert f"sink '{former.sink_id}' was written by query 'former'" in caplog.text
    assert "last committed batch: 1" in caplog.text
    assert written(cluster, former) == [b"0", b"0", b"1", b"1"]
    with pytest.raises(RetiredQueryError, match="former"):
        former.run(2, [b"2"])


@pytest.mark.feature("Y02")
def test_two_drivers_at_once_write_each_batch_once(
    cluster: Cluster, driver: Callable[..., Driver]
) -> None:
    one, other = driver("q"), driver("q", token="run-2")
    for number in range(4):
        rows = numbered(10, 10 * number)
        reports = [each.task(number, rows) for each in (one, other)]
        first, second = (one, other) if number % 2 else (other, one)
        order = {one: reports[0], other: reports[1]}
        commit_batch(first.options, [order[first]])
        commit_batch(second.options, [order[second]])
    assert written(cluster, one) == sorted(numbered(40))


def test_a_driver_that_lags_is_refused(cluster: Cluster, driver: Callable[..., Driver]) -> None:
    old, new = driver("q"), driver("q", token="run-2")
    report = old.task(0, [b"a"])
    new.run(0, [b"a"])
    new.run(1, [b"b"])
    with pytest.raises(StaleCheckpointError):
        commit_batch(old.options, [report])
    abort_batch(old.options, [report])
    assert written(cluster, new) == [b"a", b"b"]


def test_an_aborted_batch_leaves_nothing_and_is_written_anew(
    cluster: Cluster, driver: Callable[..., Driver]
) -> None:
    query = driver("q")
    abort_batch(query.options, [query.task(0, [b"a"]), None])
    query.run(0, [b"a"])
    assert written(cluster, query) == [b"a"]


def test_an_abort_after_the_commit_changes_nothing(
    cluster: Cluster, driver: Callable[..., Driver]
) -> None:
    query = driver("q")
    report = query.task(0, [b"a"])
    commit_batch(query.options, [report])
    abort_batch(query.options, [report])
    assert written(cluster, query) == [b"a"]


def test_a_batch_without_rows_is_committed_too(
    cluster: Cluster, driver: Callable[..., Driver]
) -> None:
    query = driver("q")
    query.run(0, [])
    query.run(1, [b"a"])
    assert describe_sink(cluster, query.sink_id).batch_id == 1
    assert written(cluster, query) == [b"a"]


@pytest.mark.feature("R07")
def test_the_groups_offsets_are_committed_with_the_rows(
    cluster: Cluster, driver: Callable[..., Driver], topic_name: Name
) -> None:
    group = topic_name("group")
    create(cluster, SOURCE.topic, SOURCE.partition + 1)
    query = driver("q", group__id=group, source__offsets="true")
    abort_batch(query.options, [query.task(0, [b"a", b"b"])])
    assert committed_offset(cluster, group, SOURCE) is None
    query.run(0, [b"a", b"b"])
    assert written(cluster, query) == [b"a", b"b"]
    assert committed_offset(cluster, group, SOURCE, other_than=None) == 102
    assert '"offsets":{"sink-source":{"4":102}}' in describe_sink(cluster, query.sink_id).note


def test_a_batch_that_nobody_kept_alive_is_written_anew(
    cluster: Cluster, driver: Callable[..., Driver]
) -> None:
    query = driver("q", transaction__timeout__ms="6000")
    report = query.task(0, [b"a"])
    wait_for(
        lambda: describe_sink(cluster, query.sink_id).open_batch is None,
        "the coordinator gives it up by its own clock",
    )
    with pytest.raises(SinkError, match="start the query again"):
        commit_batch(query.options, [report])
    query.run(0, [b"a"])
    assert written(cluster, query) == [b"a"]


def test_at_least_once_repeats_what_a_second_attempt_writes(
    cluster: Cluster, driver: Callable[..., Driver]
) -> None:
    query = driver("q", delivery="at-least-once")
    query.task(0, [b"a"])
    query.run(0, [b"a"])
    assert written(cluster, query) == [b"a", b"a"]


@pytest.mark.parametrize(
    ("options", "value", "kind", "says"),
    [
        (
            {"topic": "no-such-topic", "client__unknown_topic_grace_ms": "100"},
            b"a",
            SinkError,
            "no-such-topic",
        ),
        ({}, bytes(2_000_000), RowError, "a record of up to 2000036 bytes; the limit is 1048576"),
        ({"client__max_request_size": "3000000"}, bytes(2_000_000), SinkError, "message.bytes"),
    ],
)
def test_what_cannot_be_written_is_said(
    driver: Callable[..., Driver],
    options: dict[str, str],
    value: bytes,
    kind: type[TidemarkSparkError],
    says: str,
) -> None:
    query = driver("q", **options)
    with pytest.raises(kind, match=says):
        query.task(0, [value])


def test_brokers_out_of_reach_are_said() -> None:
    options = write_options(
        {
            "bootstrap.servers": "127.0.0.1:1",
            "topic": "t",
            "client.default_api_timeout_ms": "500",
        },
        streaming=True,
    )
    with pytest.raises(SinkError, match=r"127\.0\.0\.1:1") as found:
        Driver(options, "q").task(0, [b"a"])
    assert "try:" in str(found.value)


# ---- the cluster's processes die between steps

COORDINATOR, BROKER = "txn-coordinator-1", "broker-1"
DEATHS = (
    # Where each is about to be needed, or has just done something: between flush and message, and
    # between the commit's answer and its end, neither takes part.
    (Step.ENLIST, COORDINATOR),
    (Step.SEND, COORDINATOR),
    (Step.COMMIT_BEFORE, COORDINATOR),
    (Step.COMMIT_SENT, COORDINATOR),
    (Step.SEND, BROKER),
    (Step.FLUSH, BROKER),
    (Step.COMMIT_SENT, BROKER),
)
_deaths: dict[Step, Callable[[], object]] = {}


def die(step: Step, **_facts: object) -> None:
    """The steps' hook: what was armed, once."""
    death = _deaths.pop(step, None)
    if death is not None:
        death()


def _kill_and_restart(cluster: Cluster, victim: str) -> None:
    cluster.kill(victim)
    cluster.restart(victim)


@pytest.mark.feature("Y02")
def test_a_process_killed_between_steps_loses_and_repeats_nothing(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOOK_VARIABLE, f"{__name__}:die")
    monkeypatch.setattr(failpoints, "_hook", lambda _name: die)
    quick = {"zookeeper.session.timeout.ms": 2_000}
    cluster = start_cluster(
        txn_coordinators=1, overrides={"broker": quick, "txn-coordinator": quick}
    )
    query = Driver(_options(cluster, topic=create(cluster, "out")), "q")
    for number, (step, victim) in enumerate(DEATHS):
        _deaths[step] = partial(_kill_and_restart, cluster, victim)
        query.run(number, [b"%d" % number])
        assert step not in _deaths
    assert written(cluster, query) == [b"%d" % number for number in range(len(DEATHS))]
