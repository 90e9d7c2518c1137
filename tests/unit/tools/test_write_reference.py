"""The pages that `make reference` writes."""

import re
import runpy
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from broker.config import BrokerConfig
from controller.config import ControllerConfig
from tidemark.kafka.apis import INTERNAL_APIS, ApiKey
from tidemark.model.topic_configs import TOPIC_CONFIG_KEYS
from tidemark.runtime.service_config import ServiceConfig, config_keys

Pages = Mapping[str, Callable[[], str]]

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def pages() -> Pages:
    tool = runpy.run_path(str(ROOT / "tools/write_reference.py"))
    found: Pages = tool["PAGES"]
    return found


@pytest.mark.parametrize("config_class", [BrokerConfig, ControllerConfig])
def test_every_key_says_what_it_is(config_class: type[ServiceConfig]) -> None:
    assert [key.name for key in config_keys(config_class) if not key.doc.strip()] == []


def test_every_topic_key_says_what_it_is() -> None:
    assert [key.name for key in TOPIC_CONFIG_KEYS.values() if not key.doc.strip()] == []


def test_every_page_is_a_title_and_tables_without_an_empty_name(pages: Pages) -> None:
    for name, write in pages.items():
        text = write()
        rows = [line for line in text.splitlines() if line.startswith("|")]
        assert text.startswith("# "), name
        assert len(rows) > 5, name
        assert all(row.split("|")[1].strip() for row in rows), name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("broker-config", "| `broker.id` |"),
        ("controller-config", "| `rest.listen` |"),
        ("topic-config", "| `flush` | text: os, group | `os` |"),
        ("errors", "| 6 | `NOT_LEADER_OR_FOLLOWER` | yes |"),
        ("metrics", "| `kafka_server_brokertopicmetrics_bytesin_total` | counter | topic |"),
        ("exit-codes", "| 74 | `IO` |"),
        ("kafka-apis", "| 0 | Produce | 0 to 13 | 3 to 13 | 9 |"),
        ("compatibility", "| 0 | Produce | 3 to 13 | 3 to 13 |  |"),
        ("kafka-settings", "| `log.dir` | list |"),
    ],
)
def test_the_pages_say_what_the_code_says(pages: Pages, name: str, expected: str) -> None:
    assert expected in pages[name]()


def test_every_api_that_clients_may_ask_for_has_a_handler(pages: Pages) -> None:
    shown = pages["kafka-apis"]()
    for_clients = [key for key in ApiKey if key not in INTERNAL_APIS]
    assert [key.name for key in for_clients if f"| {int(key)} | " not in shown] == []


def test_every_metric_of_a_service_that_operators_read_of_is_measured(pages: Pages) -> None:
    texts = [path.read_text() for path in (ROOT / "docs/operating").glob("*.md")]
    found = {name for text in texts for name in re.findall(r"`((?:kafka|tidemark)_\w+)[`{]", text)}
    helps = [key.doc for one in (BrokerConfig, ControllerConfig) for key in config_keys(one)]
    found |= {name for text in helps for name in re.findall(r"\btidemark_\w+", text)}
    named = {name for name in found if not name.startswith("tidemark_spark")}
    assert len(named) > 30
    assert {name for name in named if f"`{name}`" not in pages["metrics"]()} == set()
