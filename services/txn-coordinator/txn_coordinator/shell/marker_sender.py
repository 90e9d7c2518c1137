"""Sending of the markers of ended transactions to the leaders of their partitions.

``core/marker_queue.py`` decides which markers are sent where and when. This module has its calls,
its timer and its log.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any, Final, Protocol

from tidemark.model.backoff import Dice
from tidemark.model.ids import BrokerId
from tidemark.model.metadata import ClusterImage
from tidemark.runtime.channel_pool import CallFailedError, ChannelPool, Stubs, call_failures
from tidemark.runtime.clock import Clock
from tidemark.runtime.kept_streams import KeptStreams
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.telemetry import fields
from tidemark_wire.v1 import txn_pb2_grpc

from txn_coordinator.core.effects import SendMarkers
from txn_coordinator.core.marker_inputs import (
    AbandonRequest,
    Answered,
    BrokerFailed,
    BrokerRecovered,
    CallFailed,
    Effect,
    Fenced,
    Forget,
    ImageChanged,
    Input,
    MarkerRefused,
    Notice,
    PartitionsGone,
    Report,
    Send,
    Tick,
    WriteMarkers,
)
from txn_coordinator.core.marker_queue import MarkerLimits, MarkerQueue
from txn_coordinator.core.requests import MarkersWritten
from txn_coordinator.shell.wire_mapping import read_marker_codes, write_markers

log = logging.getLogger(__name__)

_REQUEST_TIMEOUT_MS: Final = 30_000


class MarkerListener(Protocol):
    """Receiver of results. Both methods are called on the loop and must not wait."""

    def submit(self, shard: int, request: MarkersWritten) -> None:
        """Called when every marker of one effect is written, or its partition is gone."""
        ...

    def fenced(self, shard: int, owner_epoch: int) -> None:
        """Called when a partition has markers of a later owner, and refuses this owner's."""
        ...


