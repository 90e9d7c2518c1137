"""Write docs/reference/*.md from the code: what can be set, answered and measured.

The pages are not committed; `make reference` runs this. They cannot differ from the code, because
nothing in them is written by hand but their first lines.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

from broker.config import BrokerConfig
from broker.shell.broker_server import BrokerServer
from broker.shell.metrics.collector import BrokerCollector
from broker.shell.metrics.recovery import RecoveryCollector
from broker.shell.seams import machine_seams
from broker.storage.recovery_progress import RecoveryProgress
from controller.admin.gate_metrics import GateMetrics
from controller.admin.lost_nodes import WatchMetrics
from controller.config import ControllerConfig
from controller.login.logins import failed_logins
from controller.shell.metrics import measure
from controller.shell.node import ControllerNode
from kafka_apis import api_rows
from kafka_settings import broker_rows, own_rows, topic_rows
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import CollectorRegistry
from share_coordinator.config import ShareCoordinatorConfig
from share_coordinator.shell.node import ShareCoordinatorNode
from tidemark.kafka.apis import APIS, ApiKey
from tidemark.model.config_values import INT_MAX, LONG_MAX, LONG_MIN, ConfigKind, InvalidConfigError
from tidemark.model.errors import ErrorCode
from tidemark.model.topic_configs import TOPIC_CONFIG_KEYS
from tidemark.runtime.audit.config import LOG
from tidemark.runtime.clock import Clock
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.exit_codes import MEANING
from tidemark.runtime.metrics import Metrics
from tidemark.runtime.service_config import ServiceConfig, config_keys
from tidemark.runtime.watchdog import Watchdog
from tidemark.runtime.zk_metrics import measure_session
from tidemark.runtime.zk_session import ZkSession
from txn_coordinator.config import TxnCoordinatorConfig
from txn_coordinator.shell.node import TxnCoordinatorNode

OUTPUT: Final = Path(__file__).parent.parent / "docs/reference"
_KIND_WORDS: Final = {
    1: "true or false",
    2: "text",
    3: "32-bit number",
    5: "64-bit number",
    6: "decimal number",
    7: "comma-separated list",
}
# A value beyond every bound of a kind; and the bounds that go without saying.
_REFUSED: Final = {3: str(2**80), 5: str(2**80), 6: "1e99"}
_LIMITS: Final = (f" and at most {INT_MAX}", f" and at most {LONG_MAX}", f"at least {LONG_MIN}")
_NOWHERE: Final = "127.0.0.1:1"
"""Nothing is connected to: the services are only built, and asked what they would show."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def page(title: str, *parts: str) -> str:
    """One document."""
    return "\n\n".join([f"# {title}", *parts]) + "\n"


def service_config(service: str, config_class: type[ServiceConfig]) -> str:
    """Every key of a service."""
    prefix = f"TIDEMARK_{service.upper()}_"
    rows = [
        (f"`{key.name}`", key.accepts, f"`{key.default}`", key.doc)
        for key in config_keys(config_class)
    ]
    return page(
        f"Configuration of the {service}",
        f"In a YAML file (`--config PATH`), in the environment (`{prefix}` and the key in\n"
        "capitals, with _ for dots) or as a flag (`--key value`). A flag overrides the\n"
        "environment, which overrides the file.",
        table(("key", "accepts", "default", "meaning"), rows),
    )


def broker_config() -> str:
    """What a broker can be told."""
    return service_config("broker", BrokerConfig)


def controller_config() -> str:
    """What a controller can be told."""
    return service_config("controller", ControllerConfig)


def txn_coordinator_config() -> str:
    """Every option of the txn-coordinator."""
    return service_config("txn-coordinator", TxnCoordinatorConfig)


def share_coordinator_config() -> str:
    """Every option of the share-coordinator."""
    return service_config("share-coordinator", ShareCoordinatorConfig)


