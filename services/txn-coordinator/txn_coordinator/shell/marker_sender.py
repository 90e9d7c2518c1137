"""Sends the markers of ended transactions to the brokers that lead their partitions.

While answers come soon one WriteMarkers request is in flight to a broker at a time, with everything
that gathered meanwhile; brokers do not wait for one another. A marker is sent until it is written,
its partition no longer exists, or its shard belongs to somebody else. A partition that our metadata
does not show no longer exists: a shard is loaded once the metadata has shown its acquisition, and
with that every partition that an earlier owner may have added. What is under way is bounded
by the open transactions of the shards, and is found again in their state when a shard is loaded
anew.

    send --> route --> a broker's queue --> WriteMarkers --> written: tell the shard once all are
               ^                                 |
               +---- parked until later <--------+ an error that may pass, or no leader
"""

import asyncio
import heapq
import itertools
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from tidemark.model.backoff import Backoff, Dice
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerId, InstantMs
from tidemark.model.metadata import START_OF_FEED
from tidemark.model.partition_leader import find_leader, find_partition
from tidemark.model.topics import TopicPartition
from tidemark.runtime.channel_pool import (
    CallFailedError,
    ChannelPool,
    call_failures,
    read_error_code,
)
from tidemark.runtime.clock import Clock
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.telemetry import fields
from tidemark_wire.v1 import txn_pb2 as pb
from tidemark_wire.v1 import txn_pb2_grpc

from txn_coordinator.core.effects import SendMarkers
from txn_coordinator.core.requests import MarkersWritten

log = logging.getLogger(__name__)

_BACKOFF: Final = Backoff(20, 1_000)
_PASSED_BY: Final = ErrorCode.INVALID_PRODUCER_EPOCH
"""The partition has seen this epoch's marker, or a later epoch: there is nothing left to end."""


@dataclass(frozen=True, slots=True)
class MarkerLimits:
    """How much, and how long."""

    targets_per_request_max: int = 5_000
    request_timeout_ms: int = 30_000
    requests_in_flight_max: int = 8
    """To one broker."""
    patience_ms: int = 100
    """An answer that takes longer no longer holds up the next request."""
    backoff: Backoff = _BACKOFF

    def __post_init__(self) -> None:
        assert self.targets_per_request_max > 0, "a request holds a marker"
        assert self.requests_in_flight_max > 0, "a request must be possible"
        assert 0 < self.backoff.first_ms <= self.backoff.max_ms, "delays grow from the first"


class MarkerListener(Protocol):
    """What the shards hear. Both are called on the loop and must not wait."""

    def markers_written(self, shard: int, report: MarkersWritten) -> None:
        """Every marker of one effect is written, or its partition is gone."""
        ...

    def fenced(self, shard: int, owner_epoch: int) -> None:
        """A partition has markers of a later owner: this owner's are refused from now on."""
        ...


@dataclass(eq=False, slots=True)
class _Ending:
    """One effect under way. ``missing``: partitions whose marker is not known to be written."""

    shard: int
    owner_epoch: int
    effect: SendMarkers
    since: InstantMs
    missing: set[TopicPartition]
    failures: int = 0
    is_dropped: bool = False
    """Nothing more is to be done: all is written, or the shard is no longer ours."""


class _Part(NamedTuple):
    """Partitions of one effect that one broker leads, or that wait together."""

    ending: _Ending
    partitions: list[TopicPartition]


@dataclass(eq=False, slots=True)
class _Queue:
    """What waits for one broker."""

    broker_id: BrokerId
    waiting: dict[_Ending, list[TopicPartition]] = field(default_factory=dict)
    filled: asyncio.Event = field(default_factory=asyncio.Event)
    failures: int = 0
    """Requests in a row that had no answer."""
    under_way: dict[asyncio.Task[None], Sequence[_Part]] = field(default_factory=dict)
    """By request: what it is to write."""

    def put(self, ending: _Ending, partition: TopicPartition) -> None:
        self.waiting.setdefault(ending, []).append(partition)
        self.filled.set()

    def take(self, targets_max: int) -> list[_Part]:
        """The oldest first, up to ``targets_max`` partitions."""
        taken: list[_Part] = []
        room = targets_max
        while self.waiting and room > 0:
            ending, partitions = next(iter(self.waiting.items()))
            taken.append(_Part(ending, partitions[:room]))
            if len(partitions) <= room:
                del self.waiting[ending]
            else:
                self.waiting[ending] = partitions[room:]
            room -= len(taken[-1].partitions)
        if not self.waiting:
            self.filled.clear()
        return taken