class MarkerSender:
    """Markers of all shards of one process. ``send`` any time while ``run`` runs."""

    def __init__(
        self,
        metadata: MetadataCache,
        channels: ChannelPool,
        clock: Clock,
        listener: MarkerListener,
        *,
        limits: MarkerLimits | None = None,
        request_timeout_ms: int = _REQUEST_TIMEOUT_MS,
        dice: Dice = random.random,
        observe_s: Callable[[float], None] = lambda _: None,
    ) -> None:
        """``observe_s`` is called with the seconds from each ``send`` to its last marker."""
        self._metadata = metadata
        self._stubs = Stubs(channels, txn_pb2_grpc.TransactionMarkersStub)
        self._streams = KeptStreams("StreamMarkers")
        self._clock = clock
        self._listener = listener
        self._request_timeout_s = request_timeout_ms / 1_000
        self._observe_s = observe_s
        self._queue = MarkerQueue(limits or MarkerLimits(), dice)
        self._seen: ClusterImage | None = None
        self._wake = asyncio.Event()
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def ending_count(self) -> int:
        """Effects whose markers are not all written."""
        return self._queue.ending_count

    @property
    def parked_count(self) -> int:
        """Markers that wait for a leader, or for another try."""
        return self._queue.parked_count

    def queued_counts(self) -> dict[BrokerId, int]:
        """Return the numbers of markers that wait for the request in flight, by broker."""
        return self._queue.queued_counts()

    def send(self, shard: int, owner_epoch: int, effect: SendMarkers) -> None:
        """Write these markers, under ``owner_epoch``. What is under way already stays under way."""
        self._step(Send(shard, owner_epoch, effect))

    def forget(self, shard: int) -> None:
        """Send nothing more for the shard, which was dropped. Requests in flight go on. Shards are
        dropped at the stop, too: also when ``run`` has ended.
        """
        self._step(Forget(shard))

    async def run(self) -> None:
        """Send until cancelled."""
        try:
            with self._metadata.watched(lambda _: self._wake.set()):
                async with asyncio.TaskGroup() as self._tasks:
                    while True:
                        self._step(Tick())
                        self._wake.clear()
                        await self._wait()
        finally:
            self._tasks = None

    async def _wait(self) -> None:
        """Wait until the queue has something to do."""
        now = self._clock.now_ms()
        due = self._queue.next_deadline(now)
        try:
            async with asyncio.timeout(None if due is None else (due - now) / 1_000):
                await self._wake.wait()
        except TimeoutError:
            return

    def _step(self, stimulus: Input) -> None:
        """Give the queue an input, under the newest metadata, and perform the effects."""
        now = self._clock.now_ms()
        image = self._metadata.image
        effects: list[Effect] = []
        if image is not self._seen:
            self._seen = image
            effects += self._queue.step(ImageChanged(image), now)
        effects += self._queue.step(stimulus, now)
        self._wake.set()
        for effect in effects:
            self._perform(effect, image)

    def _perform(self, effect: Effect, image: ClusterImage) -> None:
        match effect:
            case WriteMarkers(request):
                assert self._tasks is not None, "requests begin in run()"
                call = self._tasks.create_task(self._call(effect, image), name=f"markers-{request}")
                self._calls[request] = call
                call.add_done_callback(lambda _: self._calls.pop(request))
            case AbandonRequest(request):
                # After the stop the call is gone, and the queue was not given its end.
                if (under_way := self._calls.get(request)) is not None:
                    under_way.cancel()
            case Report(shard, report, took_ms):
                self._observe_s(took_ms / 1_000)
                self._listener.submit(shard, report)
            case Fenced(shard, owner_epoch):
                words = fields(shard=shard, owner_epoch=owner_epoch)
                log.warning("fenced by a newer owner of the shard", extra=words)
                self._listener.fenced(shard, owner_epoch)
            case _:
                _log(effect)

    async def _call(self, effect: WriteMarkers, image: ClusterImage) -> None:
        """Send a request, and give its response or failure to the queue."""
        endpoint = image.brokers[effect.broker_id].grpc_endpoint
        request = write_markers(effect, image)
        outcome: Answered | CallFailed
        try:
            async with asyncio.timeout(self._request_timeout_s):
                response = await self._ask(endpoint, request)
        except CallFailedError as failure:
            outcome = CallFailed(effect.request, str(failure))
        except TimeoutError:
            words = f"{endpoint} did not answer within {self._request_timeout_s:g} s"
            outcome = CallFailed(effect.request, words)
        else:
            outcome = Answered(effect.request, read_marker_codes(response))
        self._step(outcome)

    async def _ask(self, endpoint: str, request: Any) -> Any:
        """Return a broker's response. Raises CallFailedError."""
        stub = await self._stubs.stub(endpoint)

        async def call() -> Any:
            with call_failures(endpoint):
                return await stub.WriteMarkers(request, timeout=self._request_timeout_s)

        return await self._streams.exchange(endpoint, stub, request, call)


def _log(notice: Notice) -> None:
    match notice:
        case PartitionsGone(transactional_id, count):
            words = fields(transactional_id=transactional_id, partitions=count)
            log.info("partitions of a transaction deleted", extra=words)
        case BrokerFailed(broker_id, reason):
            words = fields(broker_id=broker_id, reason=reason)
            log.warning("markers not accepted by a broker", extra=words)
        case BrokerRecovered(broker_id):
            log.info("markers accepted again", extra=fields(broker_id=broker_id))
        case MarkerRefused(broker_id, effect, partition, error):
            words = fields(
                broker_id=broker_id,
                partition=str(partition),
                transactional_id=effect.transactional_id,
                producer_id=effect.producer_id,
                producer_epoch=effect.producer_epoch,
                error=error.name,
            )
            # Errors that pass are of interest in a diagnosis only; others always are.
            log.log(
                logging.DEBUG if error.retriable else logging.WARNING,
                "marker not accepted",
                extra=words,
            )
