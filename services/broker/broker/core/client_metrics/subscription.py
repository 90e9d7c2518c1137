"""Subscriptions: which metrics an operator wants of which clients."""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c
from tidemark.model.client_metrics_configs import (
    ALL_METRICS,
    INTERVAL_MS,
    INTERVAL_MS_DEFAULT,
    MATCH,
    METRICS,
    illegal_pattern,
    match_patterns,
    words,
)
from tidemark.re2.pattern import Pattern
from tidemark.re2.syntax import PatternError


class Client(NamedTuple):
    """A client instance, as subscriptions match it. The fields have KIP-714's names."""

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


@dataclass(frozen=True, slots=True)
class Subscription:
    """One subscription."""

    metrics: tuple[str, ...]
    interval_ms: int
    patterns: Mapping[str, Pattern]

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> "Subscription":
        """Read a configuration whose interval is a number. Raises TidemarkError INVALID_CONFIG for
        a pattern.
        """
        patterns = {}
        for name, text in match_patterns(configs.get(MATCH, "")).items():
            try:
                patterns[name] = Pattern(text)
            except PatternError as error:
                raise illegal_pattern(f"{name}={text} ({error})") from None
        text = configs.get(INTERVAL_MS, "")
        interval_ms = int(text) if text.strip().isdecimal() else INTERVAL_MS_DEFAULT
        return cls(words(configs.get(METRICS, "")), interval_ms, patterns)

    def matches(self, client: Client) -> bool:
        """True if all patterns match the client. Characters outside of ASCII count as ``?``."""
        return all(
            pattern.matches(str(getattr(client, name)).encode("ascii", "replace").decode())
            for name, pattern in self.patterns.items()
        )


class Wanted(NamedTuple):
    """Metrics and interval that all subscriptions together want of one client."""

    metrics: tuple[str, ...]
    """Prefixes of names; ``*`` alone: all."""
    interval_ms: int
    subscription_id: int


def wanted(subscriptions: Iterable[Subscription], client: Client, instance_id: bytes) -> Wanted:
    """Return what matching subscriptions want, at the shortest of their intervals."""
    metrics: set[str] = set()
    interval_ms = INTERVAL_MS_DEFAULT
    for one in subscriptions:
        if one.matches(client):
            metrics.update(one.metrics)
            interval_ms = min(interval_ms, one.interval_ms)
    named = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
    return Wanted(named, interval_ms, _subscription_id(named, interval_ms, instance_id))


def _subscription_id(metrics: tuple[str, ...], interval_ms: int, instance_id: bytes) -> int:
    """Return Kafka's id: the CRC-32C of metrics and interval, XORed with the hash of the uuid."""
    crc = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode())
    halves = int.from_bytes(instance_id[:8], "big") ^ int.from_bytes(instance_id[8:], "big")
    mixed = crc ^ (halves >> 32) ^ (halves & 0xFFFFFFFF)
    return mixed - 2**32 if mixed >= 2**31 else mixed


def shown_uuid(instance_id: bytes) -> str:
    """Return a uuid in Kafka's form."""
    return base64.urlsafe_b64encode(instance_id).decode().rstrip("=")
