"""ClientInstances: client instances that ask what to push, and push it; when they may, and what is
refused (Kafka: ClientMetricsManager).
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidemark.codec.compression import CODEC_NAMES
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import InstantMs

from broker.core.client_metrics.subscription import Client, Subscription, Wanted, wanted

INSTANCES_MAX: Final = 16_384
"""As in Kafka."""
FORGOTTEN_MS_MIN: Final = 60_000
FORGOTTEN_INTERVALS: Final = 3
NO_INSTANCE: Final = bytes(16)
_RESERVED: Final = (NO_INSTANCE, bytes(15) + b"\x01")
_ASKS_AGAIN: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""Errors after which a client may repeat its question at once."""


class Push(NamedTuple):
    """A push, without its metrics."""

    instance_id: bytes
    subscription_id: int
    terminating: bool
    codec: int
    size_bytes: int


@dataclass(slots=True)
class Instance:
    """A client instance. ``connection`` is the one it was seen on first."""

    client: Client
    connection: Hashable
    wanted: Wanted
    version: int
    """Version of the subscriptions from which ``wanted`` was computed."""
    touched: InstantMs
    asked: InstantMs | None = None
    pushed: InstantMs | None = None
    terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE

    def may_ask(self, now: InstantMs) -> bool:
        """True once an interval has passed since the last question and the last push."""
        since = max((at for at in (self.asked, self.pushed) if at is not None), default=None)
        return since is None or now - since >= self.wanted.interval_ms

    def may_push(self, now: InstantMs) -> bool:
        """True once an interval has passed since the last push; the first push after a question may
        come at any time, since clients wait between half an interval and one and a half.
        """
        if self.pushed is None or (self.asked is not None and self.asked > self.pushed):
            return True
        return now - self.pushed >= self.wanted.interval_ms

    def silent_ms_max(self) -> int:
        """Return the time after which the instance is forgotten, and its metrics are stale."""
        return max(FORGOTTEN_MS_MIN, FORGOTTEN_INTERVALS * self.wanted.interval_ms)


@dataclass(slots=True)
class Counts:
    """Counts of refusals, as in the group client-metrics of Kafka."""

    throttled: int = 0
    unknown_subscriptions: int = 0


class ClientInstances:
    """Client instances of one broker, least recently seen first."""

    def __init__(self, *, bytes_max: int, instances_max: int = INSTANCES_MAX) -> None:
        self.counts = Counts()
        self.bytes_max = bytes_max
        self._instances_max = instances_max
        self._instances: dict[bytes, Instance] = {}
        self._by_connection: dict[Hashable, bytes] = {}
        self._subscriptions: list[Subscription] = []
        self._version = 0

    def __len__(self) -> int:
        return len(self._instances)

    def subscribe(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Replace all subscriptions. One that a newer release wrote, and that cannot be read, wants
        nothing.
        """
        self._subscriptions = []
        for one in configs.values():
            try:
                self._subscriptions.append(Subscription.of(one))
            except TidemarkError:
                continue
        self._version += 1

    def ask(
        self, instance_id: bytes, client: Client, connection: Hashable, now: InstantMs
    ) -> Wanted:
        """Return what a client is to push. Raises TidemarkError THROTTLING_QUOTA_EXCEEDED."""
        instance = self._seen(instance_id, client, connection, now)
        if instance.may_ask(now):
            instance.asked = now
        elif instance.last_error not in _ASKS_AGAIN:
            self.counts.throttled += 1
            raise _too_early(client)
        instance.last_error = ErrorCode.NONE
        return instance.wanted

    def push(self, push: Push, client: Client, connection: Hashable, now: InstantMs) -> Instance:
        """Admit a push. Raises TidemarkError with Kafka's errors."""
        if push.instance_id in _RESERVED:
            words = f"invalid client instance id {client.client_instance_id}"
            raise TidemarkError(ErrorCode.INVALID_REQUEST, words)
        instance = self._seen(push.instance_id, client, connection, now)
        try:
            self._admit(push, instance, now)
        except TidemarkError as refused:
            instance.last_error = refused.code
            raise
        finally:
            instance.terminating = instance.terminating or push.terminating
        instance.last_error = ErrorCode.NONE
        return instance

    def _admit(self, push: Push, instance: Instance, now: InstantMs) -> None:
        shown = instance.client.client_instance_id
        if instance.terminating:
            words = f"client instance {shown} has said that it ends"
            raise TidemarkError(ErrorCode.INVALID_REQUEST, words)
        if instance.may_push(now):
            instance.pushed = now
        elif not push.terminating:
            self.counts.throttled += 1
            raise _too_early(instance.client)
        if push.subscription_id != instance.wanted.subscription_id:
            self.counts.unknown_subscriptions += 1
            words = f"client instance {shown} has not the present subscription"
            raise TidemarkError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, words)
        if push.codec not in CODEC_NAMES:
            words = f"unknown compression type {push.codec}"
            raise TidemarkError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, words)
        if push.size_bytes > self.bytes_max:
            words = f"{push.size_bytes} bytes; telemetry.max.bytes is {self.bytes_max}"
            raise TidemarkError(ErrorCode.TELEMETRY_TOO_LARGE, words)

    def disconnected(self, connection: Hashable) -> None:
        """Forget the instance of a connection that is gone."""
        instance_id = self._by_connection.get(connection)
        if instance_id is not None:
            self._forget(instance_id)

    def check(self) -> None:
        """Assert the invariants."""
        assert len(self._instances) <= self._instances_max
        for connection, instance_id in self._by_connection.items():
            assert self._instances[instance_id].connection == connection

    def _seen(
        self, instance_id: bytes, client: Client, connection: Hashable, now: InstantMs
    ) -> Instance:
        """Return the instance, made again if it is unknown here or subscriptions have changed."""
        self._expire(now)
        instance = self._instances.pop(instance_id, None)
        if instance is None or instance.version != self._version:
            known = client if instance is None else instance.client
            first = connection if instance is None else instance.connection
            now_wanted = wanted(self._subscriptions, known, instance_id)
            instance = Instance(known, first, now_wanted, self._version, now)
            if len(self._instances) >= self._instances_max:
                self._forget(next(iter(self._instances)))
        instance.touched = now
        self._instances[instance_id] = instance  # the last one in order
        self._by_connection[instance.connection] = instance_id
        return instance

    def _expire(self, now: InstantMs) -> None:
        """Forget the oldest ones that are silent, until one is not."""
        while self._instances:
            oldest = next(iter(self._instances))
            instance = self._instances[oldest]
            if now - instance.touched < instance.silent_ms_max():
                return
            self._forget(oldest)

    def _forget(self, instance_id: bytes) -> None:
        instance = self._instances.pop(instance_id)
        if self._by_connection.get(instance.connection) == instance_id:
            del self._by_connection[instance.connection]


def _too_early(client: Client) -> TidemarkError:
    return TidemarkError(
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        f"client instance {client.client_instance_id} came before its next push interval",
    )