def topic_config() -> str:
    """Every key of a topic."""
    rows = [
        (
            f"`{key.name}`",
            kind_words(key.kind),
            f"`{_default(key.default)}`",
            f"`{key.broker_name}`" if key.broker_name else "",
            key.doc,
        )
        for key in TOPIC_CONFIG_KEYS.values()
    ]
    return page(
        "Configuration of a topic",
        "Set when a topic is created (`tidemark topic create -c KEY=VALUE`) or later\n"
        "(`tidemark topic alter`). A topic that does not set a key takes the broker-wide one, and\n"
        "else the default.",
        table(("key", "accepts", "default", "broker-wide key", "meaning"), rows),
    )


def kind_words(kind: ConfigKind) -> str:
    """What may stand at a key: what its parser says when it refuses a value."""
    words = _KIND_WORDS[kind.type_number]
    try:
        kind.parse(_REFUSED.get(kind.type_number, "?"))
    except InvalidConfigError as refusal:
        choices = str(refusal).partition("one of: ")[2]
        bounds = str(refusal).partition("value must be ")[2]
        for limit in _LIMITS:
            bounds = bounds.replace(limit, "")
        return ": ".join(filter(None, [words, choices or bounds]))
    return words


def _default(text: str) -> str:
    return "none" if text == "" else "no bound" if text == str(LONG_MAX) else text


def errors() -> str:
    """Every error code."""
    rows = [
        (str(int(code)), f"`{code.name}`", "yes" if code.retriable else "no") for code in ErrorCode
    ]
    return page(
        "Errors",
        "Kafka's numbers and names, on the Kafka wire and over gRPC alike. *Retriable*: the same\n"
        "request may succeed later, perhaps at another broker.",
        table(("code", "name", "retriable"), rows),
    )


def exit_codes() -> str:
    """Why a process ended."""
    rows = [(str(int(code)), f"`{code.name}`", text) for code, text in MEANING.items()]
    return page(
        "Exit codes",
        "Of every service and of the command line.",
        table(("code", "name", "meaning"), rows),
    )


def kafka_apis() -> str:
    """What the Kafka listeners answer."""
    rows = [_api_row(key) for key in a_broker().listeners[0].router.served()]
    return page(
        "Kafka APIs",
        "Versions of each API. An API that is not served is not advertised; a request for it\n"
        "gets UNSUPPORTED_VERSION.",
        table(("key", "API", "advertised", "served", "flexible from"), rows),
    )


def compatibility() -> str:
    """Kafka's APIs, and why some are not served."""
    rows = api_rows(set(a_broker().listeners[0].router.served()))
    return page(
        "Kafka's APIs and Tidemark",
        "All APIs of Kafka 4.3 with the versions that Kafka and Tidemark serve, and the reason\n"
        "where one is not served. Clients see it in ApiVersions, which does not advertise it.\n"
        "docs/compatibility.md compares the rest.",
        table(("key", "API", "Kafka", "Tidemark", "not there, why"), rows),
    )


def kafka_settings() -> str:
    """Kafka's settings of brokers and topics, with what each is here."""
    return page(
        "Kafka's settings and Tidemark",
        "The settings of brokers and topics of Kafka 4.3. *Works*: the name means the same here.\n"
        "*Run time*: `kafka-configs` or `tidemark config` changes it while brokers run;\n"
        "*start*: it is an option of the services named. Own pages describe our settings:\n"
        "broker-config.md, controller-config.md, txn-coordinator-config.md,\n"
        "share-coordinator-config.md, topic-config.md.",
        "## Brokers",
        table(
            ("setting", "type", "Kafka's default", "in Kafka", "service", "here", "state"),
            broker_rows(),
        ),
        "## Topics",
        "All of them change at run time.",
        table(("setting", "type", "Kafka's default", "state"), topic_rows()),
        "## Settings that Kafka does not have",
        table(("setting", "of", "here"), own_rows()),
    )


