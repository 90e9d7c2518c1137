"""Settings of a broker that are in force now: this broker's dynamic one, else the one of all
brokers, else the one at the start.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tidemark.model.broker_configs import BROKER_CONFIG_KINDS, connections_by_address
from tidemark.model.config_values import InvalidConfigError
from tidemark.model.ids import BrokerId

from broker.config import BrokerConfig

CLUSTER_WIDE = ""
Configs = Mapping[str, Mapping[str, str]]
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """Values in force. Attributes are Kafka's names, with _ for dots."""

    log_cleaner_backoff_ms: int
    log_cleaner_io_max_bytes_per_second: float
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: Mapping[str, int]
    producer_id_expiration_check_interval_ms: int
    producer_id_expiration_ms: int
    replica_alter_log_dirs_io_max_bytes_per_second: int


def settings_in_force(config: BrokerConfig, configs: Configs, broker_id: BrokerId) -> LiveSettings:
    """Return the settings of a broker that started with ``config``. ``configs``: dynamic settings
    by broker id and name, as in the cluster's image.
    """

    def value(name: str, at_start: Value, read: Callable[[str], Value]) -> Value:
        return next(_dynamic(configs, broker_id, name, read), at_start)

    return LiveSettings(
        log_cleaner_backoff_ms=value("log.cleaner.backoff.ms", config.log_cleaner_backoff_ms, int),
        log_cleaner_io_max_bytes_per_second=value(
            "log.cleaner.io.max.bytes.per.second", config.log_cleaner_io_max_bytes_per_second, float
        ),
        max_connections=value("max.connections", config.max_connections, int),
        max_connections_per_ip=value("max.connections.per.ip", config.max_connections_per_ip, int),
        max_connections_per_ip_overrides=value(
            "max.connections.per.ip.overrides",
            connections_by_address(config.max_connections_per_ip_overrides),
            connections_by_address,
        ),
        producer_id_expiration_check_interval_ms=value(
            "producer.id.expiration.check.interval.ms",
            config.producer_id_expiration_check_interval_ms,
            int,
        ),
        producer_id_expiration_ms=value(
            "producer.id.expiration.ms", config.producer_id_expiration_ms, int
        ),
        replica_alter_log_dirs_io_max_bytes_per_second=value(
            "replica.alter.log.dirs.io.max.bytes.per.second",
            config.replica_alter_log_dirs_io_max_bytes_per_second,
            int,
        ),
    )


def _dynamic(
    configs: Configs, broker_id: BrokerId, name: str, read: Callable[[str], Value]
) -> Iterator[Value]:
    """Yield the dynamic values of a setting, the strongest first. A value of a newer release that
    is not valid here does not count.
    """
    for owner in (str(broker_id), CLUSTER_WIDE):
        text = configs.get(owner, {}).get(name)
        if text is None:
            continue
        try:
            BROKER_CONFIG_KINDS[name].parse(text)
        except InvalidConfigError:
            continue
        yield read(text)
