"""Configuration of brokers, topics and groups as it is shown: each key with its value and the
settings that it overrides.

Strongest first (Kafka's order): the topic's or group's own setting, this broker's dynamic one, the
cluster-wide dynamic one, the broker's setting at its start, the default.
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from tidemark.model.broker_configs import BROKER_CONFIG_KINDS
from tidemark.model.client_metrics_configs import CLIENT_METRICS_CONFIG_KEYS
from tidemark.model.config_values import INT_MAX
from tidemark.model.group_configs import GROUP_CONFIG_KEYS, GroupConfigKey
from tidemark.model.ids import BrokerId
from tidemark.model.metadata import ClusterImage
from tidemark.model.share_group_configs import SHARE_GROUP_CONFIG_KEYS, ShareGroupConfigKey
from tidemark.model.topic_configs import TOPIC_CONFIG_KEYS, TopicConfigKey
from tidemark.runtime.service_config import ServiceConfig, dotted

from broker.coarse_times import COARSE_TIMES

CLUSTER_WIDE: Final = ""
"""Name of the dynamic configuration of all brokers."""


class ConfigSource(IntEnum):
    """Origin of a value (DescribeConfigs' numbers)."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    DYNAMIC_CLIENT_METRICS = 7
    DYNAMIC_GROUP = 8


_DYNAMIC: Final = (ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER)


class Setting(NamedTuple):
    """One source of a value (DescribeConfigs: a synonym)."""

    name: str
    value: str | None
    source: ConfigSource
    converted: str | None = None
    """The value in the unit of the key, if the name has another unit."""


class ShownConfig(NamedTuple):
    """One key as DescribeConfigs shows it; ``settings`` strongest first, the first one in force."""

    name: str
    settings: tuple[Setting, ...]
    type_number: int
    doc: str
    read_only: bool
    is_sensitive: bool

    @property
    def value(self) -> str | None:
        """Value in force; a secret is never shown."""
        first = self.settings[0]
        return None if self.is_sensitive else first.converted or first.value

    @property
    def source(self) -> ConfigSource:
        """Source of the value in force."""
        return self.settings[0].source


class BrokerKey(NamedTuple):
    """One key of a broker. ``is_dynamic``: it may change while the broker runs."""

    name: str
    type_number: int
    default: str | None
    doc: str
    is_dynamic: bool
    is_sensitive: bool


# DescribeConfigs' config types; secrets are recognised by their name, as in every service.
_BOOLEAN, _STRING, _INT, _LONG, _DOUBLE, _LIST, _PASSWORD = 1, 2, 3, 5, 6, 7, 9
_TYPE_NUMBERS: Final[Mapping[object, int]] = {bool: _BOOLEAN, int: _LONG, float: _DOUBLE}

_TOPIC_KEY_BY_BROKER_NAME: Final[Mapping[str, TopicConfigKey]] = {
    key.broker_name: key for key in TOPIC_CONFIG_KEYS.values() if key.broker_name
}
_ROUND_INTERVAL: Final = "log.flush.interval.ms"
"""This setting of a broker is the interval of its background rounds, not flush.ms."""


@lru_cache(maxsize=4)
def broker_keys(config_class: type[ServiceConfig]) -> Mapping[str, BrokerKey]:
    """Return every key of a broker by name, sorted: its settings at the start, and the defaults of
    topic configuration.
    """
    keys = {
        name: BrokerKey(
            name, key.kind.type_number, key.default, key.doc, is_dynamic=True, is_sensitive=False
        )
        for name, key in _TOPIC_KEY_BY_BROKER_NAME.items()
    }
    for field_name, info in config_class.model_fields.items():
        name = dotted(field_name)
        if name in keys and name != _ROUND_INTERVAL:
            continue
        is_sensitive = "password" in name or "secret" in name or name == "listener.name"
        keys[name] = BrokerKey(
            name,
            _PASSWORD if is_sensitive else _type_number_of(info),
            None if info.is_required() else shown_text(info.get_default(call_default_factory=True)),
            info.description or "",
            is_dynamic=name in BROKER_CONFIG_KINDS,
            is_sensitive=is_sensitive,
        )
    return dict(sorted(keys.items()))


def broker_settings(
    key: BrokerKey, config: ServiceConfig, image: ClusterImage, broker_id: BrokerId
) -> tuple[Setting, ...]:
    """Return all settings of one key on one broker, strongest first; the last is its default."""
    settings = []
    for resource, source in (
        (str(broker_id), ConfigSource.DYNAMIC_BROKER),
        (CLUSTER_WIDE, ConfigSource.DYNAMIC_DEFAULT_BROKER),
    ):
        value = image.broker_configs.get(resource, {}).get(key.name)
        if value is not None:
            settings.append(Setting(key.name, value, source))
    field_name = key.name.replace(".", "_")
    if field_name in config.model_fields_set:
        started_with = shown_text(getattr(config, field_name))
        if started_with is not None:
            settings.append(Setting(key.name, started_with, ConfigSource.STATIC_BROKER))
    settings += _coarse_settings(key, config)
    return tuple(settings)


def _coarse_settings(key: BrokerKey, config: ServiceConfig) -> Iterator[Setting]:
    """Yield the settings of a key under coarser names that are set, and its default."""
    default = Setting(key.name, key.default, ConfigSource.DEFAULT)
    for coarse in COARSE_TIMES.get(key.name, ()):
        value = getattr(config, coarse.field_name)
        if coarse.field_name in config.model_fields_set and value is not None:
            shown = str(value)
            yield Setting(coarse.name, shown, ConfigSource.STATIC_BROKER, coarse.in_ms(value))
        usual = type(config).model_fields[coarse.field_name].default
        if usual is not None:
            default = Setting(coarse.name, str(usual), ConfigSource.DEFAULT, coarse.in_ms(usual))
    yield default


def topic_configs_shown(
    config: ServiceConfig,
    image: ClusterImage,
    broker_id: BrokerId,
    overrides: Mapping[str, str],
) -> list[ShownConfig]:
    """Return every key of a topic that sets ``overrides``, sorted by name."""
    keys = broker_keys(type(config))
    shown = []
    for name, key in sorted(TOPIC_CONFIG_KEYS.items()):
        settings: tuple[Setting, ...] = (Setting(name, key.default, ConfigSource.DEFAULT),)
        if key.broker_name == _ROUND_INTERVAL:
            of_broker = broker_settings(keys[key.broker_name], config, image, broker_id)
            settings = (*(one for one in of_broker if one.source in _DYNAMIC), *settings)
        elif key.broker_name:
            settings = broker_settings(keys[key.broker_name], config, image, broker_id)
        if name in overrides:
            settings = (Setting(name, overrides[name], ConfigSource.DYNAMIC_TOPIC), *settings)
        shown.append(
            ShownConfig(
                name, settings, key.kind.type_number, key.doc, read_only=False, is_sensitive=False
            )
        )
    return shown


def group_configs_shown(
    config: ServiceConfig,
    image: ClusterImage,
    broker_id: BrokerId,
    overrides: Mapping[str, str],
) -> list[ShownConfig]:
    """Return every key of a group that sets ``overrides``, sorted by name."""
    keys = broker_keys(type(config))

    def shown(
        key: GroupConfigKey | ShareGroupConfigKey, settings: tuple[Setting, ...]
    ) -> ShownConfig:
        if key.name in overrides:
            own = Setting(key.name, overrides[key.name], ConfigSource.DYNAMIC_GROUP)
            settings = (own, *settings)
        return ShownConfig(
            key.name, settings, key.kind.type_number, key.doc, read_only=False, is_sensitive=False
        )

    of_consumers = [
        shown(key, broker_settings(keys[key.broker_name], config, image, broker_id))
        for key in GROUP_CONFIG_KEYS.values()
    ]
    of_share_groups = [
        shown(
            key,
            broker_settings(keys[key.option], config, image, broker_id)
            if key.bounded
            else (Setting(key.name, key.default, ConfigSource.DEFAULT),),
        )
        for key in SHARE_GROUP_CONFIG_KEYS.values()
    ]
    return sorted((*of_consumers, *of_share_groups), key=lambda one: one.name)


def client_metrics_configs_shown(overrides: Mapping[str, str]) -> list[ShownConfig]:
    """Return every key of a subscription that sets ``overrides``, sorted by name."""
    shown = []
    for name, key in CLIENT_METRICS_CONFIG_KEYS.items():
        settings: tuple[Setting, ...] = (Setting(name, key.default, ConfigSource.DEFAULT),)
        if name in overrides:
            own = Setting(name, overrides[name], ConfigSource.DYNAMIC_CLIENT_METRICS)
            settings = (own, *settings)
        kind = key.kind.type_number
        shown.append(
            ShownConfig(name, settings, kind, key.doc, read_only=False, is_sensitive=False)
        )
    return shown


def broker_configs_shown(
    config: ServiceConfig, image: ClusterImage, broker_id: BrokerId
) -> list[ShownConfig]:
    """Return every key of this broker, sorted by name."""
    return [
        ShownConfig(
            key.name,
            broker_settings(key, config, image, broker_id),
            key.type_number,
            key.doc,
            read_only=not key.is_dynamic,
            is_sensitive=key.is_sensitive,
        )
        for key in broker_keys(type(config)).values()
    ]


def cluster_configs_shown(
    config_class: type[ServiceConfig], image: ClusterImage
) -> list[ShownConfig]:
    """Return the dynamic settings of all brokers; nothing else is shown of a broker without a
    name.
    """
    keys = broker_keys(config_class)
    shown = []
    for name, value in sorted(image.broker_configs.get(CLUSTER_WIDE, {}).items()):
        key = keys.get(name)
        if key is None:
            continue  # set by a newer release, of an unknown type
        setting = Setting(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER)
        shown.append(
            ShownConfig(
                name,
                (setting,),
                key.type_number,
                key.doc,
                read_only=not key.is_dynamic,
                is_sensitive=key.is_sensitive,
            )
        )
    return shown


def shown_text(value: object) -> str | None:
    """Return a value in Kafka's notation: ``true``, ``a,b``, ``42``; None stays None."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(str(shown_text(item)) for item in value)
    if isinstance(value, Mapping):
        return ",".join(f"{name}:{shown_text(item)}" for name, item in value.items())
    return str(value)


def _type_number_of(info: FieldInfo) -> int:
    """Return the type of a whole number: Kafka's INT if its bound fits 32 bits, otherwise LONG."""
    number = _type_number(info.annotation)
    bounds = [bound for item in info.metadata if (bound := getattr(item, "le", None)) is not None]
    if number == _LONG and bounds and max(bounds) <= INT_MAX:
        return _INT
    return number


def _type_number(annotation: Any) -> int:
    """Return DescribeConfigs' type of a field; an optional one has the type of its content."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _type_number(get_args(annotation)[0])
    if origin in (Union, UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
        return _type_number(kinds[0])
    if origin is Literal:
        return _STRING
    if origin in (list, tuple, set, frozenset):
        return _LIST
    return _TYPE_NUMBERS.get(annotation, _STRING)
