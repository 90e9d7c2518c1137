"""Dynamic configuration of groups: keys and valid values.

The names are Kafka's (KIP-848 and KIP-932: the group resource). A group without a value uses the
configuration of its coordinator. The keys of share groups are in ``share_group_configs``. A group
may have keys of both kinds, because its configuration may exist before the group does.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tidemark.model.config_values import ConfigKind, InvalidConfigError, integer
from tidemark.model.share_group_configs import SHARE_GROUP_CONFIG_KEYS, share_group_config

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"


class GroupConfigKey(NamedTuple):
    """One key. ``broker_name`` is the broker's key that applies to groups without a value;
    ``low_name`` and ``high_name`` are the broker's keys that bound a group's value.
    """

    name: str
    kind: ConfigKind
    broker_name: str
    low_name: str
    high_name: str
    doc: str


_KEYS: Final = (
    GroupConfigKey(
        HEARTBEAT_INTERVAL,
        integer(1),
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
        "heartbeat interval of the group's members",
    ),
    GroupConfigKey(
        SESSION_TIMEOUT,
        integer(1),
        "group.consumer.session.timeout.ms",
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
        "a member of the group without a heartbeat for this long is removed",
    ),
)
GROUP_CONFIG_KEYS: Final[Mapping[str, GroupConfigKey]] = {key.name: key for key in _KEYS}
"""Keys of consumer groups by name, sorted."""

GROUP_CONFIG_KINDS: Final[Mapping[str, ConfigKind]] = {
    **{name: key.kind for name, key in GROUP_CONFIG_KEYS.items()},
    **{name: key.kind for name, key in SHARE_GROUP_CONFIG_KEYS.items()},
}
"""Kinds of the keys of groups of every type, by name."""


class SplitConfigs(NamedTuple):
    """Configuration of a group, by the type of group that each key is for."""

    consumer: dict[str, str]
    share: dict[str, str]


def split(configs: Mapping[str, str]) -> SplitConfigs:
    """Split a group's configuration; unknown keys are with those of consumer groups."""
    share = {name: text for name, text in configs.items() if name in SHARE_GROUP_CONFIG_KEYS}
    return SplitConfigs({name: configs[name] for name in configs if name not in share}, share)


def check_values(configs: Mapping[str, str]) -> None:
    """Check keys and values of a group's configuration, without the bounds that a service sets.
    Raises InvalidConfigError with Kafka's messages.
    """
    consumer, share = split(configs)
    group_config(consumer)
    share_group_config(share)


def group_config(configs: Mapping[str, str]) -> dict[str, int]:
    """Parse the values of a consumer group. Raises InvalidConfigError with Kafka's messages."""
    values: dict[str, int] = {}
    for name, text in configs.items():
        key = GROUP_CONFIG_KEYS.get(name)
        if key is None:
            raise InvalidConfigError(f"Unknown group config name: {name}")
        try:
            value = key.kind.parse(text)
        except InvalidConfigError as error:
            raise InvalidConfigError(
                f"Invalid value {text} for configuration {name}: {error}"
            ) from None
        assert isinstance(value, int), "every key is a whole number"
        values[name] = value
    if SESSION_TIMEOUT in values and HEARTBEAT_INTERVAL in values:
        check_pair(values[SESSION_TIMEOUT], values[HEARTBEAT_INTERVAL])
    return values


def check_pair(session_timeout_ms: int, heartbeat_interval_ms: int) -> None:
    """Raise InvalidConfigError if sessions would time out before the next heartbeat."""
    if session_timeout_ms <= heartbeat_interval_ms:
        raise InvalidConfigError(f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}")
