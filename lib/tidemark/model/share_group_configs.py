"""Dynamic configuration of share groups (KIP-932): keys, values, ranges and defaults.

Kafka's names (the group resource). A group that does not set a key takes the value of the service's
option; a numeric key has bounds that are options too.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Final, NamedTuple

from tidemark.model.config_values import (
    ConfigKind,
    InvalidConfigError,
    boolean,
    integer,
    one_of,
)
from tidemark.model.topics import topic_name_problem

SESSION_TIMEOUT: Final = "share.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "share.heartbeat.interval.ms"
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"

_DURATION: Final = re.compile(
    r"P(?:(\d{1,9})D)?(?:T(?=\d)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})(?:\.(\d{1,9}))?S)?)?",
    re.IGNORECASE,
)
_BY_DURATION: Final = "by_duration:"
_DELAY_MS_MAX: Final = 24 * 3_600_000


class ResetTo(Enum):
    """Start of a share-partition that has no start yet."""

    EARLIEST = "earliest"
    LATEST = "latest"
    BY_DURATION = "by_duration"


class OffsetReset(NamedTuple):
    """Value of ``share.auto.offset.reset``."""

    to: ResetTo
    duration_ms: int = 0
    """For ``BY_DURATION``: start at the records that are at most this old."""


FROM_LATEST: Final = OffsetReset(ResetTo.LATEST)


class IsolationLevel(Enum):
    """Value of ``share.isolation.level``."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class RecordOrder(Enum):
    """Value of ``share.record.order``."""

    NONE = "none"
    KEY = "key"
    """Records of one key are delivered in order, to one member at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupConfig:
    """Configuration in force for one share group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    record_lock_duration_ms: int
    delivery_count_limit: int
    partition_max_record_locks: int
    auto_offset_reset: OffsetReset = FROM_LATEST
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    renew_acknowledge_enable: bool = True
    dead_letter_topic: str = ""
    """Empty: records that cannot be delivered are not copied."""
    dead_letter_copy_record: bool = False
    record_order: RecordOrder = RecordOrder.NONE
    release_backoff_ms: int = 0
    release_backoff_max_ms: int = 60_000


class ShareGroupConfigKey(NamedTuple):
    """One key. ``field`` is its field of ``ShareGroupConfig``; a key with ``bounded`` has options
    ``group.share.<rest>``, ``group.share.min.<rest>`` and ``group.share.max.<rest>``.
    """

    name: str
    kind: ConfigKind
    field: str
    bounded: bool
    doc: str
    default: str = ""
    """Value where a group sets none, unless it is that of an option."""

    @property
    def option(self) -> str:
        """Option that is in force where a group sets nothing."""
        return f"group.{self.name}"

    @property
    def low_option(self) -> str:
        """Option with the least value that a group may set."""
        return self.option.replace("group.share.", "group.share.min.")

    @property
    def high_option(self) -> str:
        """Option with the greatest value that a group may set."""
        return self.option.replace("group.share.", "group.share.max.")


def offset_reset() -> ConfigKind:
    """``latest``, ``earliest`` or ``by_duration:`` with an ISO 8601 duration of days and less."""

    def parse(text: str) -> OffsetReset:
        if text.startswith(_BY_DURATION):
            return OffsetReset(ResetTo.BY_DURATION, _milliseconds(text[len(_BY_DURATION) :]))
        if text in (ResetTo.EARLIEST.value, ResetTo.LATEST.value):
            return OffsetReset(ResetTo(text))
        raise InvalidConfigError("must be latest, earliest or by_duration:PnDTnHnMn.nS")

    return ConfigKind(2, parse)


def isolation_level() -> ConfigKind:
    """``read_uncommitted`` or ``read_committed``."""
    words = one_of(*(level.value for level in IsolationLevel))
    return ConfigKind(2, lambda text: IsolationLevel(words.parse(text)))


