"""What is said of records that came too late."""

import json
from types import SimpleNamespace
from typing import Any

from tidemark_jobs.sessions.queries import LateRecords
from tidemark_spark.progress import Progress


def report_of(batch_id: int, dropped: int, *, name: str = "q") -> Any:
    """An event of Spark with a batch that dropped rows, which it had combined before."""
    progress = SimpleNamespace(
        runId="r",
        name=name,
        batchId=batch_id,
        json=json.dumps({"batchId": batch_id, "durationMs": {"addBatch": 1}}),
        stateOperators=[SimpleNamespace(numRowsDroppedByWatermark=dropped)],
    )
    return SimpleNamespace(progress=progress)


def test_late_records_are_at_least_as_many_as_spark_dropped() -> None:
    lines: list[str] = []
    late = LateRecords(Progress("q"), name="q", echo=lines.append)
    late.onQueryProgress(report_of(0, 0))
    late.onQueryProgress(report_of(1, 3))
    late.onQueryProgress(report_of(1, 5, name="another"))
    assert late.dropped == 3
    (line,) = lines
    assert line.startswith("batch 1: at least 3 records arrived too late and are in no session")