class MarkerSender:
    """Markers of all shards of one process. ``send`` and ``forget`` any time while ``run`` runs."""

    def __init__(
        self,
        metadata: MetadataCache,
        channels: ChannelPool,
        clock: Clock,
        listener: MarkerListener,
        *,
        limits: MarkerLimits | None = None,
        dice: Dice = random.random,
        observe_s: Callable[[float], None] = lambda _: None,
    ) -> None:
        """``observe_s`` hears the seconds from each ``send`` to its last written marker."""
        self._metadata = metadata
        self._channels = channels
        self._clock = clock
        self._listener = listener
        self._limits = limits or MarkerLimits()
        self._dice = dice
        self._observe_s = observe_s
        self._endings: dict[int, dict[SendMarkers, _Ending]] = {}
        self._queues: dict[BrokerId, _Queue] = {}
        self._parked: list[tuple[InstantMs, int, _Part]] = []
        self._parked_ids = itertools.count()
        self._park_changed = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None

    # What others may see.

    @property
    def ending_count(self) -> int:
        """Effects whose markers are not all written."""
        return sum(map(len, self._endings.values()))

    @property
    def parked_count(self) -> int:
        """Markers that wait for a leader, or for another try."""
        return sum(len(part.partitions) for _, _, part in self._parked)

    def queued_counts(self) -> dict[BrokerId, int]:
        """Markers that wait for the request in flight, by broker."""
        return {
            broker_id: sum(map(len, queue.waiting.values()))
            for broker_id, queue in self._queues.items()
        }

    # What shards ask for.

    def send(self, shard: int, owner_epoch: int, effect: SendMarkers) -> None:
        """Write these markers, under ``owner_epoch``. What is under way already stays under way."""
        of_shard = self._endings.setdefault(shard, {})
        known = of_shard.get(effect)
        if known is not None and known.owner_epoch == owner_epoch:
            return
        if known is not None:
            known.is_dropped = True
        ending = of_shard[effect] = _Ending(
            shard, owner_epoch, effect, self._clock.now_ms(), set(effect.partitions)
        )
        if not ending.missing:
            self._finish(ending)
        self._route(ending, effect.partitions)

    def forget(self, shard: int) -> None:
        """The shard was dropped: send nothing more for it. Requests in flight are not called
        back.
        """
        for ending in self._endings.pop(shard, {}).values():
            ending.is_dropped = True

    async def run(self) -> None:
        """Send until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._tasks.create_task(self._watch_image(), name="markers-image")
                for queue in self._queues.values():
                    self._start(queue)
                await self._route_parked()
        finally:
            self._tasks = None

    # Where markers go.

    def _route(self, ending: _Ending, partitions: Iterable[TopicPartition]) -> None:
        """Each to its leader's queue; those that have none are parked; those gone are done."""
        image = self._metadata.image
        parked: list[TopicPartition] = []
        gone: list[TopicPartition] = []
        for partition in partitions:
            leader = find_leader(image, partition)
            if leader is not None:
                self._queue(leader.broker_id).put(ending, partition)
            elif find_partition(image, partition) is None:
                gone.append(partition)
            else:
                parked.append(partition)
        if gone:
            words = fields(transactional_id=ending.effect.transactional_id, partitions=len(gone))
            log.info("partitions of a transaction deleted", extra=words)
            self._written(ending, gone)
        if parked:
            self._park(_Part(ending, parked))

    def _queue(self, broker_id: BrokerId) -> _Queue:
        queue = self._queues.get(broker_id)
        if queue is None:
            queue = self._queues[broker_id] = _Queue(broker_id)
            if self._tasks is not None:
                self._start(queue)
        return queue

    def _start(self, queue: _Queue) -> None:
        assert self._tasks is not None, "run() starts queues"
        # Not in the context of whichever request needed the broker first.
        self._tasks.create_task(
            self._serve(queue), name=f"markers-{queue.broker_id}", context=Context()
        )

    def _park(self, part: _Part) -> None:
        """Try again later, or when the metadata changes."""
        part.ending.failures += 1
        delay_ms = self._limits.backoff.delay_ms(part.ending.failures, self._dice())
        due = InstantMs(self._clock.now_ms() + round(delay_ms))
        heapq.heappush(self._parked, (due, next(self._parked_ids), part))
        self._park_changed.set()

    async def _route_parked(self) -> None:
        """Whatever has become due goes its way again."""
        while True:
            self._park_changed.clear()
            now = self._clock.now_ms()
            while self._parked and self._parked[0][0] <= now:
                part = heapq.heappop(self._parked)[2]
                self._route_again(part)
            wait_s = (self._parked[0][0] - now) / 1_000 if self._parked else None
            try:
                async with asyncio.timeout(wait_s):
                    await self._park_changed.wait()
            except TimeoutError:
                continue

    async def _watch_image(self) -> None:
        """New metadata: whatever waits for a leader may have one, or another."""
        position = START_OF_FEED
        while True:
            position = (await self._metadata.wait_newer(position)).position
            for queue in tuple(self._queues.values()):
                self._abandon_moved(queue)
            parked, self._parked = self._parked, []
            for _, _, part in parked:
                self._route_again(part)

    def _abandon_moved(self, queue: _Queue) -> None:
        """Wait no longer for a broker that leads nothing any more of what it was asked to write: it
        may be paused or cut off.
        """
        for asking, parts in list(queue.under_way.items()):
            is_led = any(self._leads(queue, at) for part in parts for at in part.partitions)
            if not is_led and not asking.done():
                asking.cancel()
                del queue.under_way[asking]
                for part in parts:
                    self._park(part)

    def _leads(self, queue: _Queue, partition: TopicPartition) -> bool:
        leader = find_leader(self._metadata.image, partition)
        return leader is not None and leader.broker_id == queue.broker_id

    def _route_again(self, part: _Part) -> None:
        if not part.ending.is_dropped:
            self._route(part.ending, part.partitions)

    # One broker.

    async def _serve(self, queue: _Queue) -> None:
        """One request at a time while answers come soon. One that waits for replicas that lag must
        not keep all others waiting: then there are more, up to a bound. After a failure a pause,
        lest every new marker tries at once.
        """
        patience_s = self._limits.patience_ms / 1_000
        slots = asyncio.Semaphore(self._limits.requests_in_flight_max)

        def done(asking: asyncio.Task[None]) -> None:
            queue.under_way.pop(asking, None)
            slots.release()

        async with asyncio.TaskGroup() as requests:
            while True:
                await queue.filled.wait()
                await slots.acquire()
                position = self._metadata.image.position
                parts = self._still_led(queue)
                asking = requests.create_task(self._ask(queue, parts))
                queue.under_way[asking] = parts
                asking.add_done_callback(done)
                await asyncio.wait((asking,), timeout=patience_s)
                if queue.failures:
                    delay_ms = self._limits.backoff.delay_ms(queue.failures, self._dice())
                    await self._metadata.wait_newer_or(position, delay_ms / 1_000)

    def _still_led(self, queue: _Queue) -> list[_Part]:
        """What the broker is to be asked now; what it no longer leads goes another way."""
        kept: list[_Part] = []
        for ending, partitions in queue.take(self._limits.targets_per_request_max):
            if ending.is_dropped:
                continue
            led: list[TopicPartition] = []
            moved: list[TopicPartition] = []
            for partition in partitions:
                (led if self._leads(queue, partition) else moved).append(partition)
            if led:
                kept.append(_Part(ending, led))
            if moved:
                self._route(ending, moved)
        return kept

    async def _ask(self, queue: _Queue, parts: Sequence[_Part]) -> None:
        """One request; what has no answer is tried again later."""
        if not parts:
            return
        try:
            await self._write(queue, parts)
        except CallFailedError as failure:
            if not queue.failures:
                words = fields(broker_id=queue.broker_id, reason=str(failure))
                log.warning("markers not accepted by a broker", extra=words)
            queue.failures += 1
            for part in parts:
                self._park(part)
        else:
            if queue.failures:
                log.info("markers accepted again", extra=fields(broker_id=queue.broker_id))
            queue.failures = 0

    async def _write(self, queue: _Queue, parts: Sequence[_Part]) -> None:
        """Ask, and judge each answer. Raises CallFailedError: nothing is known."""
        image = self._metadata.image
        endpoint = image.brokers[queue.broker_id].grpc_endpoint
        request = pb.WriteMarkersRequest(
            markers=[
                pb.WriteMarkersRequest.Marker(
                    producer_id=ending.effect.producer_id,
                    producer_epoch=ending.effect.producer_epoch,
                    coordinator_epoch=ending.owner_epoch,
                    commit=ending.effect.commit,
                    transaction_version=ending.effect.transaction_version,
                    targets=[
                        pb.WriteMarkersRequest.Target(
                            topic_id=image.topics[partition.topic].topic_id,
                            topic=partition.topic,
                            partition=partition.partition,
                        )
                        for partition in partitions
                    ],
                )
                for ending, partitions in parts
            ]
        )
        stub: Any = txn_pb2_grpc.TransactionMarkersStub(await self._channels.channel(endpoint))
        with call_failures(endpoint):
            response = await stub.WriteMarkers(
                request, timeout=self._limits.request_timeout_ms / 1_000
            )
        answered = [[result.error_code for result in one.results] for one in response.markers]
        for index, part in enumerate(parts):
            codes = answered[index] if index < len(answered) else []
            self._judge(queue.broker_id, part, codes)

    def _judge(self, broker_id: BrokerId, part: _Part, codes: Sequence[int]) -> None:
        """Written, refused for ever, or to be tried again. An answer that is missing is none."""
        ending, partitions = part
        if ending.is_dropped:
            return
        known = [read_error_code(code) for code in codes]
        known += [ErrorCode.UNKNOWN_SERVER_ERROR] * (len(partitions) - len(known))
        if ErrorCode.TRANSACTION_COORDINATOR_FENCED in known:
            self._give_up(ending)
            return
        again: list[TopicPartition] = []
        for partition, code in zip(partitions, known, strict=False):
            if code not in (ErrorCode.NONE, _PASSED_BY):
                again.append(partition)
            if code is not ErrorCode.NONE:
                _report(broker_id, ending, partition, code)
        self._written(ending, set(partitions).difference(again))
        if again:
            self._park(_Part(ending, again))

    def _give_up(self, ending: _Ending) -> None:
        """Somebody else owns the shard."""
        words = fields(shard=ending.shard, owner_epoch=ending.owner_epoch)
        log.warning("fenced by a newer owner of the shard", extra=words)
        self.forget(ending.shard)
        self._listener.fenced(ending.shard, ending.owner_epoch)

    def _written(self, ending: _Ending, partitions: Iterable[TopicPartition]) -> None:
        ending.missing.difference_update(partitions)
        if not ending.missing:
            self._finish(ending)

    def _finish(self, ending: _Ending) -> None:
        effect = ending.effect
        ending.is_dropped = True
        self._endings.get(ending.shard, {}).pop(effect, None)
        self._observe_s((self._clock.now_ms() - ending.since) / 1_000)
        report = MarkersWritten(
            effect.transactional_id,
            effect.producer_id,
            effect.producer_epoch,
            effect.prepared_at,
            effect.partitions,
        )
        self._listener.markers_written(ending.shard, report)


def _report(
    broker_id: BrokerId, ending: _Ending, partition: TopicPartition, code: ErrorCode
) -> None:
    """What may pass is for those who look closely; what should not be is for everybody."""
    level = logging.DEBUG if code.retriable else logging.WARNING
    words = fields(
        broker_id=broker_id,
        partition=str(partition),
        transactional_id=ending.effect.transactional_id,
        producer_id=ending.effect.producer_id,
        producer_epoch=ending.effect.producer_epoch,
        error=code.name,
    )
    log.log(level, "marker not accepted", extra=words)
