"""Sender of batches to leaders: one loop that decides, one task for each request in flight."""

import asyncio
import random
from collections import defaultdict
from typing import Final

from tidemark.client.config import ProducerConfig
from tidemark.client.errors import ClientError
from tidemark.client.producer.accumulator import Accumulator
from tidemark.client.producer.batches import PendingBatch
from tidemark.client.producer.partition_queue import PartitionQueue, Refusal
from tidemark.client.wire.cluster import Cluster
from tidemark.client.wire.metadata_cache import Leader
from tidemark.client.wire.transport import ProduceItem, ProduceOutcome, ProducerIdentity, Transport
from tidemark.model.backoff import Backoff
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock

_LEADER_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_ENDING: Final = Backoff(2, 20)
"""Delay while the markers of the previous transaction are written, which takes milliseconds."""
_NO_LEADER: Final = "the partition has no leader, or too many requests to it are unanswered"


class Sender:
    """Sender of due batches. It also requests producer ids and metadata, and wakes callers that
    wait for memory.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        cluster: Cluster,
        transport: Transport,
        *,
        config: ProducerConfig,
        clock: Clock,
    ) -> None:
        self._accumulator = accumulator
        self._cluster = cluster
        self._transport = transport
        self._config = config
        self._clock = clock
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._requests: dict[int, int] = defaultdict(int)
        self._identity: ProducerIdentity | None = None
        self._asking_identity = False
        self._asking_leaders = False
        self._refused_by: dict[TopicPartition, Leader] = {}
        """Leaders that were not reached, or no longer lead, of partitions with batches to retry."""
        self._turn = 0
        self.requests_sent = 0
        """Number of requests since the start, answered or not."""

    def wake(self) -> None:
        """Look for work again."""
        self._wake.set()

    async def wait_for_release(self) -> None:
        """Wait until a batch is resolved and its memory released."""
        self._room.clear()
        await self._room.wait()

    async def wait_until_answered(self) -> None:
        """Wait until no batch is in flight; each request is answered or times out."""
        while self._accumulator.has_in_flight:
            await self.wait_for_release()

    async def run(self) -> None:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._wake.clear()
                self._accumulator.wakes_sender = False
                now = self._clock.now_ms()
                problem = self._cluster.problem
                if self._accumulator.expire(now, problem.message if problem else _NO_LEADER):
                    self._room.set()
                self._ask_identity(tasks)
                self._follow_leaders(tasks)
                if not self._send_ready(tasks, now):
                    await self._sleep(now)

    def _follow_leaders(self, tasks: asyncio.TaskGroup) -> None:
        """Retry at once what a leader refused, when another one leads; request metadata until then.
        The delay between attempts spares a leader that may answer later, not its successor.
        """
        for partition, refused_by in list(self._refused_by.items()):
            leader = self._cluster.cache.leader(partition)
            if not self._accumulator.has_retries(partition):
                del self._refused_by[partition]
            elif leader is None or leader == refused_by:
                self._ask_leaders(tasks)
            else:
                del self._refused_by[partition]
                self._accumulator.resume(partition)

    async def _sleep(self, now: int) -> None:
        """Wait until woken, or until the next time at which something is due."""
        due = self._accumulator.next_due(now)
        self._accumulator.timer_set = due is not None
        if due is None:
            await self._wake.wait()
            return
        try:
            async with asyncio.timeout(max(0.0, due - now) / 1_000):
                await self._wake.wait()
        except TimeoutError:
            return

    def _send_ready(self, tasks: asyncio.TaskGroup, now: int) -> bool:
        """Start one request for each leader that may get one; return True if any was started."""
        by_broker: dict[int, list[tuple[PartitionQueue, Leader]]] = defaultdict(list)
        queues = self._accumulator.ready(now)
        if queues:
            self._turn = (self._turn + 1) % len(queues)
        for queue in queues[self._turn :] + queues[: self._turn]:
            leader = self._cluster.cache.leader(queue.partition)
            if leader is None:
                self._ask_leaders(tasks)
            elif queue.may_go_to(leader.broker_id) and self._has_slot(leader.broker_id):
                by_broker[leader.broker_id].append((queue, leader))
        if queues and self._cluster.cache.is_stale(now):
            self._ask_leaders(tasks)
        for broker_id, group in by_broker.items():
            batches = self._take(group, now)
            self._requests[broker_id] += 1
            self.requests_sent += 1
            tasks.create_task(self._produce(broker_id, batches), name=f"produce-{broker_id}")
        return bool(by_broker)

    def _has_slot(self, broker_id: int) -> bool:
        return self._requests[broker_id] < self._config.max_in_flight_requests_per_connection

    def _take(
        self, group: list[tuple[PartitionQueue, Leader]], now: int
    ) -> list[tuple[PendingBatch, Leader]]:
        """Take one batch of each partition, at least one in all, up to max_request_size."""
        taken: list[tuple[PendingBatch, Leader]] = []
        size = 0
        for queue, leader in group:
            size += queue.peek().size_bytes
            if taken and size > self._config.max_request_size:
                break
            taken.append((queue.take(now, leader.broker_id), leader))
        return taken

    async def _produce(self, broker_id: int, batches: list[tuple[PendingBatch, Leader]]) -> None:
        config = self._config
        items = [
            ProduceItem(
                batch.partition,
                leader.topic_id,
                leader.leader_epoch,
                batch.encode(config.compression_code, config.compression_level),
            )
            for batch, leader in batches
        ]
        try:
            outcomes = await self._transport.produce(
                broker_id,
                items,
                acks=config.required_acks,
                timeout_ms=config.request_timeout_ms,
                transactional_id=config.transactional_id,
            )
        except ClientError as problem:
            outcomes = [ProduceOutcome(problem.code, message=problem.message)] * len(items)
        finally:
            self._requests[broker_id] -= 1
            self._wake.set()
        where = self._transport.where(broker_id)
        for (batch, leader), outcome in zip(batches, outcomes, strict=True):
            if ErrorCode(outcome.error_code) in _LEADER_MOVED:
                self._cluster.cache.mark_stale()
                self._refused_by[batch.partition] = leader
            self._on_outcome(batch, outcome, where)
        self._room.set()

    def _on_outcome(self, batch: PendingBatch, outcome: ProduceOutcome, where: str) -> None:
        if outcome.error_code == ErrorCode.NONE:
            self._accumulator.on_acknowledged(
                batch, outcome.base_offset, outcome.log_append_time_ms
            )
            return
        refusal = Refusal(outcome.error_code, outcome.message, where)
        failures, dice = batch.failures + 1, random.random()
        delay_ms = self._backoff.delay_ms(failures, dice)
        if outcome.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            delay_ms = min(delay_ms, _ENDING.delay_ms(failures, dice))
        self._accumulator.on_refused(batch, refusal, self._clock.now_ms() + delay_ms)

    def _ask_identity(self, tasks: asyncio.TaskGroup) -> None:
        """Request a producer id for the queues without one; one request at a time."""
        if not self._config.idempotent or self._config.transactional_id is not None:
            return  # the coordinator gives a transaction its identity
        if self._identity is not None:
            self._accumulator.adopt(self._identity)
        if self._accumulator.wanting_identity() and not self._asking_identity:
            self._asking_identity = True
            tasks.create_task(self._init_producer_id(), name="init-producer-id")

    async def _init_producer_id(self) -> None:
        failures = 0
        try:
            while True:
                try:
                    self._identity = await self._transport.init_producer_id()
                    return
                except ClientError as problem:
                    self._cluster.problem = problem
                    if not problem.retriable:
                        self._accumulator.abandon_without_identity(problem)
                        self._room.set()
                        return
                    failures += 1
                await asyncio.sleep(self._backoff.delay_ms(failures, random.random()) / 1_000)
        finally:
            self._asking_identity = False
            self._wake.set()

    def _ask_leaders(self, tasks: asyncio.TaskGroup) -> None:
        if not self._asking_leaders:
            self._asking_leaders = True
            tasks.create_task(self._refresh(), name="refresh-metadata")

    async def _refresh(self) -> None:
        """Refresh the metadata once.

        ``Cluster.problem`` holds a failure, which is retried on demand.
        """
        try:
            await self._cluster.refresh(seen_version=self._cluster.cache.version)
        except ClientError as problem:
            self._cluster.problem = problem
        finally:
            self._asking_leaders = False
            self._wake.set()
