"""Client quotas of one broker: whose quota is in force, what clients used, and for how long they
are throttled.

Kafka's precedence: of the quotas that fit a client, the one of its user and client id comes first,
then those of its user, of the default user, and of its client id. Clients share a rate where they
share the entity of their quota. A kind without any quota costs one attribute test.
"""

from collections.abc import Callable, Mapping
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from tidemark.model.authorization import PROCESS
from tidemark.model.ids import InstantMs
from tidemark.model.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotas,
    QuotaEntity,
)

from broker.core.quota_rates import MutationBucket, QuotaWindow, SampledRate

SENSORS_MAX: Final = 10_000
"""Rates that one kind of quota keeps. Beyond that the one that was used longest ago is dropped."""
CLIENTS_MAX: Final = 10_000
"""Clients of which one kind of quota remembers the entity in force."""
EXPIRED_AT_ONCE: Final = 2
"""Idle rates dropped for each new one, so that those of clients that left do not stay."""
THROTTLE_MS_MAX: Final = 3_600_000
"""Longest throttle time: it has 32 bits in an answer, and a quota may be a typing error."""

PERCENT: Final = 100

_MAPPED: Final = "::ffff:"
"""Prefix of an IPv4 address on a listener of IPv6."""


class Client(NamedTuple):
    """Client of a request: principal, as ``User:alice``, and client id."""

    principal: str
    client_id: str

    @property
    def user(self) -> str:
        """Name of the user, without the type of the principal. The processes of the cluster keep
        theirs: a client may have the rest of their name.
        """
        return PROCESS if self.principal == PROCESS else self.principal.partition(":")[2]


class InForce(NamedTuple):
    """Quota of a client. ``shared_by``: user and client id of those that share it, '' for all."""

    bound: float
    shared_by: tuple[str, str]


def in_force(limits: Mapping[QuotaEntity, float], user: str, client_id: str) -> InForce | None:
    """Return the first quota that fits, in Kafka's order of precedence."""
    both, of_user, of_id = (user, client_id), (user, ""), ("", client_id)
    for entity, shared_by in (
        (QuotaEntity(user, client_id), both),
        (QuotaEntity(user, DEFAULT), both),
        (QuotaEntity(user), of_user),
        (QuotaEntity(DEFAULT, client_id), both),
        (QuotaEntity(DEFAULT, DEFAULT), both),
        (QuotaEntity(DEFAULT), of_user),
        (QuotaEntity(None, client_id), of_id),
        (QuotaEntity(None, DEFAULT), of_id),
    ):
        bound = limits.get(entity)
        if bound is not None:
            return InForce(bound, shared_by)
    return None


class Sensor(Protocol):
    """Amounts that one entity used of one quota."""

    bound: float

    def is_idle(self, now: InstantMs) -> bool:
        """True if a new sensor would do the same."""


SensorT = TypeVar("SensorT", bound=Sensor)


class _RateSensor:
    __slots__ = ("bound", "rate")

    def __init__(self, window: QuotaWindow) -> None:
        self.rate = SampledRate(window)
        self.bound = 0.0

    def is_idle(self, now: InstantMs) -> bool:
        return self.rate.is_idle(now)


class _BucketSensor:
    __slots__ = ("bound", "bucket")

    def __init__(self, window: QuotaWindow) -> None:
        self.bucket = MutationBucket(window)
        self.bound = 0.0

    def is_idle(self, now: InstantMs) -> bool:
        return self.bucket.is_idle(self.bound, now)


class _Sensors(Generic[SensorT]):
    """Sensors by who shares them, the one used longest ago first. Idle ones expire."""

    def __init__(self, make: Callable[[QuotaWindow], SensorT], window: QuotaWindow) -> None:
        self._make = make
        self._window = window
        self._sensors: dict[tuple[str, str], SensorT] = {}

    def __len__(self) -> int:
        return len(self._sensors)

    def at(self, key: tuple[str, str], bound: float, now: InstantMs) -> SensorT:
        """Return the sensor of a key, with this bound."""
        sensors = self._sensors
        found = sensors.pop(key, None)
        if found is None:
            found = self._make(self._window)
            self._expire(now)
            if len(sensors) >= SENSORS_MAX:
                del sensors[next(iter(sensors))]
        sensors[key] = found
        found.bound = bound
        return found

    def _expire(self, now: InstantMs) -> None:
        for _ in range(EXPIRED_AT_ONCE):
            oldest = next(iter(self._sensors), None)
            if oldest is None or not self._sensors[oldest].is_idle(now):
                return
            del self._sensors[oldest]


class _Kind(Generic[SensorT]):
    """One kind of quota: its limits, and the sensors of those that have one."""

    key: str

    def __init__(
        self, key: str, make: Callable[[QuotaWindow], SensorT], window: QuotaWindow
    ) -> None:
        self.key = key
        self.enabled = False
        """False while no entity has a quota of this kind."""
        self._limits: dict[QuotaEntity, float] = {}
        self._known: dict[Client, InForce | None] = {}
        self._sensors = _Sensors(make, window)

    @property
    def sensor_count(self) -> int:
        """Number of rates in memory."""
        return len(self._sensors)

    def configure(self, quotas: ClientQuotas) -> None:
        """Take the limits of this kind. What clients have used is kept."""
        limits = {
            entity: values[self.key] for entity, values in quotas.items() if self.key in values
        }
        if limits != self._limits:
            self._limits, self._known = limits, {}
            self.enabled = bool(limits)

    def in_force(self, client: Client) -> InForce | None:
        """Return the quota of a client, or None."""
        try:
            return self._known[client]
        except KeyError:
            if len(self._known) >= CLIENTS_MAX:
                self._known.clear()
            found = in_force(self._limits, client.user, client.client_id)
            self._known[client] = found
            return found