def _api_row(key: ApiKey) -> tuple[str, ...]:
    versions = APIS[key]
    name = "".join(word.capitalize() for word in key.name.split("_"))
    flexible = "" if versions.flexible_from is None else str(versions.flexible_from)
    return (
        str(int(key)),
        name,
        f"{versions.advertised_min} to {versions.max}",
        f"{versions.served_min} to {versions.max}",
        flexible,
    )


def metrics() -> str:
    """What /metrics shows."""
    parts = []
    registries = {
        "broker": broker_registry(),
        "controller": controller_registry(),
        "txn-coordinator": txn_coordinator_registry(),
        "share-coordinator": share_coordinator_registry(),
    }
    for service, registry in registries.items():
        rows = sorted(metric_rows(registry.collect()))
        parts += [f"## {service}", table(("name", "type", "labels", "what it counts"), rows)]
    first = "Served at `/metrics` of `ops.listen`, in Prometheus' text format."
    return page("Metrics", first, *parts)


def metric_rows(families: Iterable[Metric]) -> Iterator[tuple[str, ...]]:
    """Name as served, type, labels and meaning of each family."""
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        # The library keeps a family's label names to itself: without samples nothing shows them.
        labels = vars(family).get("_labelnames", ())
        yield f"`{name}`", family.type, ", ".join(labels), family.documentation


def a_broker() -> BrokerServer:
    """A broker without a cluster, whose disks did not open. It never starts."""
    config = BrokerConfig(broker_id=0, audit_sinks=(LOG,))

    async def on_a_loop() -> BrokerServer:
        controller = ControllerClient(endpoints=[_NOWHERE])
        seams = machine_seams(ZkSession(_NOWHERE), controller)
        unstarted = replace(seams, make_threads=ThreadPoolExecutor)
        return BrokerServer(config, (), unstarted, failed_directories=config.log_dirs)

    return asyncio.run(on_a_loop())


def metrics_of(service: str) -> Metrics:
    """Metrics that every service has."""
    shown = Metrics(service)
    Watchdog(shown, limit_ms=ServiceConfig.model_fields["event_loop_stall_ms"].default)
    measure_session(ZkSession(_NOWHERE), shown)
    return shown


def broker_registry() -> CollectorRegistry:
    """What a broker measures."""
    registry = metrics_of("broker").registry
    registry.register(RecoveryCollector(RecoveryProgress(("/data",))))
    registry.register(BrokerCollector(a_broker().measured()))
    return registry


def controller_registry() -> CollectorRegistry:
    """What a controller measures."""
    shown = metrics_of("controller")
    config = ControllerConfig(controller_id=0, audit_sinks=(LOG,))
    node = ControllerNode(config, ZkSession(_NOWHERE), Clock())
    measure(node, shown)
    node.audit.duties(lambda: None, shown)
    WatchMetrics(shown, lambda: 0)
    GateMetrics(shown)
    failed_logins(shown)
    return shown.registry


def txn_coordinator_registry() -> CollectorRegistry:
    """What a txn-coordinator measures."""
    shown = metrics_of("txn-coordinator")
    TxnCoordinatorNode(TxnCoordinatorConfig(coordinator_id=0), Clock(), shown)
    return shown.registry


def share_coordinator_registry() -> CollectorRegistry:
    """What a share-coordinator measures."""
    shown = metrics_of("share-coordinator")
    ShareCoordinatorNode(ShareCoordinatorConfig(coordinator_id=0), Clock(), shown)
    return shown.registry


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "broker-config": broker_config,
    "controller-config": controller_config,
    "txn-coordinator-config": txn_coordinator_config,
    "share-coordinator-config": share_coordinator_config,
    "topic-config": topic_config,
    "errors": errors,
    "metrics": metrics,
    "exit-codes": exit_codes,
    "kafka-apis": kafka_apis,
    "compatibility": compatibility,
    "kafka-settings": kafka_settings,
}


def main() -> None:
    """Write every page."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    for name, write in PAGES.items():
        path = OUTPUT / f"{name}.md"
        path.write_text(write(), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
