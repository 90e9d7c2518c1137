"""The chart of the overview."""

import pytest
from controller.admin.load import RatesView, Traffic, TrafficPoint
from controller.console.pages.overview import chart_of

pytestmark = pytest.mark.feature("AD44")


def measured(*bytes_in: float) -> Traffic:
    rates = [RatesView(**dict.fromkeys(RatesView.model_fields, one)) for one in bytes_in]
    past = [TrafficPoint(at_ms=5_000 * at, rates=one, brokers=1) for at, one in enumerate(rates)]
    return Traffic(
        interval_ms=5_000,
        age_ms=0,
        total=None,
        open_transaction_partitions=None,
        brokers=[],
        past=past,
    )


def test_a_chart_needs_two_points() -> None:
    assert chart_of(measured(1.0)) is None


def test_the_largest_value_is_at_the_upper_edge() -> None:
    chart = chart_of(measured(1.0, 4.0, 2.0))
    assert chart is not None
    assert (chart.top, chart.span_ms) == (4.0, 600_000)
    assert chart.bytes_in == "M590.0 75.0L595.0 0.0L600.0 50.0"
