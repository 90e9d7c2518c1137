"""MetadataFollower: a snapshot, then deltas, from the controller's feed, across failovers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, TypeVar

import grpc.aio
from tidemark_wire.v1 import controller_pb2 as pb

from tidemark.model.backoff import Backoff, RetryDelays
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import BrokerEpoch
from tidemark.model.metadata import ClusterImage
from tidemark.protocol.feed import FeedSubscriber, Verdict
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.metadata_cache import MetadataCache, let_others_run
from tidemark.runtime.metadata_wire import apply_update, read_position, write_position
from tidemark.runtime.streams import END_OF_STREAM
from tidemark.runtime.telemetry import fields

log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")
Between = Callable[[], Awaitable[None]]

_BACKOFF: Final = Backoff(50, 1_000)
_FIND_S_MAX: Final = 3600.0
_SHOWN_EVERY_S: Final = 0.5

NOT_A_BROKER: Final = BrokerEpoch(-1)


class _FeedEndedError(Exception):
    """This subscription has ended; another one may continue."""


class MetadataFollower:
    """One subscription, renewed whenever it breaks. ``metadata`` only moves forward.

    Until the first snapshot its image is the empty one, at START_OF_FEED. An image is acknowledged
    to the controller once every subscriber of ``metadata`` has acted on it.
    """

    def __init__(
        self,
        controller: ControllerClient,
        metadata: MetadataCache,
        *,
        subscriber: str,
        broker_epoch: Callable[[], BrokerEpoch] = lambda: NOT_A_BROKER,
        shown_every_s: float = _SHOWN_EVERY_S,
    ) -> None:
        """``subscriber`` appears in logs; ``broker_epoch`` is called at each subscription. While an
        update is applied, the controller is shown every ``shown_every_s`` that this process lives.
        """
        self._controller = controller
        self.metadata = metadata
        self._subscriber = subscriber
        self._broker_epoch = broker_epoch
        self._delays = RetryDelays(_BACKOFF, controller.dice)
        self._core = FeedSubscriber()
        self._shown_every_s = shown_every_s

    @property
    def image(self) -> ClusterImage:
        """Latest image."""
        return self.metadata.image

    async def run(self) -> None:
        """Follow until cancelled. Raises TidemarkError STALE_BROKER_EPOCH: register, then run
        again.
        """
        while True:
            endpoint = await self._find()
            broker_epoch = self._broker_epoch()
            try:
                await self._follow(endpoint, broker_epoch)
            except _FeedEndedError as reason:
                log.info("metadata feed ended", extra=fields(endpoint=endpoint, reason=str(reason)))
            except grpc.aio.AioRpcError as error:
                self._controller.disprove(endpoint)
                log.info(
                    "metadata feed broke",
                    extra=fields(endpoint=endpoint, code=error.code().name, detail=error.details()),
                )
            await asyncio.sleep(self._delays.next_s())

    async def _find(self) -> str:
        while True:
            try:
                return await self._controller.find(_FIND_S_MAX)
            except TidemarkError as error:
                log.warning("no active controller", extra=fields(reason=error.message))

    async def _follow(self, endpoint: str, broker_epoch: BrokerEpoch) -> None:
        call = self._controller.stub(endpoint).WatchMetadata()
        try:
            await self._exchange(call, endpoint, broker_epoch)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # This task was not cancelled: gRPC raises it when the channel was closed.
            raise _FeedEndedError("its channel was closed") from None
        finally:
            call.cancel()

    async def _exchange(self, call: Any, endpoint: str, broker_epoch: BrokerEpoch) -> None:
        self._core.subscribed()
        await _write(
            call,
            pb.WatchMetadataRequest(
                subscriber=self._subscriber,
                broker_epoch=broker_epoch,
                applied=write_position(self.image.position),
                answers_heartbeats=True,
                takes_partitions=True,
            ),
        )
        while True:
            update = await call.read()
            if update is END_OF_STREAM:
                self._controller.disprove(endpoint)
                raise _FeedEndedError("the controller closed it")
            if update.error_code:
                self._on_error(endpoint, update, broker_epoch)
            if not update.heartbeat:
                await self._take(endpoint, update, self._signs_of_life(call))
            await _write(call, pb.WatchMetadataRequest(applied=write_position(self.image.position)))

    def _on_error(self, endpoint: str, update: Any, broker_epoch: BrokerEpoch) -> None:
        """Raise the exception for an error that ended the subscription."""
        code = ErrorCode(update.error_code)
        if code is ErrorCode.NOT_CONTROLLER:
            self._controller.disprove(endpoint, update.controller_hint)
        if code is ErrorCode.STALE_BROKER_EPOCH and self._broker_epoch() == broker_epoch:
            raise TidemarkError(code, f"{self._subscriber} is registered under another epoch")
        raise _FeedEndedError(code.name)

    def _signs_of_life(self, call: Any) -> Between:
        """Return what is done between the steps of an update. To make many logs on a slow disk may
        take longer than the controller waits for the answer to a heartbeat.
        """
        loop = asyncio.get_running_loop()
        applied, shown_at = write_position(self.image.position), loop.time()

        async def between() -> None:
            nonlocal shown_at
            await let_others_run()
            if loop.time() - shown_at >= self._shown_every_s:
                await _write(call, pb.WatchMetadataRequest(applied=applied))
                shown_at = loop.time()

        return between

    async def _take(self, endpoint: str, update: Any, between: Between) -> None:
        """Apply one update or end the subscription, as the core decides."""
        known, position = self.image.position, read_position(update.position)
        match self._core.judge(position, is_snapshot=update.HasField("snapshot")):
            case Verdict.OLDER_CONTROLLER:
                self._controller.disprove(endpoint)
                raise _FeedEndedError(
                    f"an older controller: its position is {position}, the known one {known}"
                )
            case Verdict.GAP:
                raise _FeedEndedError(f"a gap: {position} after {known}")
            case Verdict.APPLY:
                image, delta = await _in_turns(apply_update(self.image, update), between)
                self._core.applied(position)  # from here on it is completed, whatever happens
                await self.metadata.take_in_steps(image, delta, between)
            case Verdict.KNOWN:
                pass
        self._delays.reset()


async def _in_turns(steps: Generator[None, None, ResultT], between: Between) -> ResultT:
    """Return the result of these steps; ``between`` is awaited between them."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: ResultT = end.value
            return result
        await between()


async def _write(call: Any, request: pb.WatchMetadataRequest) -> None:
    try:
        await call.write(request)
    except asyncio.InvalidStateError:  # raised by gRPC once the stream has ended
        raise _FeedEndedError("it ended before the first write") from None
