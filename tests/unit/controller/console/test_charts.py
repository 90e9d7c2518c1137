"""Points in time as paths of an SVG."""

from collections.abc import Sequence

import pytest
from controller.console.charts import Sample, line

pytestmark = pytest.mark.feature("AD44")


def drawn(samples: Sequence[Sample], top: float = 10.0) -> str:
    return line(samples, end_ms=1_000, span_ms=1_000, gap_ms=300, top=top)


def test_time_goes_to_the_right_and_values_up() -> None:
    assert drawn([(800, 0.0), (1_000, 10.0)]) == "M480.0 100.0L600.0 0.0"


def test_a_line_is_broken_where_measurements_are_missing() -> None:
    assert drawn([(100, 5.0), (500, 5.0), (700, 5.0)]).count("M") == 2


def test_older_samples_are_left_out_and_nothing_at_all_is_the_lower_edge() -> None:
    assert drawn([(-1, 5.0), (500, 0.0)], top=0.0) == "M300.0 100.0"
