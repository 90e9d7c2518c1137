from types import SimpleNamespace

import pytest
from tidemark.client.transactions.sink_batches import BatchId, BatchOutcome
from tidemark_spark.sink import driver
from tidemark_spark.sink.commit_protocol import FormerQuery, TaskReport, Totals
from tidemark_spark.sink.write_options import WriteOptions

BATCH = BatchId("sink", "new", 0)


@pytest.fixture(autouse=True)
def _commits(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = BatchOutcome(committed=True, first=True, note="")
    sink = SimpleNamespace(commit=lambda *_, **__: outcome)
    monkeypatch.setattr(driver, "sink_of", lambda _: sink)


def warned(
    caplog: pytest.LogCaptureFixture, former: FormerQuery | None, *, group_id: str | None = None
) -> str:
    options = WriteOptions(bootstrap_servers="b:1", group_id=group_id)
    driver.commit_batch(options, [TaskReport(BATCH, None, Totals(), former)])
    return caplog.text


def test_nobody_is_warned_where_nobody_wrote_before(caplog: pytest.LogCaptureFixture) -> None:
    assert warned(caplog, None) == ""


@pytest.mark.parametrize(("last", "told"), [(7, "7"), (None, "unknown")])
def test_a_take_over_is_told_with_what_may_come_again(
    caplog: pytest.LogCaptureFixture, last: int | None, told: str
) -> None:
    text = warned(caplog, FormerQuery("old", last))
    assert f"was written by query 'old' (last committed batch: {told})" in text
    assert "is written AGAIN. The former query can no longer write" in text


def test_a_sink_that_commits_the_groups_offsets_says_where_to_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    text = warned(caplog, FormerQuery("old", 7), group_id="readers")
    assert "is written AGAIN, unless it starts at the offsets committed by group 'readers'." in text
