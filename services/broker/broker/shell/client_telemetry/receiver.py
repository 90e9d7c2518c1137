"""ClientTelemetry: this broker's receiver of clients' metrics (KIP-714)."""

import logging
from collections.abc import Hashable
from typing import Final, NamedTuple
from uuid import uuid4

from tidemark.codec.compression import CompressionError, DecompressedTooLargeError
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import InstantMs
from tidemark.model.metadata_change import MetadataChange
from tidemark.runtime.clock import Clock
from tidemark.runtime.telemetry import fields
from tidemark.runtime.worker_pool import (
    JobTooLargeError,
    JobTooLongError,
    WorkerDiedError,
    WorkerPool,
    WorkerPoolBusyError,
)

from broker.core.client_metrics.instances import NO_INSTANCE, ClientInstances, Instance, Push
from broker.core.client_metrics.series import ClientSeries
from broker.core.client_metrics.subscription import Client, Wanted, shown_uuid
from broker.metrics_config import MetricsConfig
from broker.shell.client_telemetry.pushes import (
    CLIENT_LABELS,
    TEXT_CHARS_MAX,
    DecodedPush,
    MalformedPushError,
)
from broker.shell.client_telemetry.worker import decode
from broker.shell.request_context import RequestContext

log = logging.getLogger(__name__)

_LANE: Final = "client-telemetry"
_DASH: Final = "-"


class Answer(NamedTuple):
    """Answer to the question of a client."""

    instance_id: bytes
    wanted: Wanted


class ClientTelemetry:
    """Client instances and their metrics. Pushes are decoded in worker processes."""

    def __init__(self, config: MetricsConfig, workers: WorkerPool, clock: Clock) -> None:
        self.instances = ClientInstances(bytes_max=config.telemetry_max_bytes)
        self.series = ClientSeries(config.telemetry_series_max)
        self.pushes = self.failures = self.dropped = 0
        """Pushes that were taken, pushes that could not be read, and points not kept."""
        self._workers = workers
        self._clock = clock

    def follow(self, change: MetadataChange) -> None:
        """Take the subscriptions of new metadata."""
        self.instances.subscribe(change.image.client_metrics)

    def connection_lost(self, listener: str, peer: str) -> None:
        """Forget the client instance of a connection; its metrics stay until they are stale."""
        self.instances.disconnected((listener, peer))

    def ask(self, instance_id: bytes, context: RequestContext) -> Answer:
        """Return what a client is to push; a new client gets an id. Raises TidemarkError."""
        known = instance_id if instance_id != NO_INSTANCE else _new_instance_id()
        client = _client(known, context)
        wanted = self.instances.ask(known, client, _connection(context), self._clock.now_ms())
        return Answer(known, wanted)

    async def push(self, push: Push, payload: bytes, context: RequestContext) -> None:
        """Take a push. Raises TidemarkError with Kafka's errors."""
        client = _client(push.instance_id, context)
        now = self._clock.now_ms()
        instance = self.instances.push(push, client, _connection(context), now)
        if not payload:
            return
        try:
            decoded = await self._decode(push, payload, instance)
        except TidemarkError as refused:
            instance.last_error = refused.code
            self.failures += 1
            words = fields(client_instance_id=client.client_instance_id, reason=refused.message)
            log.warning("metrics of a client not read", extra=words)
            raise
        self._keep(push.instance_id, instance, decoded)

    async def _decode(self, push: Push, payload: bytes, instance: Instance) -> DecodedPush:
        bytes_max = self.instances.bytes_max
        try:
            return await self._workers.run_for(
                _LANE, decode, push.codec, payload, instance.wanted.metrics, bytes_max
            )
        except (DecompressedTooLargeError, JobTooLargeError) as error:
            raise TidemarkError(ErrorCode.TELEMETRY_TOO_LARGE, str(error)) from None
        except (CompressionError, MalformedPushError, JobTooLongError) as error:
            raise TidemarkError(ErrorCode.INVALID_RECORD, str(error)) from None
        except (WorkerDiedError, WorkerPoolBusyError) as error:
            raise TidemarkError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, str(error)) from None

    def _keep(self, instance_id: bytes, instance: Instance, decoded: DecodedPush) -> None:
        now = self._clock.now_ms()
        self.series.expire(now)
        stale_at = InstantMs(now + instance.silent_ms_max())
        labels = [(name, str(getattr(instance.client, name))) for name in CLIENT_LABELS]
        cut = tuple((name, text[:TEXT_CHARS_MAX]) for name, text in labels)
        self.series.put(instance_id, cut, decoded.points, stale_at)
        self.pushes += 1
        self.dropped += decoded.dropped

    def expire(self) -> None:
        """Drop the metrics of clients that are silent."""
        self.series.expire(self._clock.now_ms())


def _client(instance_id: bytes, context: RequestContext) -> Client:
    _, _, port = context.peer.rpartition(":")
    return Client(
        shown_uuid(instance_id),
        context.client_id or "",
        context.software.name,
        context.software.version,
        context.requester.host,
        port,
    )


def _connection(context: RequestContext) -> Hashable:
    return context.listener, context.peer


def _new_instance_id() -> bytes:
    """Return a random id whose text does not begin with a dash, as in Kafka."""
    while shown_uuid(made := uuid4().bytes).startswith(_DASH):
        pass
    return made