class RateQuota(_Kind[_RateSensor]):
    """Quota of a rate of bytes."""

    def __init__(self, key: str, window: QuotaWindow) -> None:
        super().__init__(key, _RateSensor, window)
        self._window = window

    def record(self, client: Client, amount: float, now: InstantMs) -> int:
        """Count an amount. Return the throttle time in ms."""
        quota = self.in_force(client)
        if quota is None:
            return 0
        rate = self._sensors.at(quota.shared_by, quota.bound, now).rate
        rate.record(amount, now)
        return min(rate.throttle_ms(quota.bound, now), THROTTLE_MS_MAX)

    def largest(self, client: Client) -> float | None:
        """Return the amount that is within the quota if nothing else was counted for a window;
        None: any.
        """
        quota = self.in_force(client)
        return None if quota is None else quota.bound * self._window.measured_ms / 1_000


class RequestQuota(_Kind[_RateSensor]):
    """Quota of the time that requests take on the event loop, in percent of it (KIP-124)."""

    def __init__(self, window: QuotaWindow) -> None:
        super().__init__(REQUEST_PERCENTAGE, _RateSensor, window)
        self._throttle_ms_max = window.sample_ms

    def in_force(self, client: Client) -> InForce | None:
        """Return the quota of a client; the processes of the cluster have none."""
        return None if client.principal == PROCESS else super().in_force(client)

    def record(self, client: Client, seconds: float, now: InstantMs) -> int:
        """Count time. Return the throttle time in ms."""
        quota = self.in_force(client)
        if quota is None:
            return 0
        rate = self._sensors.at(quota.shared_by, quota.bound, now).rate
        rate.record(seconds * PERCENT, now)
        return min(rate.throttle_ms(quota.bound, now), self._throttle_ms_max)

    def throttle_ms(self, client: Client, seconds: float, now: InstantMs) -> int:
        """Return the throttle time in ms with time that is not counted yet; at most a sample's, as
        in Kafka: what a request takes cannot be known before.
        """
        quota = self.in_force(client)
        if quota is None:
            return 0
        rate = self._sensors.at(quota.shared_by, quota.bound, now).rate
        return min(rate.throttle_ms(quota.bound, now, seconds * PERCENT), self._throttle_ms_max)


class MutationQuota(_Kind[_BucketSensor]):
    """Quota of mutations of the controller: partitions created and deleted (KIP-599)."""

    def __init__(self, window: QuotaWindow) -> None:
        super().__init__(CONTROLLER_MUTATION_RATE, _BucketSensor, window)

    def throttle_ms(self, client: Client, now: InstantMs) -> int:
        """Return the time in ms for which further mutations are to wait."""
        quota = self.in_force(client)
        if quota is None:
            return 0
        bucket = self._sensors.at(quota.shared_by, quota.bound, now).bucket
        return min(bucket.throttle_ms(quota.bound, now), THROTTLE_MS_MAX)

    def take(self, client: Client, permits: int, now: InstantMs) -> None:
        """Pay for mutations, into debt if need be."""
        quota = self.in_force(client)
        if quota is not None:
            bucket = self._sensors.at(quota.shared_by, quota.bound, now).bucket
            bucket.take(permits, quota.bound, now)


class ConnectionQuota:
    """Quota of new connections by IP address (KIP-612)."""

    def __init__(self, window: QuotaWindow) -> None:
        self.enabled = False
        self._window = window
        self._limits: dict[str, float] = {}
        self._sensors = _Sensors(_RateSensor, window)

    def configure(self, quotas: ClientQuotas) -> None:
        """Take the limits."""
        key = CONNECTION_CREATION_RATE
        self._limits = {
            entity.ip: values[key]
            for entity, values in quotas.items()
            if entity.ip is not None and key in values
        }
        self.enabled = bool(self._limits)

    def connected(self, address: str, now: InstantMs) -> int:
        """Count a connection from an address. Return the time in ms after which it is to be closed,
        uncounted; 0: it is within the quota.
        """
        address = address.removeprefix(_MAPPED)
        bound = self._limits.get(address, self._limits.get(DEFAULT))
        if bound is None:
            return 0
        rate = self._sensors.at((address, ""), bound, now).rate
        throttle_ms = rate.throttle_ms(bound, now, 1.0)
        if throttle_ms == 0:
            rate.record(1.0, now)
        return min(throttle_ms, self._window.sample_ms)


class Quotas:
    """All client quotas of one broker."""

    def __init__(
        self,
        window: QuotaWindow = QuotaWindow(),  # noqa: B008 - immutable
        mutation_window: QuotaWindow = QuotaWindow(),  # noqa: B008
    ) -> None:
        self.produce = RateQuota(PRODUCER_BYTE_RATE, window)
        self.fetch = RateQuota(CONSUMER_BYTE_RATE, window)
        self.requests = RequestQuota(window)
        self.mutations = MutationQuota(mutation_window)
        self.connections = ConnectionQuota(window)

    def configure(self, quotas: ClientQuotas) -> None:
        """Take the quotas of the cluster."""
        kinds = (self.produce, self.fetch, self.requests, self.mutations, self.connections)
        for kind in kinds:
            kind.configure(quotas)
