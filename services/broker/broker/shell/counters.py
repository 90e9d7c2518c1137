"""Counters of the hot path: plain integers, incremented on the event loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidemark.runtime.clock import Clock
from tidemark.runtime.metrics import SECONDS_BUCKETS, TimingsFamily

from broker.shell.request_times import RequestTimes
from broker.shell.throttling import ThrottleCounters

API_KEYS_MAX: Final = 128


class TopicCounters:
    """Traffic of one topic on this broker."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "produces",
        "records_in",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.records_in = 0
        self.produces = 0
        self.fetches = 0
        self.failed_produces = 0
        self.failed_fetches = 0

    def add(self, other: TopicCounters) -> None:
        """Add the traffic of another topic."""
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.records_in += other.records_in
        self.produces += other.produces
        self.fetches += other.fetches
        self.failed_produces += other.failed_produces
        self.failed_fetches += other.failed_fetches


class Refusals:
    """Requests that needed an internal topic which could not be created, and the last reason
    logged.
    """

    __slots__ = ("count", "logged")

    def __init__(self) -> None:
        self.count = 0
        self.logged = ""


class LoginCounters:
    """Logins of one listener with SASL."""

    __slots__ = (
        "delayed", "expired", "failed", "illegal", "late", "repeated", "succeeded", "turned_away",
    )  # fmt: skip

    def __init__(self) -> None:
        self.succeeded = 0
        self.repeated = 0
        """Authentications of connections that were authenticated before."""
        self.failed = 0
        self.late = 0
        """Connections closed because the login took too long."""
        self.delayed = 0
        """Connections that waited, as their address had failed too often."""
        self.turned_away = 0
        """Connections closed because they would have waited for too long."""
        self.illegal = 0
        """Connections closed because of a request before authentication."""
        self.expired = 0
        """Connections closed because the session had expired."""


class BrokerCounters:
    """Counts of the network and of all handlers. Written from the event loop alone."""

    __slots__ = (
        "calls_refused",
        "closed_frame",
        "closed_idle",
        "closed_late_frame",
        "connections_refused",
        "connections_total",
        "crc_errors_produce",
        "crc_errors_replication",
        "damage_found",
        "damaged_reads",
        "flush_errors",
        "flush_seconds",
        "inspections_given_up",
        "internal_topics_refused",
        "isr_change_seconds",
        "isr_expands",
        "isr_shrinks",
        "isr_updates_failed",
        "logins",
        "malformed_requests",
        "replication_bytes_in",
        "replication_bytes_out",
        "request_errors",
        "requests",
        "throttles",
        "times",
        "topics",
        "topics_gone",
    )

    def __init__(self, times: RequestTimes | None = None) -> None:
        self.times = times or RequestTimes(Clock())
        self.flush_seconds = TimingsFamily(
            "tidemark_flush_seconds",
            "seconds of a round of syncs of one log directory",
            (),
            SECONDS_BUCKETS,
        )
        self.isr_change_seconds = TimingsFamily(
            "tidemark_isr_change_seconds",
            "seconds from the request for a change of ISRs to the controller's answer",
            (),
            SECONDS_BUCKETS,
        )
        self.flush_seconds.at()
        self.isr_change_seconds.at()
        self.requests = [0] * API_KEYS_MAX
        self.request_errors = [0] * API_KEYS_MAX
        self.topics: dict[str, TopicCounters] = {}
        self.topics_gone = TopicCounters()
        """Sum over topics that are no longer hosted: a sum over all topics never falls."""
        self.internal_topics_refused: dict[str, Refusals] = {}
        self.logins: dict[str, LoginCounters] = {}
        self.throttles: Mapping[str, ThrottleCounters] = {}
        """By kind of quota."""
        self.connections_total = 0
        self.connections_refused = 0
        self.closed_idle = 0
        self.calls_refused = 0
        self.closed_frame = 0
        self.closed_late_frame = 0
        self.malformed_requests = 0
        self.damaged_reads = 0
        self.damage_found = 0
        self.inspections_given_up = 0
        self.flush_errors = 0
        self.crc_errors_produce = 0
        self.crc_errors_replication = 0
        self.isr_expands = 0
        self.isr_shrinks = 0
        self.isr_updates_failed = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0

    def topic(self, name: str) -> TopicCounters:
        """Return the counters of a topic that is hosted; they are made at the first use."""
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = TopicCounters()
        return found

    def forget_topic(self, name: str) -> None:
        """Drop the counters of a topic that is no longer hosted."""
        gone = self.topics.pop(name, None)
        if gone is not None:
            self.topics_gone.add(gone)

    def logins_of(self, listener: str) -> LoginCounters:
        """Return the counters of one listener's logins."""
        return self.logins.setdefault(listener, LoginCounters())

    def refusals_of(self, name: str) -> Refusals:
        """Return the refusals of one internal topic."""
        return self.internal_topics_refused.setdefault(name, Refusals())
