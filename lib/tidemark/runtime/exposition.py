"""Prometheus' text formats, written in slices: the event loop serves clients between two of them.

A broker with 40,000 partitions has half a million series. Written in one step they would hold up
every client for seconds, so that families with many series make their samples one at a time
(``ManySamples``), and the writer hands over a slice after SLICE_SAMPLES samples.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Final, cast

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import CollectorRegistry
from prometheus_client.samples import Sample

SLICE_SAMPLES: Final = 250
"""Samples of one slice: about half a millisecond of the event loop."""
TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

LabelValues = tuple[str, ...]
ReadSamples = Callable[[], Iterable[tuple[LabelValues, float]]]


class ManySamples(Metric):
    """Family whose samples are made while it is written; nothing of it is kept.

    ``read`` yields (label values, number). It must not depend on a collection that the service
    changes while it is iterated: take a copy of the keys first.
    """

    def __init__(
        self, name: str, doc: str, labels: Sequence[str], read: ReadSamples, *, kind: str = "gauge"
    ) -> None:
        """``kind`` is gauge, counter or unknown."""
        super().__init__(name, doc, kind)
        self._labelnames = tuple(labels)
        sample_name = f"{name}_total" if kind == "counter" else name
        self.samples = cast("list[Sample]", _Samples(sample_name, self._labelnames, read))


class _Samples:
    """Samples of one family, made again by each iteration."""

    def __init__(self, name: str, labels: LabelValues, read: ReadSamples) -> None:
        self._name = name
        self._labels = labels
        self._read = read

    def __iter__(self) -> Iterator[Sample]:
        name, labels = self._name, self._labels
        for values, number in self._read():
            yield Sample(name, dict(zip(labels, values, strict=True)), number)


def content_type(accept: str) -> str:
    """Return the format for a scraper that accepts ``accept``: OPEN_METRICS or TEXT."""
    return OPEN_METRICS if "application/openmetrics-text" in accept else TEXT


def slices(registry: CollectorRegistry, wanted_type: str = TEXT) -> Iterator[bytes]:
    """Yield all families in the format ``wanted_type``, a bounded number of samples at a time."""
    is_open = wanted_type == OPEN_METRICS
    lines: list[str] = []
    count = 0
    for family in registry.collect():
        lines.append(_head(family, is_open=is_open))
        for sample in family.samples:
            lines.append(_line(sample))
            count += 1
            if count >= SLICE_SAMPLES:
                yield "".join(lines).encode()
                lines, count = [], 0
    if is_open:
        lines.append("# EOF\n")
    yield "".join(lines).encode()


def _head(family: Metric, *, is_open: bool) -> str:
    name, kind = family.name, family.type
    if not is_open:
        name = f"{name}_total" if kind == "counter" else f"{name}_info" if kind == "info" else name
        kind = {"unknown": "untyped", "info": "gauge"}.get(kind, kind)
    doc = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
    if is_open:
        doc = doc.replace('"', r"\"")
    return f"# HELP {name} {doc}\n# TYPE {name} {kind}\n"


def _line(sample: Sample) -> str:
    number = _number(sample.value)
    if not sample.labels:
        return f"{sample.name} {number}\n"
    pairs = [f'{name}="{_escape(text)}"' for name, text in sorted(sample.labels.items())]
    return f"{sample.name}{{{','.join(pairs)}}} {number}\n"


def _escape(text: str) -> str:
    if '"' in text or "\\" in text or "\n" in text:
        return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return text


def _number(value: float) -> str:
    if value == inf:
        return "+Inf"
    return "-Inf" if value == -inf else repr(float(value))
