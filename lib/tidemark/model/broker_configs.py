"""Settings of a broker that may change while it runs, with Kafka's names and validation."""

import sys
from collections.abc import Mapping
from typing import Final

from tidemark.model.config_values import (
    INT_MAX,
    ConfigKind,
    InvalidConfigError,
    double,
    integer,
    long,
)
from tidemark.model.topic_configs import TOPIC_CONFIG_KEYS

TOPIC_KEY_OF: Final[Mapping[str, str]] = {
    key.broker_name: key.name for key in TOPIC_CONFIG_KEYS.values() if key.broker_name
}
"""Topic keys by the broker's name for their default."""
OVERRIDES_MAX: Final = 1_000
"""Maximum number of addresses in ``max.connections.per.ip.overrides``."""
_COUNT_DIGITS_MAX: Final = len(str(INT_MAX))


def connections_by_address(text: str) -> dict[str, int]:
    """Parse ``address:count,...``. Raises InvalidConfigError."""
    counts: dict[str, int] = {}
    words = [word.strip() for word in text.split(",") if word.strip()]
    if len(words) > OVERRIDES_MAX:
        raise InvalidConfigError(f"{len(words)} addresses; at most {OVERRIDES_MAX} may be named")
    for word in words:
        address, separator, count = word.rpartition(":")
        if not (separator and address and count.isascii() and count.isdecimal()):
            raise InvalidConfigError(f"expected address:count, not {word!r}")
        if len(count) > _COUNT_DIGITS_MAX or int(count) > INT_MAX:
            raise InvalidConfigError(f"{word!r}: the count must be at most {INT_MAX}")
        counts[address.strip().removeprefix("[").removesuffix("]")] = int(count)
    return counts


# There is one process for compaction, and it has the buffers that it needs: of log.cleaner.* only
# the pause and the rate have a meaning. docs/reference/kafka-settings.md has the others.
OWN_KINDS: Final[Mapping[str, ConfigKind]] = {
    "follower.replication.throttled.rate": long(0),
    "leader.replication.throttled.rate": long(0),
    "log.cleaner.backoff.ms": long(0),
    "log.cleaner.io.max.bytes.per.second": double(1, sys.float_info.max),
    "max.connections": integer(1),
    "max.connections.per.ip": integer(0),
    "max.connections.per.ip.overrides": ConfigKind(2, connections_by_address),
    "producer.id.expiration.check.interval.ms": integer(1_000),
    "producer.id.expiration.ms": integer(1_000),
    "replica.alter.log.dirs.io.max.bytes.per.second": long(1),
}
"""Settings that are no defaults of topics."""

BROKER_CONFIG_KINDS: Final[Mapping[str, ConfigKind]] = {
    **{broker: TOPIC_CONFIG_KEYS[topic].kind for broker, topic in TOPIC_KEY_OF.items()},
    **OWN_KINDS,
}
"""All settings of a broker that may change while it runs."""


def contradiction(configs: Mapping[str, str]) -> str | None:
    """Return Kafka's message for settings of one resource that contradict one another, or None.
    Each value is valid by itself.
    """
    closed = configs.get("max.connections.per.ip", "").strip()
    if closed and int(closed) == 0 and not configs.get("max.connections.per.ip.overrides"):
        return (
            "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides"
            " property is set."
        )
    return None
