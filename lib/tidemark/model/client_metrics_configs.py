"""Subscriptions to the metrics of clients (KIP-714): keys, and valid values with Kafka's messages.

A subscription is configuration of the resource type CLIENT_METRICS. It exists while it has a key.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tidemark.model.config_values import ConfigKind, InvalidConfigError, integer, list_of
from tidemark.model.errors import ErrorCode, TidemarkError

INTERVAL_MS: Final = "interval.ms"
MATCH: Final = "match"
METRICS: Final = "metrics"
ALL_METRICS: Final = "*"
INTERVAL_MS_DEFAULT: Final = 300_000
_INTERVAL_MS_MIN: Final = 100
_INTERVAL_MS_MAX: Final = 3_600_000
MATCHED: Final = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""Names that a pattern of ``match`` may have."""


class ClientMetricsConfigKey(NamedTuple):
    """One key."""

    name: str
    kind: ConfigKind
    default: str
    doc: str


_KEYS: Final = (
    ClientMetricsConfigKey(
        INTERVAL_MS,
        integer(-(2**31)),
        str(INTERVAL_MS_DEFAULT),
        "interval at which matching clients push metrics",
    ),
    ClientMetricsConfigKey(
        MATCH,
        list_of(),
        "",
        f"NAME=PATTERN,... that all match a client; names: {', '.join(MATCHED)}; empty: any client",
    ),
    ClientMetricsConfigKey(
        METRICS,
        list_of(),
        "",
        "prefixes of the names of metrics that clients push; *: all; empty: none",
    ),
)
CLIENT_METRICS_CONFIG_KEYS: Final[Mapping[str, ClientMetricsConfigKey]] = {
    key.name: key for key in _KEYS
}
CLIENT_METRICS_CONFIG_KINDS: Final[Mapping[str, ConfigKind]] = {key.name: key.kind for key in _KEYS}


def check_subscription(configs: Mapping[str, str]) -> None:
    """Check the configuration of one subscription, without the syntax of its patterns. Raises
    TidemarkError with Kafka's errors and messages.
    """
    for name in configs:
        if name not in CLIENT_METRICS_CONFIG_KEYS:
            raise TidemarkError(
                ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}"
            )
    if INTERVAL_MS in configs:
        _check_interval(configs[INTERVAL_MS])
    match_patterns(configs.get(MATCH, ""))


def _check_interval(text: str) -> None:
    try:
        interval_ms = CLIENT_METRICS_CONFIG_KINDS[INTERVAL_MS].parse(text)
    except InvalidConfigError as error:
        raise TidemarkError(
            ErrorCode.INVALID_CONFIG,
            f"Invalid value {text} for configuration {INTERVAL_MS}: {error}",
        ) from None
    assert isinstance(interval_ms, int)
    if not _INTERVAL_MS_MIN <= interval_ms <= _INTERVAL_MS_MAX:
        raise TidemarkError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {interval_ms} for {INTERVAL_MS}, interval must be between"
            f" {_INTERVAL_MS_MIN} and {_INTERVAL_MS_MAX} (1 hour)",
        )


def match_patterns(text: str) -> dict[str, str]:
    """Return the patterns of ``match`` by what they are about. Raises TidemarkError
    INVALID_CONFIG.
    """
    patterns = {}
    for item in words(text):
        name, separator, pattern = item.partition("=")
        if not separator or not pattern.strip() or "=" in pattern or name.strip() not in MATCHED:
            raise illegal_pattern(item)
        patterns[name.strip()] = pattern.strip()
    return patterns


def illegal_pattern(item: str) -> TidemarkError:
    """Return Kafka's refusal of an item of ``match``."""
    return TidemarkError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {item}")


def words(text: str) -> tuple[str, ...]:
    """Return the items of a list."""
    return tuple(word.strip() for word in text.split(",") if word.strip())
