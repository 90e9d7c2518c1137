"""Kafka's settings of brokers and topics beside Tidemark's: the page kafka-settings.md.

``kafka_settings.tsv`` has names, types and defaults of Kafka 4.3; whether Tidemark has a setting is
seen in its code. For each that it has not, ``ABSENT`` says why.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from broker.config import BrokerConfig
from controller.config import ControllerConfig
from share_coordinator.config import ShareCoordinatorConfig
from tidemark.model.broker_configs import BROKER_CONFIG_KINDS
from tidemark.model.topic_configs import TOPIC_CONFIG_KEYS
from tidemark.runtime.service_config import ServiceConfig, config_keys
from txn_coordinator.config import TxnCoordinatorConfig

DATA: Final = Path(__file__).with_suffix(".tsv")
SERVICES: Final[Mapping[str, type[ServiceConfig]]] = {
    "broker": BrokerConfig,
    "controller": ControllerConfig,
    "txn-coordinator": TxnCoordinatorConfig,
    "share-coordinator": ShareCoordinatorConfig,
}
_NO_STREAMS: Final = "not there: streams groups (KIP-1071); Streams uses classic groups"
_NO_TIERS: Final = "not there: tiered storage (KIP-405)"
_NO_KRAFT: Final = "not applicable: metadata is in ZooKeeper, not in a Raft log"
_NO_CLASSES: Final = "not applicable: names a Java class"
_ONE_LOOP: Final = "not applicable: a broker serves requests on one event loop, without such pools"
_PEM: Final = (
    "not applicable: a Java key store; PEM files are named by ssl.certificate.location,"
    " ssl.key.location and ssl.ca.location"
)
_OPENSSL: Final = "not applicable: Python's defaults for TLS are used, with OpenSSL"
_PRINCIPALS: Final = "not there: names of users are not derived from certificates by rules"
_METRICS: Final = "not applicable: Prometheus reads /metrics, and computes rates"
_BUFFERS: Final = "not applicable: the operating system sizes the buffers of sockets"
_OFTEN: Final = "not applicable: requests that no longer wait are removed at once"
_INTERNAL: Final = "not applicable: brokers connect to the listener that is named INTERNAL"
_LOAD: Final = "not applicable: state is read in pieces of a fixed size"
_LATER: Final = "not there"

# The first pattern that matches a whole name counts.
ABSENT: Final[Mapping[str, str]] = {
    r"group\.streams\..*": _NO_STREAMS,
    r"remote\..*|(log\.)?local\..*|follower\.fetch\.last\.tiered.*": _NO_TIERS,
    r"controller\.(quorum|listener|socket)\..*|metadata\..*|node\.id|process\.roles": _NO_KRAFT,
    r"initial\.broker\.registration.*|early\.start\.listeners": _NO_KRAFT,
    r"broker\.(heartbeat\.interval|session\.timeout)\.ms": (
        "other name: zookeeper.session.timeout.ms, and lease.ms for leaders"
    ),
    r"broker\.rack": "other name: rack",
    r"log\.dir": "other name: log.dirs",
    r"log\.dir\.failure\.timeout\.ms": (
        "not applicable: a broker reports a failed directory until a controller has answered"
    ),
    r"cordoned\.log\.dirs": f"{_LATER}: cordoned directories (KIP-1066)",
    r".*\.purgatory\..*": _OFTEN,
    r"num\..*threads.*|background\.threads|num\.replica\.fetchers": _ONE_LOOP,
    r"(group|share)\.coordinator\..*threads": _ONE_LOOP,
    r"queued\.max\.requests": "other name: requests.in.flight.max, for each connection",
    r"queued\.max\.request\.bytes": "other name: buffers.max.bytes",
    r"log\.cleaner\.(threads|dedupe\..*|io\.buffer\..*)": (
        "not applicable: one process compacts, and takes the memory that a round needs"
    ),
    r"log\.flush\.scheduler\.interval\.ms": "other name: log.flush.interval.ms",
    r"log\.flush\.start\.offset\.checkpoint.*|replica\.high\.watermark\.checkpoint.*": (
        "other name: log.flush.offset.checkpoint.interval.ms"
    ),
    r"delegation\.token\..*": "not there: delegation tokens (KIP-48)",
    r"sasl\.kerberos\..*": "not there: Kerberos",
    r"sasl\.(oauthbearer|login)\..*": "not there: OAUTHBEARER",
    r"sasl\.jaas\.config": "not applicable: users of SCRAM are kept in the cluster",
    r"(sasl\.mechanism|security)\.(inter\.broker|controller)\.protocol": _INTERNAL,
    r"inter\.broker\..*": _INTERNAL,
    r"ssl\.(keystore|truststore)\..*": _PEM,
    r"ssl\.principal\..*|ssl\.allow\..*": _PRINCIPALS,
    r"ssl\..*": _OPENSSL,
    r"replica\.selector\.class": "not there: consumers fetch from leaders (KIP-392)",
    r".*\.(class|class\.name|classes)|config\.providers|security\.providers": _NO_CLASSES,
    r"(kafka\.)?metrics?\..*": _METRICS,
    r"socket\.listen\.backlog\.size": "not applicable: a fixed number of connections may wait",
    r"socket\..*|replica\.socket\.receive\.buffer\.bytes": _BUFFERS,
    r"replica\.fetch\.min\.bytes": "not applicable: a leader answers a follower at the first byte",
    r"(alter\.log\.dirs\.replication\.|replication\.)quota\.window.*": (
        "not applicable: a rate has one second's worth of allowance"
    ),
    r"(controller\.)?quota\.window\..*": "not there: windows of quotas",
    r"replica\.alter\.log\.dirs\..*": "not there: moves between directories of a broker (KIP-113)",
    r"max\.connection\.creation\.rate": "not there: a rate of new connections",
    r"max\.request\.partition\.size\.limit": "other name: a fixed bound of DescribeTopicPartitions",
    r"transaction\.two\.phase\.commit\.enable": "not there: two-phase commit (KIP-939)",
    r"transaction\.abort\.timed\.out\..*": (
        "not applicable: a transaction is aborted when its own timeout ends"
    ),
    r".*\.load\.buffer\.size": _LOAD,
    r".*\.compression\.codec": "not applicable: records of coordinators are not compressed",
    r".*\.cached\.buffer\.max\.bytes": "not applicable: no buffers are kept between writes",
    r"group\.coordinator\.append\.linger\.ms": (
        "not applicable: what arrives in one turn of the event loop is one batch"
    ),
    r"group\.consumer\..*assignment\.interval\.ms": (
        "not applicable: an assignment is computed when a member or a topic changes"
    ),
    r"group\.share\.(min|max)\.assignment\.interval\.ms": (
        "not applicable: groups do not set the interval"
    ),
}


class Setting(NamedTuple):
    """One setting of Kafka. ``dynamic``: '', 'broker' (for one broker only) or 'cluster'."""

    owner: str
    name: str
    kind: str
    default: str
    dynamic: str


def kafka_settings() -> list[Setting]:
    """Return the settings of Kafka 4.3, by owner and name; internal ones are left out."""
    lines = DATA.read_text(encoding="utf-8").splitlines()
    return [Setting(*line.split("\t")) for line in lines if not line.startswith("#")]


def own_settings() -> dict[str, dict[str, str]]:
    """Return Tidemark's settings by name: services, each with its default."""
    found: dict[str, dict[str, str]] = {}
    for service, config_class in SERVICES.items():
        for key in config_keys(config_class):
            found.setdefault(key.name, {})[service] = key.default
    for name in BROKER_CONFIG_KINDS:
        found.setdefault(name, {"broker": ""})
    return found


