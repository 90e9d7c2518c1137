"""Report of a comparison: a table in Markdown, and a JSON file."""

import json
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from bench.peers.figures import Figures, Sample, cell, figures_of, is_behind, times
from bench.peers.rows import COMPILED, KAFKA, NATS, TIDEMARK, Row, records_a_second

TITLES: Mapping[str, str] = {
    KAFKA: "Apache Kafka",
    TIDEMARK: "Tidemark",
    COMPILED: "Tidemark, compiled",
    NATS: "NATS JetStream",
}
_OWN: Final = (TIDEMARK, COMPILED)
_PEERS: Final = (KAFKA, NATS)


@dataclass(frozen=True, slots=True)
class Measured:
    """A load, the runs of each system, and the load average after them."""

    row: Row
    samples: Mapping[str, Sequence[Sample]]
    load_average: float

    def figures(self, system: str) -> Figures | None:
        """None if the system was not measured."""
        found = self.samples.get(system)
        return figures_of(found, self.row.cost) if found else None

    def cell(self, system: str) -> str:
        """Text of a system's column."""
        figures = self.figures(system)
        text = cell(figures, self.row.cost)
        behind = figures is not None and is_behind(figures, records_a_second(self.row))
        return f"{text} (behind the rate asked)" if behind else text


@dataclass(slots=True)
class Circumstances:
    """What figures are worth nothing without."""

    options: Mapping[str, object]
    versions: Mapping[str, str]
    is_short: bool
    machine: str = field(default_factory=platform.platform)
    processors: int = field(default_factory=lambda: os.cpu_count() or 0)

    def lines(self, measured: Sequence[Measured]) -> Iterator[str]:
        """Sentences below the table."""
        averages = [one.load_average for one in measured]
        versions = ", ".join(f"{TITLES[name]} {text}" for name, text in self.versions.items())
        yield f"{versions}. {self.processors} processors, {self.machine}."
        yield (
            f"{self.options['runs']} runs in turns of {self.options['megabytes']} MB or "
            f"{self.options['seconds']:g} s; load average {min(averages):.0f} to "
            f"{max(averages):.0f}, load and servers included."
        )
        if self.is_short:
            yield (
                f"SHORT WARM-UP: {self.options['warm_up_megabytes']} MB instead of 5,120 passed "
                "through Kafka's JVMs before; they had not compiled all that matters."
            )


def markdown(measured: Sequence[Measured]) -> Iterator[str]:
    """Lines of the table: a column for each system that was measured, and after those of the peers
    how many times as much CPU they take as each build of Tidemark.
    """
    own, peers = (
        [name for name in names if any(name in one.samples for one in measured)]
        for names in (_OWN, _PEERS)
    )
    heads = [TITLES[name] for name in own]
    for peer in peers:
        heads += [TITLES[peer], *[_times_head(name) for name in own]]
    yield _line("load", *heads)
    yield _line(*["---"] * (len(heads) + 1))
    for one in measured:
        cells = [one.cell(name) for name in own]
        for peer in peers:
            cells.append(one.cell(peer))
            cells += [times(one.figures(peer), one.figures(name)) for name in own]
        yield _line(one.row.title, *cells)


def _times_head(build: str) -> str:
    return "times compiled" if build == COMPILED else "times"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def write_json(measured: Sequence[Measured], circumstances: Circumstances, directory: Path) -> Path:
    """All runs, and what they were measured on."""
    directory.mkdir(exist_ok=True)
    path = directory / time.strftime("peers-%Y%m%d-%H%M%S.json")
    content = {
        **asdict(circumstances),
        "rows": [
            {
                "name": one.row.name,
                "title": one.row.title,
                "cost": one.row.cost.value,
                "load_average": one.load_average,
                "runs": {
                    name: [asdict(sample) for sample in samples]
                    for name, samples in one.samples.items()
                },
                "figures": {
                    name: asdict(figures)
                    for name in one.samples
                    if (figures := one.figures(name)) is not None
                },
            }
            for one in measured
        ],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path
