"""What is said of records that came too late, and the topics of the job."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tidemark.client.sync import Admin
from tidemark_jobs.sessions.command import parse
from tidemark_jobs.sessions.queries import LateRecords, make_topics
from tidemark_spark.errors import OptionError
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


class Topics:
    """An Admin of a cluster in which the topics of the job exist."""

    def __init__(self, policy: str) -> None:
        self._policy = policy

    def describe_topics(self, names: list[str]) -> dict[str, Any]:
        return {name: SimpleNamespace(partitions=[0, 1]) for name in names}

    def list_topics(self) -> list[str]:
        return ["s", "s.sessions", "s.users"]

    def describe_configs(self, resources: list[Any]) -> dict[Any, Any]:
        entries = {"cleanup.policy": SimpleNamespace(value=self._policy)}
        return dict.fromkeys(resources, entries)


@pytest.mark.parametrize("policy", ["compact", "delete", "compact,delete"])
def test_a_users_topic_that_may_lose_users_is_refused(policy: str) -> None:
    options = parse(["--bootstrap-servers", "b:1", "--source", "s", "--checkpoint", "c"])
    admin = cast("Admin", Topics(policy))
    if policy == "compact":
        make_topics(admin, options, print)
        return
    with pytest.raises(OptionError, match=f"has cleanup.policy={policy} and would lose users"):
        make_topics(admin, options, print)