def why_absent(name: str) -> str:
    """Return why Tidemark does not have a setting of Kafka. Raises LookupError."""
    for pattern, reason in ABSENT.items():
        if re.fullmatch(pattern, name):
            return reason
    raise LookupError(f"tools/kafka_settings.py does not say why {name} is not there")


def broker_rows() -> Iterator[tuple[str, ...]]:
    """Yield name, Kafka's type and default, Kafka's and our way to change it, our services, and
    what a reader has to know, for each of Kafka's settings.
    """
    own = own_settings()
    for one in kafka_settings():
        if one.owner != "broker":
            continue
        here = own.get(one.name, {})
        dynamic = "run time" if one.name in BROKER_CONFIG_KINDS else "start" if here else ""
        kafka_dynamic = "run time" if one.dynamic else "start"
        state = _works(one, here) if here else why_absent(one.name)
        services = ", ".join(here)
        yield (
            f"`{one.name}`",
            one.kind,
            _shown(one.default),
            kafka_dynamic,
            services,
            dynamic,
            state,
        )


def topic_rows() -> Iterator[tuple[str, ...]]:
    """Yield name, Kafka's type and default, and state of each of Kafka's settings of topics."""
    for one in kafka_settings():
        if one.owner != "topic":
            continue
        key = TOPIC_CONFIG_KEYS.get(one.name)
        if key is None:
            state = why_absent(one.name)
        elif key.default == one.default:
            state = "works"
        else:
            state = f"works; default here: {_shown(key.default)}"
        yield f"`{one.name}`", one.kind, _shown(one.default), state


def own_rows() -> Iterator[tuple[str, ...]]:
    """Yield name, services and way to change it of settings that Kafka does not have."""
    kafka = {(one.owner, one.name) for one in kafka_settings()}
    for name, services in sorted(own_settings().items()):
        if ("broker", name) not in kafka:
            dynamic = "run time" if name in BROKER_CONFIG_KINDS else "start"
            yield f"`{name}`", ", ".join(services), dynamic
    for name in TOPIC_CONFIG_KEYS:
        if ("topic", name) not in kafka:
            yield f"`{name}`", "topic", "run time"


def _works(one: Setting, here: Mapping[str, str]) -> str:
    """Return ``works``, with the default if it is another one."""
    defaults = {default for default in here.values() if default not in ("", "none")}
    if not defaults or any(_same(default, one.default) for default in defaults):
        return "works"
    return f"works; default here: {', '.join(_shown(each) for each in sorted(defaults))}"


def _same(ours: str, kafkas: str) -> bool:
    try:
        return float(ours) == float(kafkas)
    except ValueError:
        return ours == kafkas


def _shown(text: str) -> str:
    return f"`{text}`" if text else ""