def record_order() -> ConfigKind:
    """``none`` or ``key``."""
    words = one_of(*(order.value for order in RecordOrder))
    return ConfigKind(2, lambda text: RecordOrder(words.parse(text)))


def topic_name() -> ConfigKind:
    """The name of a topic, or nothing."""

    def parse(text: str) -> str:
        problem = topic_name_problem(text) if text else None
        if problem is not None:
            raise InvalidConfigError(problem)
        return text

    return ConfigKind(2, parse)


_KEYS: Final = (
    ShareGroupConfigKey(
        "errors.deadletterqueue.copy.record.enable",
        boolean(),
        "dead_letter_copy_record",
        bounded=False,
        doc="whether a dead letter has the record itself, or headers only",
        default="false",
    ),
    ShareGroupConfigKey(
        DEAD_LETTER_TOPIC,
        topic_name(),
        "dead_letter_topic",
        bounded=False,
        doc="topic for records that cannot be delivered; empty: they are archived without a copy",
    ),
    ShareGroupConfigKey(
        "share.auto.offset.reset",
        offset_reset(),
        "auto_offset_reset",
        bounded=False,
        doc="start of a share-partition that has none: latest, earliest or by_duration:PnDTnHnMnS",
        default="latest",
    ),
    ShareGroupConfigKey(
        "share.delivery.count.limit",
        integer(1),
        "delivery_count_limit",
        bounded=True,
        doc="number of deliveries after which a record is archived",
    ),
    ShareGroupConfigKey(
        HEARTBEAT_INTERVAL,
        integer(1),
        "heartbeat_interval_ms",
        bounded=True,
        doc="heartbeat interval of the group's members",
    ),
    ShareGroupConfigKey(
        "share.isolation.level",
        isolation_level(),
        "isolation_level",
        bounded=False,
        doc="whether records of open and aborted transactions are delivered",
        default="read_uncommitted",
    ),
    ShareGroupConfigKey(
        "share.partition.max.record.locks",
        integer(1),
        "partition_max_record_locks",
        bounded=True,
        doc="maximum number of records between start and end offset of a share-partition",
    ),
    ShareGroupConfigKey(
        "share.record.lock.duration.ms",
        integer(1),
        "record_lock_duration_ms",
        bounded=True,
        doc="time after which an acquired record is available again",
    ),
    ShareGroupConfigKey(
        "share.record.order",
        record_order(),
        "record_order",
        bounded=False,
        doc="none, or key: records of one key are delivered in order, to one member at a time",
    ),
    ShareGroupConfigKey(
        "share.release.backoff.max.ms",
        integer(0, _DELAY_MS_MAX),
        "release_backoff_max_ms",
        bounded=False,
        doc="upper bound of the delay of a released record, also of one that its member requests",
    ),
    ShareGroupConfigKey(
        "share.release.backoff.ms",
        integer(0, _DELAY_MS_MAX),
        "release_backoff_ms",
        bounded=False,
        doc="delay before a released record is delivered again; it doubles with each delivery",
    ),
    ShareGroupConfigKey(
        "share.renew.acknowledge.enable",
        boolean(),
        "renew_acknowledge_enable",
        bounded=False,
        doc="whether members may renew the lock of an acquired record",
        default="true",
    ),
    ShareGroupConfigKey(
        SESSION_TIMEOUT,
        integer(1),
        "session_timeout_ms",
        bounded=True,
        doc="a member of the group without a heartbeat for this long is removed",
    ),
)
SHARE_GROUP_CONFIG_KEYS: Final[Mapping[str, ShareGroupConfigKey]] = {key.name: key for key in _KEYS}
"""By name, sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupOptions:
    """Options of a service that are in force where a group sets nothing, and bounds of what groups
    may set: Kafka's names (dots are underscores here) and defaults.
    """

    group_share_session_timeout_ms: int = 45_000
    group_share_min_session_timeout_ms: int = 45_000
    group_share_max_session_timeout_ms: int = 60_000
    group_share_heartbeat_interval_ms: int = 5_000
    group_share_min_heartbeat_interval_ms: int = 5_000
    group_share_max_heartbeat_interval_ms: int = 15_000
    group_share_record_lock_duration_ms: int = 30_000
    group_share_min_record_lock_duration_ms: int = 15_000
    group_share_max_record_lock_duration_ms: int = 60_000
    group_share_delivery_count_limit: int = 5
    group_share_min_delivery_count_limit: int = 2
    group_share_max_delivery_count_limit: int = 10
    group_share_partition_max_record_locks: int = 2_000
    group_share_min_partition_max_record_locks: int = 100
    group_share_max_partition_max_record_locks: int = 10_000

    def __post_init__(self) -> None:
        for option in fields(self):
            assert getattr(self, option.name) > 0, option.name
        assert self.group_share_heartbeat_interval_ms < self.group_share_session_timeout_ms
        for key in _KEYS:
            if key.bounded:
                assert self._at(key.low_option) <= self._at(key.high_option), key.name

    def of_group(self, configs: Mapping[str, str]) -> ShareGroupConfig:
        """Configuration in force for a group that sets ``configs``. Keys of a newer release count
        as not set; so do all where a value does not hold together with these options, because a
        group must have a configuration.
        """
        known = {name: text for name, text in configs.items() if name in SHARE_GROUP_CONFIG_KEYS}
        try:
            found = self._in_force(share_group_config(known))
            _check_pair(found)
        except InvalidConfigError:
            return self._in_force({})
        return found

    def check_of_group(self, configs: Mapping[str, str]) -> None:
        """Raise InvalidConfigError, with Kafka's words, unless a group may set ``configs``."""
        values = share_group_config(configs)
        for name, value in values.items():
            key = SHARE_GROUP_CONFIG_KEYS[name]
            if key.bounded and value < self._at(key.low_option):
                raise InvalidConfigError(
                    f"{name} must be greater than or equal to {key.low_option}"
                )
            if key.bounded and value > self._at(key.high_option):
                raise InvalidConfigError(f"{name} must be less than or equal to {key.high_option}")
        _check_pair(self._in_force(values))

    def _in_force(self, values: Mapping[str, Any]) -> ShareGroupConfig:
        defaults = {key.field: self._at(key.option) for key in _KEYS if key.bounded}
        own = {SHARE_GROUP_CONFIG_KEYS[name].field: value for name, value in values.items()}
        return ShareGroupConfig(**{**defaults, **own})

    def _at(self, option: str) -> int:
        value: int = getattr(self, option.replace(".", "_"))
        return value


def share_group_config(configs: Mapping[str, str]) -> dict[str, Any]:
    """Values that a group sets, parsed. Raises InvalidConfigError with Kafka's words."""
    values: dict[str, Any] = {}
    for name, text in configs.items():
        key = SHARE_GROUP_CONFIG_KEYS.get(name)
        if key is None:
            raise InvalidConfigError(f"Unknown group config name: {name}")
        try:
            values[name] = key.kind.parse(text)
        except InvalidConfigError as error:
            raise InvalidConfigError(
                f"Invalid value {text} for configuration {name}: {error}"
            ) from None
    return values


def _check_pair(config: ShareGroupConfig) -> None:
    if config.session_timeout_ms <= config.heartbeat_interval_ms:
        raise InvalidConfigError(f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}")


def _milliseconds(duration: str) -> int:
    found = _DURATION.fullmatch(duration)
    if found is None or not any(found.groups()):
        raise InvalidConfigError(
            f"{duration!r} is no duration of the form PnDTnHnMn.nS, such as PT1H or P3DT12H"
        )
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups()[:4])
    fraction_ms = int((found.group(5) or "").ljust(3, "0")[:3])
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1_000 + fraction_ms
