"""Arithmetic of the comparison with other brokers."""

import pytest
from bench.peers.figures import (
    Cost,
    Figures,
    Outcome,
    Sample,
    Spread,
    cell,
    cost_of,
    figures_of,
    is_behind,
    number,
    percentile,
    range_of,
    times,
)

_SECOND = Outcome(1_000, 2_000_000, 1.0, p50_ms=3.0, p99_ms=9.0, commits=50)


def _figures(unit: Cost, *cpu_s: float) -> Figures:
    return figures_of([Sample(_SECOND, one, 500_000_000) for one in cpu_s], unit)


@pytest.mark.parametrize(
    ("unit", "cost"),
    [
        (Cost.PER_GB, 50.0),
        (Cost.PER_RECORD, 100.0),
        (Cost.PER_COMMIT, 2.0),
        (Cost.OF_A_CORE, 0.1),
    ],
)
def test_cost_is_cpu_for_each_unit_of_work(unit: Cost, cost: float) -> None:
    assert cost_of(Sample(_SECOND, 0.1, 0), unit) == pytest.approx(cost)


def test_a_spread_has_the_median_between_its_ends() -> None:
    assert Spread.of([5.0, 1.0, 2.0]) == Spread(1.0, 2.0, 5.0)


def test_rates_are_those_of_the_payload_and_the_records() -> None:
    figures = _figures(Cost.PER_GB, 0.1)
    assert figures.mb_s.median == pytest.approx(2.0)
    assert figures.operations_s.median == pytest.approx(1_000.0)


def test_transactions_are_counted_by_their_commits() -> None:
    assert _figures(Cost.PER_COMMIT, 0.1).operations_s.median == pytest.approx(50.0)


@pytest.mark.parametrize(("asked_s", "behind"), [(1_020, False), (1_100, True), (-1, False)])
def test_a_rate_that_was_not_reached_is_noticed(asked_s: int, *, behind: bool) -> None:
    assert is_behind(_figures(Cost.PER_RECORD, 0.1), asked_s) is behind


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert [percentile(values, part) for part in (0.5, 0.99, 1.0)] == [51.0, 100.0, 100.0]
    assert percentile([], 0.5) == 0.0


@pytest.mark.parametrize(
    ("value", "text"), [(1_234.6, "1,235"), (10.4, "10"), (2.34, "2.3"), (0.041, "0.041")]
)
def test_a_number_has_two_digits_or_its_whole_part(value: float, text: str) -> None:
    assert number(value) == text


def test_ends_that_read_alike_are_one_number() -> None:
    assert range_of(Spread(17.1, 17.2, 17.4)) == "17"
    assert range_of(Spread(17.1, 18.0, 22.0)) == "17 to 22"


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        (Cost.PER_GB, "50 to 100 s/GB, 2.0 MB/s, p50 3.0 ms, p99 9.0 ms"),
        (Cost.PER_RECORD, "100 to 200 us, 1,000/s, p50 3.0 ms, p99 9.0 ms"),
        (Cost.OF_A_CORE, "0.1 to 0.2 of a core, 0.5 GB"),
    ],
)
def test_a_cell_has_what_its_load_is_about(unit: Cost, text: str) -> None:
    assert cell(_figures(unit, 0.1, 0.2), unit) == text


def test_a_load_without_latencies_shows_none() -> None:
    sample = Sample(Outcome(1, 1_000_000, 1.0), 0.1, 0)
    assert cell(figures_of([sample], Cost.PER_GB), Cost.PER_GB) == "100 s/GB, 1.0 MB/s"


def test_times_is_the_ratio_of_the_medians() -> None:
    peer, own = _figures(Cost.PER_GB, 0.3, 0.6, 0.9), _figures(Cost.PER_GB, 0.1, 0.2, 0.4)
    assert times(peer, own) == "3.0"
    assert times(None, own) == times(peer, None) == "-"
