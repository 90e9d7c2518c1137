"""What is made of Spark's reports: lines and metrics."""

import urllib.request
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tidemark.model.topics import TopicPartition
from tidemark_spark.errors import OptionError
from tidemark_spark.progress import (
    OBSERVED,
    PREFIX,
    Progress,
    metrics_served,
    parse_report,
    reason_of,
)
from waiting import PATIENCE_S


def _report(batch_id: int = 7, **changes: Any) -> dict[str, Any]:
    """As a query of the tidemark source reports it."""
    source = {
        "startOffset": '{"queries": {"id": "6f", "offsets": {"0": 0, "1": 0}}}',
        "endOffset": '{"queries": {"id": "6f", "offsets": {"0": 60, "1": 40}}}',
        "latestOffset": '{"queries": {"id": "6f", "offsets": {"0": 90, "1": 40, "2": 5}}}',
    }
    report = {
        "batchId": batch_id,
        "numInputRows": 100,
        "inputRowsPerSecond": 50.0,
        "processedRowsPerSecond": 200.5,
        "durationMs": {"addBatch": 400, "triggerExecution": 500},
        "sources": [source],
        "observedMetrics": {OBSERVED: {"without_key": 3, "without_partition": 0}},
    }
    return {**report, **changes}


def _metrics(progress: Progress) -> str:
    registry = CollectorRegistry()
    registry.register(progress)
    return generate_latest(registry).decode()


def test_a_batch() -> None:
    batch = parse_report(_report())
    assert batch is not None
    assert (batch.batch_id, batch.records, batch.duration_ms) == (7, 100, 500)
    assert (batch.input_rate, batch.rate) == (50.0, 200.5)


def test_lag_of_partitions_that_were_read() -> None:
    batch = parse_report(_report())
    assert batch is not None
    assert batch.lag == {TopicPartition("queries", 0): 30, TopicPartition("queries", 1): 0}
    assert batch.lag_records == 30


def test_offsets_of_kafkas_own_source() -> None:
    source = {"endOffset": {"q": {"0": 5}}, "latestOffset": {"q": {"0": 9}}}
    batch = parse_report(_report(sources=[source]))
    assert batch is not None
    assert batch.lag == {TopicPartition("q", 0): 4}


@pytest.mark.parametrize(
    "offset", [None, 5, "5", "", {"timestampOffset": 5}, {"seqNum": {"last": 5}}]
)
def test_a_source_whose_offsets_say_no_lag(offset: object) -> None:
    batch = parse_report(_report(sources=[{"endOffset": offset, "latestOffset": offset}]))
    assert batch is not None
    assert batch.lag_records is None


def test_a_rate_that_is_no_number() -> None:
    batch = parse_report(_report(inputRowsPerSecond="NaN", processedRowsPerSecond=None))
    assert batch is not None
    assert (batch.input_rate, batch.rate) == (0.0, 0.0)


def test_a_report_of_no_batch() -> None:
    assert parse_report(_report(durationMs={"latestOffset": 3})) is None


def test_batches_add_up() -> None:
    progress = Progress("reshard")
    for batch_id in (3, 4):
        assert progress.on_report(_report(batch_id)) is not None
    assert (progress.batches, progress.records) == (2, 200)
    assert progress.counts == {"without_key": 6, "without_partition": 0}


def test_a_batch_counts_once() -> None:
    progress = Progress("reshard")
    progress.on_report(_report(4))
    assert progress.on_report(_report(4)) is None
    assert progress.batches == 1


def test_a_line() -> None:
    progress = Progress("reshard")
    batch = progress.on_report(_report())
    assert batch is not None
    assert " ".join(progress.line(batch).split()) == (
        "batch 7 100 records 0.50 s 200/s lag 30 committed 1 batches 100 records without key 3"
    )


def test_lines_line_up() -> None:
    progress = Progress("reshard")
    lines = [
        progress.line(batch)
        for batch in (
            progress.on_report(_report(9, observedMetrics={})),
            progress.on_report(_report(10, numInputRows=1_234_567, observedMetrics={})),
        )
        if batch is not None
    ]
    assert len({len(line) for line in lines}) == 1


def test_a_batch_that_was_planned_before_a_restart_says_no_lag() -> None:
    progress = Progress("reshard")
    batch = progress.on_report(_report(sources=[{"endOffset": {"q": {"0": 5}}}]))
    assert batch is not None
    assert " lag unknown " in " ".join(progress.line(batch).split())
    assert "lag" not in progress.summary()
    assert f"{PREFIX}_lag_records" not in _metrics(progress)


def test_a_summary() -> None:
    progress = Progress("reshard")
    assert progress.summary() == "reshard: 0 batches committed (last: none), 0 records"
    progress.on_report(_report())
    assert progress.summary() == (
        "reshard: 1 batches committed (last: 7), 100 records, lag 30,"
        " without key 3, without partition 0"
    )


def test_metrics() -> None:
    progress = Progress("by-user")
    progress.on_report(_report())
    text = _metrics(progress)
    for line in (
        f'{PREFIX}_batches_total{{query="by-user"}} 1.0',
        f'{PREFIX}_records_total{{query="by-user"}} 100.0',
        f'{PREFIX}_observed_total{{kind="without_key",query="by-user"}} 3.0',
        f'{PREFIX}_batch_id{{query="by-user"}} 7.0',
        f'{PREFIX}_lag_records{{query="by-user"}} 30.0',
        f'{PREFIX}_partition_lag_records{{partition="0",query="by-user",topic="queries"}} 30.0',
        f'{PREFIX}_batch_seconds{{phase="addBatch",query="by-user"}} 0.4',
    ):
        assert line in text


def test_metrics_before_the_first_batch() -> None:
    assert f'{PREFIX}_batches_total{{query="by-user"}} 0.0' in _metrics(Progress("by-user"))


def test_metrics_are_served() -> None:
    with (
        metrics_served(Progress("by-user"), 0, "127.0.0.1") as port,
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer,
    ):
        assert f"{PREFIX}_batches_total" in answer.read().decode()


def test_a_port_that_is_taken() -> None:
    progress = Progress("by-user")
    with (
        metrics_served(progress, 0, "127.0.0.1") as port,
        pytest.raises(OptionError, match=f"cannot serve metrics on 127.0.0.1:{port}"),
        metrics_served(progress, port, "127.0.0.1"),
    ):
        pass


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (
            "[STREAM_FAILED] Query terminated with exception: Traceback:\n"
            '  File "x.py", line 57, in write\n'
            "tidemark_spark.sink.errors.SinkError: no broker answers\n  try: the address\n"
            " SQLSTATE: 38000",
            "no broker answers\n  try: the address",
        ),
        ("[STREAM_FAILED] x: [USER_RAISED_EXCEPTION] a-1@0 has no key SQLSTATE: P0001", "a-1@0"),
        ("[STREAM_FAILED] a disk is full\nat org.apache", "[STREAM_FAILED] a disk is full"),
    ],
)
def test_why_a_query_failed(failure: str, reason: str) -> None:
    assert reason_of(failure).startswith(reason)
