"""Write Grafana's dashboards to monitoring/dashboards, as JSON to be imported; their panels are in
monitoring/panels.yaml.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

OUTPUT: Final = Path(__file__).parent.parent / "monitoring/dashboards"
PANELS: Final = OUTPUT.parent / "panels.yaml"
SOURCE: Final = {"type": "prometheus", "uid": "${source}"}
WIDTH: Final = 24
PANELS_A_ROW: Final = 3
HEIGHT: Final = 8
QUANTILES: Final = (0.5, 0.99)


Board = Mapping[str, Any]
"""A dashboard or a panel, as in panels.yaml."""


def dashboard(board: Board) -> dict[str, object]:
    """Return a dashboard as Grafana imports it."""
    title = board["title"]
    variables: list[dict[str, object]] = [
        {"name": "source", "type": "datasource", "query": "prometheus", "label": "Data source"}
    ]
    if "variable" in board:
        # Not ".*": the sum over all topics has the label topic="".
        every = {"includeAll": True, "multi": True, "allValue": ".+", "refresh": 2}
        named = {"name": board["variable"], "type": "query", "query": board["values"]}
        variables.append({**named, "datasource": SOURCE, **every})
    return {
        "uid": "tidemark-" + _slug(title),
        "title": f"Tidemark: {title}",
        "tags": ["tidemark"],
        "schemaVersion": 38,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables},
        "panels": [_panel(number, panel) for number, panel in enumerate(board["panels"])],
    }


def _slug(title: str) -> str:
    return title.lower().replace(" ", "-")


def _panel(number: int, panel: Board) -> dict[str, object]:
    width = WIDTH // PANELS_A_ROW
    row, column = divmod(number, PANELS_A_ROW)
    unit = "s" if "histogram" in panel else panel.get("unit", "short")
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel["title"],
        "description": panel.get("note", ""),
        "datasource": SOURCE,
        "gridPos": {"x": column * width, "y": row * HEIGHT, "w": width, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": query, "legendFormat": legend}
            for place, (query, legend) in enumerate(_queries(panel))
        ],
    }


def _queries(panel: Board) -> list[tuple[str, str]]:
    """Return the queries of a panel with their legends."""
    if "histogram" not in panel:
        return [(panel["query"], panel.get("by", ""))]
    label, where = panel["by"], panel.get("where", "")
    series = f"{panel['histogram']}_bucket" + (f"{{{where}}}" if where else "")
    rates = f"sum by ({label}, le) (rate({series}[$__rate_interval]))"
    return [
        (f"histogram_quantile({share}, {rates})", f"p{share * 100:g} {{{{{label}}}}}")
        for share in QUANTILES
    ]


def pages() -> dict[str, str]:
    """Return the content of every file, by name."""
    boards = yaml.safe_load(PANELS.read_text(encoding="utf-8"))
    return {
        f"{_slug(board['title'])}.json": json.dumps(dashboard(board), indent=1) + "\n"
        for board in boards
    }


def main() -> None:
    """Write every dashboard."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (OUTPUT / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
