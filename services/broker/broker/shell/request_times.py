"""RequestTimes: how long requests took, as histograms and as a ring of the slow ones.

A request has three stages. *Handling*: the event loop works on it. *Waiting*: for replicas, for
bytes to read, for a coordinator, a worker or the controller. *Ordering*: its answer is ready, but
an earlier answer of the same connection is not. The hot path reads the clock twice a request and
adds to one histogram.
"""

from collections import deque
from typing import Final, NamedTuple, Protocol

from tidemark.kafka.apis import ApiKey
from tidemark.kafka.headers import RequestHeader
from tidemark.runtime.clock import Clock
from tidemark.runtime.metrics import SECONDS_BUCKETS, Timings, TimingsFamily

BOUNDS: Final = (0.0001, 0.00025, *SECONDS_BUCKETS)
_LONG_POLLS: Final = frozenset(
    map(int, (ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.SHARE_FETCH))
)
"""Requests that wait by design: their time on the event loop alone makes them slow."""


class Origin(NamedTuple):
    """Place from which a request came."""

    peer: str
    listener: str
    size_bytes: int


class Stages(NamedTuple):
    """Times at which a request was taken, its handler returned, and its answer was ready."""

    began_s: float
    handled_s: float
    ready_s: float


class Source(Protocol):
    """Connection of a request."""

    peer: str

    @property
    def listener_name(self) -> str:
        """Name of the listener."""


class SlowRequest(NamedTuple):
    """One slow request; its stages are in seconds."""

    began_ms: int
    header: RequestHeader
    origin: Origin
    handling_s: float
    waiting_s: float
    ordering_s: float

    @property
    def total_s(self) -> float:
        """Time from the request to its answer."""
        return self.handling_s + self.waiting_s + self.ordering_s


class RequestTimes:
    """Times of the requests of one broker. Written from the event loop alone."""

    def __init__(self, clock: Clock, *, slow_ms: int = 0, kept_max: int = 1) -> None:
        """``slow_ms``: time that makes a request slow; 0 keeps none."""
        self.now_s = clock.precise_s
        self._clock = clock
        self.slow_ms = slow_ms
        self._slow_s = slow_ms / 1_000 if slow_ms else float("inf")
        self.total = TimingsFamily(
            "tidemark_request_seconds",
            "seconds from a request to its answer, with its waits, by API",
            ("request",),
            BOUNDS,
        )
        self.waits = TimingsFamily(
            "tidemark_request_wait_seconds",
            "seconds for which requests waited that were not answered at once, by API",
            ("request",),
            BOUNDS,
        )
        self._totals: dict[int, Timings] = {}
        self._waits: dict[int, Timings] = {}
        self._slow: deque[SlowRequest] = deque(maxlen=kept_max)
        self.slow_seen = 0
        """Number of slow requests so far, with those that are no longer kept."""

    def answered(self, header: RequestHeader, began_s: float, source: Source) -> float:
        """Note a request of ``source`` that was answered at once. Return its seconds if it was
        slow, else 0.
        """
        del source  # of interest to spans alone
        api_key = header.api_key
        took_s = self.now_s() - began_s
        timings = self._totals.get(api_key)
        if timings is None:
            timings = self._totals[api_key] = self.total.at(api_name(api_key))
        timings.observe(took_s)
        return took_s if took_s >= self._slow_s else 0.0

    def answered_later(self, header: RequestHeader, origin: Origin, stages: Stages) -> None:
        """Note a request whose answer is sent now."""
        api_key, now_s = header.api_key, self.now_s()
        handled_s = min(stages.handled_s, stages.ready_s)
        waits = self._waits.get(api_key)
        if waits is None:
            name = api_name(api_key)
            waits = self._waits[api_key] = self.waits.at(name)
            self._totals[api_key] = self.total.at(name)
        waits.observe(stages.ready_s - handled_s)
        self._totals[api_key].observe(now_s - stages.began_s)
        counted_s = (handled_s if api_key in _LONG_POLLS else now_s) - stages.began_s
        if counted_s >= self._slow_s:
            waited_s = stages.ready_s - handled_s
            self.keep(header, origin, handled_s - stages.began_s, waited_s, now_s - stages.ready_s)

    def keep(
        self,
        header: RequestHeader,
        origin: Origin,
        handling_s: float,
        waiting_s: float = 0.0,
        ordering_s: float = 0.0,
    ) -> None:
        """Keep a slow request."""
        self.slow_seen += 1
        took_ms = int((handling_s + waiting_s + ordering_s) * 1_000)
        began_ms = self._clock.wall_ms() - took_ms
        self._slow.append(SlowRequest(began_ms, header, origin, handling_s, waiting_s, ordering_s))

    def slow(self) -> list[SlowRequest]:
        """Return the slow requests that are kept, newest first."""
        return list(reversed(self._slow))


def api_name(api_key: int) -> str:
    """Return Kafka's name of an API, as in ``CreateTopics``."""
    return "".join(word.capitalize() for word in ApiKey(api_key).name.split("_"))
