"""The page of metrics names the labels of a broker's series, of those too that are rarely there."""

import re
from pathlib import Path

from broker.shell.metrics.collector import BrokerCollector
from unit.broker.shell.broker_worlds import World

PAGE = Path(__file__).parents[4] / "docs/operating/metrics.md"
ROW = re.compile(r"^\| `(\w+)` \| \w+ \|(.*?)\| .+ \|$", re.MULTILINE)


def test_the_page_names_the_labels_of_metrics_without_series() -> None:
    section = PAGE.read_text().split("\n## Broker\n")[1].split("\n## ")[0]
    listed = {name: labels.strip() for name, labels in ROW.findall(section)}
    served = {
        f"{one.name}_total" if one.type == "counter" else one.name: ", ".join(
            sorted(getattr(one, "_labelnames", ()))
        )
        for one in BrokerCollector(World().parts.measured()).collect()
    }
    assert len(served) > 50
    assert {name: listed.get(name) for name in served} == served
