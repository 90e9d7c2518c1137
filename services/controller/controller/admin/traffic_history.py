"""Rates of brokers from two answers of each, and their recent past. Pure: no I/O, no clock."""

from collections import deque
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from tidemark.client.admin.broker_load import TrafficCounters

POINTS_MAX: Final = 120
"""Points of the past that are kept."""
_MS_PER_S: Final = 1_000


class Rates(NamedTuple):
    """Traffic a second."""

    bytes_in: float = 0.0
    bytes_out: float = 0.0
    records_in: float = 0.0
    replication_bytes_in: float = 0.0
    produce_requests: float = 0.0
    fetch_requests: float = 0.0

    def plus(self, other: "Rates") -> "Rates":
        """Return the sum of two."""
        return Rates(*(mine + its for mine, its in zip(self, other, strict=True)))


class Point(NamedTuple):
    """Sum of the rates of all brokers whose rates were known at ``at_ms``, ms since 1970."""

    at_ms: int
    rates: Rates
    brokers: int
    """Brokers in the sum."""


def rates_between(before: TrafficCounters, after: TrafficCounters) -> Rates | None:
    """Return the rates between two answers; None if they are of two processes, or of one moment."""
    span_ms = after.at_ms - before.at_ms
    if before.started_ms != after.started_ms or span_ms <= 0:
        return None
    return Rates(
        *(
            max(0, getattr(after, name) - getattr(before, name)) * _MS_PER_S / span_ms
            for name in Rates._fields
        )
    )


class TrafficHistory:
    """Latest answer and rates of each broker, and the sums of the recent past."""

    def __init__(self) -> None:
        self._latest: dict[int, TrafficCounters] = {}
        self._rates: dict[int, Rates] = {}
        self._points: deque[Point] = deque(maxlen=POINTS_MAX)

    def add(self, at_ms: int, answers: dict[int, TrafficCounters]) -> None:
        """Add the answers of one round. A broker without one has no rate until it has two again."""
        self._rates = {}
        for broker_id, answer in answers.items():
            before = self._latest.get(broker_id)
            rates = None if before is None else rates_between(before, answer)
            if rates is not None:
                self._rates[broker_id] = rates
        self._latest = dict(answers)
        if self._rates:
            self._points.append(Point(at_ms, sum_of(self._rates.values()), len(self._rates)))

    def rates(self, broker_id: int) -> Rates | None:
        """Return the rates of a broker in the last round."""
        return self._rates.get(broker_id)

    def latest(self, broker_id: int) -> TrafficCounters | None:
        """Return the answer of a broker in the last round."""
        return self._latest.get(broker_id)

    @property
    def points(self) -> Sequence[Point]:
        """Sums of the recent past, oldest first."""
        return tuple(self._points)


def sum_of(rates: Collection[Rates]) -> Rates:
    """Return the sum of rates."""
    total = Rates()
    for one in rates:
        total = total.plus(one)
    return total
