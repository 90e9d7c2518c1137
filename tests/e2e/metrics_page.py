"""The tables of docs/operating/metrics.md: what they list, and what processes serve."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

PAGE: Final = Path(__file__).parents[2] / "docs/operating/metrics.md"
TITLES: Final = {
    "broker": "Broker",
    "controller": "Controller",
    "txn-coordinator": "Txn-coordinator",
    "share-coordinator": "Share-coordinator",
}
EVERY: Final = "Every service"
_ROW: Final = re.compile(r"^\| `(\w+)` \| (\w+) \|(.*?)\| (.+) \|$", re.MULTILINE)
_ROWS: Final = re.compile(r"\A(\|.*\n)*")
_HEAD: Final = "| name | type | labels | meaning |\n| --- | --- | --- | --- |\n"


class Listed(NamedTuple):
    """One metric: labels in alphabetical order, '' where it has none or no series."""

    kind: str
    labels: str
    meaning: str


def served(texts: Iterable[str]) -> dict[str, Listed]:
    """Every metric of what processes of one kind serve, under the name that a query uses."""
    found: dict[str, Listed] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            kind = "untyped" if family.type == "unknown" else family.type
            labels = {label for one in family.samples for label in one.labels} - {"le"}
            before = found.get(name)
            if before is not None:
                labels |= set(filter(None, before.labels.split(", ")))
            found[name] = Listed(kind, ", ".join(sorted(labels)), family.documentation)
    return found


def listed() -> dict[str, dict[str, Listed]]:
    """Metrics by the title of their section."""
    sections = PAGE.read_text().split("\n## ")[1:]
    return {
        section.partition("\n")[0]: {
            name: Listed(kind, labels.strip(), meaning)
            for name, kind, labels, meaning in _ROW.findall(section)
        }
        for section in sections
    }


def rewrite(by_service: Mapping[str, Mapping[str, Listed]]) -> None:
    """Write the tables again; what else the page says stays."""
    common = set.intersection(*(set(metrics) for metrics in by_service.values()))
    first = next(iter(by_service.values()))
    sections = {EVERY: {name: one for name, one in first.items() if name in common}}
    for service, metrics in by_service.items():
        own = {name: one for name, one in metrics.items() if name not in common}
        sections[TITLES[service]] = own
    before = listed()
    text = PAGE.read_text()
    for title, metrics in sections.items():
        known = before.get(title, {})
        rows = [
            f"| `{name}` | {one.kind} |{_labels(one, known.get(name))}| {one.meaning} |"
            for name, one in sorted(metrics.items())
        ]
        lead, head, rest = text.partition(f"\n## {title}\n\n{_HEAD}")
        assert head, f"the page has no table {title}"
        text = lead + head + "".join(f"{row}\n" for row in rows) + _ROWS.sub("", rest, count=1)
    PAGE.write_text(text)


def _labels(now: Listed, before: Listed | None) -> str:
    """Labels, also of a metric that has no series at the moment."""
    labels = now.labels or (before.labels if before is not None else "")
    return f" {labels} " if labels else " "
