"""Rows of figures: a table for people, JSON for programs."""

import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, ParamSpec

from rich.console import Console
from rich.table import Table


@dataclass
class Row:
    """One measurement: the medians of its runs. Ratios are to the floor of the same run."""

    group: str
    name: str
    mb_s: float | None = None
    requests_s: float | None = None
    cpu_s_per_gb: float | None = None
    floor_cpu_s_per_gb: float | None = None
    ratio: float | None = None
    bound: str = ""
    held: bool | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None
    extra: dict[str, float | str] = field(default_factory=dict)


HEADINGS: Final = (
    "what",
    "MB/s",
    "req/s",
    "CPU s/GB",
    "floor",
    "ratio",
    "p50 ms",
    "p99 ms",
    "p99.9 ms",
)
_P = ParamSpec("_P")


def median_of(
    runs: int, measure: Callable[_P, dict[str, float]], *args: _P.args, **kwargs: _P.kwargs
) -> dict[str, float]:
    """Each figure's median over ``runs`` runs."""
    samples = [measure(*args, **kwargs) for _ in range(runs)]
    return {key: statistics.median(sample[key] for sample in samples) for key in samples[0]}


def show(rows: Sequence[Row], console: Console) -> None:
    """One table a group."""
    for group in dict.fromkeys(row.group for row in rows):
        table = Table(title=group, title_justify="left")
        for heading in (
            "what",
            "MB/s",
            "req/s",
            "CPU s/GB",
            "floor",
            "ratio",
            "p50",
            "p99",
            "p99.9",
        ):
            table.add_column(heading, justify="left" if heading == "what" else "right")
        table.add_column("bound")
        table.add_column("also")
        for row in rows:
            if row.group == group:
                table.add_row(*cells(row))
        console.print(table)


def cells(row: Row) -> list[str]:
    """One row of the table."""

    def number(value: float | None, digits: int = 2) -> str:
        return "" if value is None else f"{value:,.{digits}f}"

    verdict = "" if row.held is None else (" held" if row.held else " MISSED")
    return [
        row.name,
        number(row.mb_s, 0),
        number(row.requests_s, 0),
        number(row.cpu_s_per_gb),
        number(row.floor_cpu_s_per_gb),
        number(row.ratio),
        number(row.p50_ms),
        number(row.p99_ms),
        number(row.p999_ms),
        row.bound + verdict,
        " ".join(
            f"{key}={value:,.2f}" if isinstance(value, float) else f"{key}={value}"
            for key, value in row.extra.items()
        ),
    ]


def write_json(rows: Sequence[Row], directory: Path, options: dict[str, object]) -> Path:
    """All rows with what they were measured on."""
    directory.mkdir(exist_ok=True)
    path = directory / time.strftime("%Y%m%d-%H%M%S.json")
    content = {
        "machine": platform.platform(),
        "python": platform.python_version(),
        "options": options,
        "rows": [asdict(row) for row in rows],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path
