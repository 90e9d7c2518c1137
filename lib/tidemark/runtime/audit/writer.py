"""AuditWriter: writes the entries of a trail to its sinks, one interval after the other.

Entries that a sink does not take are kept and tried again; meanwhile the trail fills up, within its
bound. A controller and a broker share this.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from tidemark_wire.v1 import common_pb2
from tidemark_wire.v1 import partition_store_pb2 as pb

from tidemark.codec.records import build_batch
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.metadata import ClusterImage
from tidemark.model.partition_leader import find_leader
from tidemark.model.topics import AUDIT_LOG, TopicPartition
from tidemark.protocol.audit import AuditTrail, Entry
from tidemark.protocol.audit_events import event_of
from tidemark.runtime.append_call import AppendCall
from tidemark.runtime.channel_pool import CallFailedError, ChannelPool
from tidemark.runtime.clock import Clock
from tidemark.runtime.service_config import version
from tidemark.runtime.telemetry import fields

log = logging.getLogger(__name__)
events_log = logging.getLogger("tidemark.audit")

CHUNK_ENTRIES: Final = 100
"""Entries of one batch: some milliseconds of the event loop, and less than max.message.bytes."""
APPEND_TIMEOUT_S: Final = 10.0
FINISH_S: Final = 2.0
"""Time for the last entries when the process stops."""
_ALL_IN_SYNC: Final = -1

Texts = Sequence[tuple[int, str]]
"""Time in wall ms and JSON of events."""


class AuditSink(Protocol):
    """Place of events."""

    async def write(self, events: Texts) -> None:
        """Write events. Raises TidemarkError."""


class LogSink:
    """The log of the process, logger ``tidemark.audit``."""

    async def write(self, events: Texts) -> None:
        """Write one line for each event."""
        for _, text in events:
            events_log.info("audit", extra=fields(event=text))


class TopicSink:
    """The topic __audit_log, through the leader of one of its partitions."""

    def __init__(
        self,
        image: Callable[[], ClusterImage | None],
        channels: ChannelPool,
        ensure: Callable[[], Awaitable[TidemarkError | None]] | None = None,
        *,
        number: int,
    ) -> None:
        """``ensure`` makes the topic if it does not exist; without it others make it. ``number`` of
        this process selects the partition.
        """
        self._image = image
        self._channels = channels
        self._ensure = ensure
        self._number = number

    async def write(self, events: Texts) -> None:
        """Append events as one batch, to all replicas in sync. Raises TidemarkError."""
        if self._ensure is not None and (problem := await self._ensure()) is not None:
            raise problem
        image = self._image()
        topic = None if image is None else image.topics.get(AUDIT_LOG)
        if image is None or topic is None:
            raise TidemarkError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {AUDIT_LOG} yet")
        at = TopicPartition(AUDIT_LOG, self._number % len(topic.partitions))
        leader = find_leader(image, at)
        if leader is None:
            raise TidemarkError(ErrorCode.LEADER_NOT_AVAILABLE, f"{at} has no leader")
        request = pb.AppendRequest(
            partition=common_pb2.TopicPartition(
                topic=at.topic, topic_id=leader.topic_id, partition=at.partition
            ),
            current_leader_epoch=leader.leader_epoch,
            acks=_ALL_IN_SYNC,
            timeout_ms=int(APPEND_TIMEOUT_S * 1_000),
            batches=build_batch([(at_ms, None, text.encode(), ()) for at_ms, text in events]),
        )
        await self._append(at, leader.grpc_endpoint, request)

    async def _append(self, at: TopicPartition, endpoint: str, request: pb.AppendRequest) -> None:
        call = AppendCall(await self._channels.channel(endpoint), endpoint)
        try:
            async with asyncio.timeout(APPEND_TIMEOUT_S):
                await call.wait_open()
                answer = await call.exchange(request)
        except (CallFailedError, TimeoutError) as failure:
            words = f"{at}: not appended: {failure or 'no answer in time'}"
            raise TidemarkError(ErrorCode.REQUEST_TIMED_OUT, words) from None
        finally:
            call.close()
        if answer.error_code:
            code = ErrorCode(answer.error_code)
            raise TidemarkError(code, f"{at}: {answer.error_message or code.name}")


class Origin(NamedTuple):
    """Process that writes entries, as ``broker-1``, and the lookup of its cluster."""

    node: str
    cluster_id: Callable[[], str]


class AuditWriter:
    """Writer of one process. ``run`` is its task, and ``finish`` writes what is left."""

    def __init__(
        self,
        trail: AuditTrail,
        sinks: Sequence[AuditSink],
        origin: Origin,
        clock: Clock,
        *,
        interval_ms: int,
    ) -> None:
        self._trail = trail
        self._sinks = sinks
        self._origin = origin
        self._clock = clock
        self._interval_s = interval_ms / 1_000
        self._version = version()
        self._pending: list[Entry] = []
        self._done: dict[AuditSink, int] = {}
        self._dropped_said = 0
        self.written = 0
        self.failures = 0

    async def run(self) -> None:
        """Write at each interval, until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.write()

    async def finish(self) -> None:
        """Write what is left, for a short time, and say how much is lost."""
        try:
            async with asyncio.timeout(FINISH_S):
                await self.write()
                await self.write()
        except TimeoutError:
            self.failures += 1
        if left := len(self._pending) + len(self._trail):
            log.error("audit events lost: the process ends", extra=fields(events=left))

    async def write(self) -> None:
        """Write what waits, to each sink that has not got it yet. A sink that fails gets it at the
        next interval.
        """
        self._note_dropped()
        if not self._pending:
            self._pending = self._trail.take()
            self._done = dict.fromkeys(self._sinks, 0)
        if not self._pending:
            return
        for sink in self._sinks:
            await self._write_to(sink)
        if min(self._done.values()) == len(self._pending):
            self.written += len(self._pending)
            self._pending = []

    async def _write_to(self, sink: AuditSink) -> None:
        try:
            while (begun := self._done[sink]) < len(self._pending):
                chunk = self._pending[begun : begun + CHUNK_ENTRIES]
                await sink.write([(one.last_ms, self._text(one)) for one in chunk])
                self._done[sink] = begun + len(chunk)
                await asyncio.sleep(0)
        except TidemarkError as failure:
            self.failures += 1
            waiting = len(self._pending) - self._done[sink]
            log.warning(
                "audit events not written yet",
                extra=fields(reason=failure.message, waiting=waiting, sink=type(sink).__name__),
            )

    def _text(self, entry: Entry) -> str:
        event = event_of(
            entry,
            cluster_id=self._origin.cluster_id(),
            node=self._origin.node,
            version=self._version,
        )
        return json.dumps(event, separators=(",", ":"))

    def _note_dropped(self) -> None:
        new = self._trail.dropped - self._dropped_said
        if new:
            self._dropped_said = self._trail.dropped
            log.error("audit events dropped: there was no room", extra=fields(events=new))

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        trail = self._trail
        for name, value, text in (
            ("noted", trail.noted, "decisions, logins and changes that are in an audit event"),
            ("dropped", trail.dropped, "decisions, logins and changes for which there was no room"),
            ("written", self.written, "audit events written to every sink"),
            ("write_failures", self.failures, "attempts to write audit events that failed"),
        ):
            yield CounterMetricFamily(f"tidemark_audit_{name}", text, value=value)
        waiting = len(self._pending) + len(trail)
        yield GaugeMetricFamily(
            "tidemark_audit_waiting", "audit events that are not written yet", value=waiting
        )
