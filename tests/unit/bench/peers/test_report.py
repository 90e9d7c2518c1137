"""Report of the comparison with other brokers."""

import json
from pathlib import Path

from bench.peers.figures import Outcome, Sample
from bench.peers.report import Circumstances, Measured, markdown, write_json
from bench.peers.rows import COMPILED, KAFKA, NATS, ROWS, TIDEMARK

_BULK = ROWS[0]
_SAMPLES = {
    KAFKA: [Sample(Outcome(1, 1_000_000_000, 50.0), cpu, 2) for cpu in (70.0, 76.0)],
    TIDEMARK: [Sample(Outcome(1, 1_000_000_000, 25.0), 20.0, 1)],
}
_MEASURED = [Measured(_BULK, _SAMPLES, load_average=5.0)]


def _circumstances(*, is_short: bool) -> Circumstances:
    options = {"runs": 2, "megabytes": 512, "seconds": 20.0, "warm_up_megabytes": 64}
    return Circumstances(options, {KAFKA: "4.3.1"}, is_short)


def test_a_row_has_a_cell_for_each_system_and_how_many_times_as_dear_it_is() -> None:
    *_, row = markdown(_MEASURED)
    title, *cells = row.strip("| ").split(" | ")
    assert title == _BULK.title
    assert cells == ["20 s/GB, 40 MB/s", "70 to 76 s/GB, 20 MB/s", "3.6"]


def test_a_peer_is_compared_with_each_build() -> None:
    compiled = [Sample(Outcome(1, 1_000_000_000, 25.0), 10.0, 1)]
    head, _, row = markdown([Measured(_BULK, {**_SAMPLES, COMPILED: compiled}, 5.0)])
    assert (
        head == "| load | Tidemark | Tidemark, compiled | Apache Kafka | times | times compiled |"
    )
    assert row.endswith(
        "| 20 s/GB, 40 MB/s | 10 s/GB, 40 MB/s | 70 to 76 s/GB, 20 MB/s | 3.6 | 7.3 |"
    )


def test_a_system_without_such_a_load_has_no_figure() -> None:
    nats = Measured(ROWS[-1], {NATS: _SAMPLES[TIDEMARK]}, load_average=5.0)
    *_, row = markdown([*_MEASURED, nats])
    assert row.endswith("| - | - | - | 0.8 of a core, 1e-09 GB | - |")


def test_latencies_of_a_load_that_fell_behind_are_marked() -> None:
    row = next(row for row in ROWS if row.name == "small")
    samples = [Sample(Outcome(records, 0, 1.0), 1.0, 1) for records in (1_000, 300)]
    told = [
        Measured(row, {KAFKA: [one]}, load_average=1.0).cell(KAFKA).endswith("asked)")
        for one in samples
    ]
    assert told == [False, True]


def test_a_short_warm_up_is_reported() -> None:
    told = [
        any(
            "SHORT WARM-UP: 64 MB" in line
            for line in _circumstances(is_short=is_short).lines(_MEASURED)
        )
        for is_short in (True, False)
    ]
    assert told == [True, False]


def test_the_file_has_every_run(tmp_path: Path) -> None:
    path = write_json(_MEASURED, _circumstances(is_short=False), tmp_path / "results")
    (row,) = json.loads(path.read_text())["rows"]
    assert [run["cpu_s"] for run in row["runs"][KAFKA]] == [70.0, 76.0]
    assert row["figures"][KAFKA]["cost"]["median"] == 73.0
