"""The text formats in slices, against the Prometheus library's own writer and parser."""

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric, UntypedMetricFamily
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from tidemark.runtime.exposition import OPEN_METRICS, SLICE_SAMPLES, TEXT, ManySamples, slices
from tidemark.runtime.metrics import Metrics

ODD = 'a "quoted" \\ name\nof two lines, <b>ünï</b>'


def filled(topics: int) -> Metrics:
    metrics = Metrics("broker")
    counter = metrics.counter("t_bytes", 'a "doc"', ("topic", "a_label"))
    for number in range(topics):
        counter.at(f"topic-{number}", ODD).value = number / 3
    metrics.timings("t_seconds", "how long", ("request",)).at("Fetch").observe(0.3)
    metrics.computed("t_read", lambda: [((ODD,), 2.0**70), (("b",), float("inf"))], "d", ("x",))
    return metrics


def written(metrics: Metrics, kind: str = TEXT) -> str:
    return b"".join(slices(metrics.registry, kind)).decode()


class Unknown(Collector):
    def collect(self) -> Iterator[Metric]:
        yield UntypedMetricFamily("connection_count", "of a listener", 3)


def without_process(text: str) -> list[str]:
    """Lines whose numbers do not change from one read to the next."""
    return [line for line in text.splitlines() if not line.startswith("process_")]


@pytest.mark.parametrize("topics", [0, 1, SLICE_SAMPLES * 3])
def test_the_text_is_what_the_library_writes(topics: int) -> None:
    metrics = filled(topics)
    metrics.registry.register(Unknown())
    library = generate_latest(metrics.registry).decode()
    ours, theirs = without_process(written(metrics)), without_process(library)
    assert [line for line in ours if "t_read" not in line] == [
        line for line in theirs if "t_read" not in line
    ]


def test_large_numbers_and_infinity_are_what_prometheus_reads() -> None:
    text = written(filled(0))
    assert 't_read{x="b"} +Inf' in text
    assert "1.1805916207174113e+21" in text


def test_open_metrics_can_be_parsed_and_ends_with_its_mark() -> None:
    text = written(filled(3), OPEN_METRICS)
    assert text.endswith("# EOF\n")
    parsed = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    families = {family.name: family for family in parsed}
    assert [one.labels["a_label"] for one in families["t_bytes"].samples] == [ODD] * 3


@pytest.mark.feature("AD77")
def test_a_slice_is_bounded_whatever_the_number_of_samples() -> None:
    sizes = [part.count(b"\n") for part in slices(filled(SLICE_SAMPLES * 4).registry)]
    heads = 2 * 40  # HELP and TYPE of every family
    assert len(sizes) >= 4
    assert max(sizes) <= SLICE_SAMPLES + heads


def test_samples_are_made_while_they_are_written() -> None:
    made: list[int] = []

    def read() -> Iterator[tuple[tuple[str, ...], float]]:
        for number in range(SLICE_SAMPLES * 2):
            made.append(number)
            yield (str(number),), 1.0

    registry = CollectorRegistry()
    metrics = Metrics("broker")
    metrics.computed("t_many", read, "many", ("number",))
    registry.register(metrics.registry)
    next(slices(registry))
    assert len(made) <= SLICE_SAMPLES


def test_a_family_can_be_read_twice() -> None:
    family = ManySamples("t", "twice", ("x",), lambda: iter([(("a",), 1.0)]), kind="counter")
    assert (
        [one.name for one in family.samples] == [one.name for one in family.samples] == ["t_total"]
    )
