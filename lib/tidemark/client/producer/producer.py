"""Producer: records in batches to the leaders of partitions, with the place of each record."""

import asyncio
import random
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Any, ClassVar, Self

from tidemark.client.config import ProducerConfig, with_settings
from tidemark.client.deadline import Deadline
from tidemark.client.errors import (
    BufferFullError,
    ClientClosedError,
    ClientConfigError,
    ClientError,
    NotLeaderError,
    UnknownTopicOrPartitionError,
)
from tidemark.client.producer.accumulator import (
    RECORD_OVERHEAD_BYTES,
    Accumulator,
    Limits,
    Statistics,
    batch_room,
    record_bytes,
)
from tidemark.client.producer.batches import Delivery, EncodedRecords, Header, RecordMetadata
from tidemark.client.producer.partition_queue import PartitionQueue
from tidemark.client.producer.partitioner import Partitioner, StickyChoice, partition_for_key
from tidemark.client.producer.sender import Sender
from tidemark.client.spans import ClientSpans, ended
from tidemark.client.wire.metadata_cache import TopicView
from tidemark.client.wire.session import Session
from tidemark.codec.record_batch import Buffer
from tidemark.codec.varint import INT32_MAX
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock

_NO_HEADERS: tuple[Header, ...] = ()


class _Route:
    """Routing of one topic for the hot path; replaced when the metadata changes."""

    __slots__ = ("_partitioner", "count", "led", "queues", "sticky", "topic", "version")

    def __init__(
        self,
        view: TopicView,
        queues: list[PartitionQueue],
        sticky: StickyChoice,
        *,
        partitioner: Partitioner | None,
        version: int,
    ) -> None:
        self.topic = view.topic
        self.count = len(view.partitions)
        self.led = view.led or tuple(range(self.count))
        self.queues = queues
        self.sticky = sticky
        self.version = version
        self._partitioner = partitioner

    def choose(self, key: bytes | None, value: bytes | None, size_bytes: int) -> int:
        """Return the record's partition, by the user's function, the key or the sticky choice."""
        if self._partitioner is not None:
            return self._partitioner(self.topic, key, value, self.count)
        if key is not None:
            return partition_for_key(key, self.count)
        return self.sticky.choose(size_bytes, self.led)


class Producer:
    """Sender of records: ``async with Producer("host:9092") as producer: await
    producer.send("topic", b"value")``.

    ``settings`` are fields of ProducerConfig by name. ``partitioner`` replaces Kafka's rule for
    records without an explicit partition. A producer belongs to the event loop in which it was
    started.
    """

    _TRANSACTIONAL: ClassVar[bool] = False

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        config: ProducerConfig | None = None,
        *,
        partitioner: Partitioner | None = None,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        self.config = with_settings(config or ProducerConfig(), settings)
        if (self.config.transactional_id is not None) != self._TRANSACTIONAL:
            raise ClientConfigError(
                ErrorCode.INVALID_CONFIG,
                "transactional_id is for TransactionalProducer, which needs one",
            )
        self._clock = clock or Clock()
        self._session = Session(bootstrap_servers, self.config, self._clock)
        self._partitioner = partitioner
        self._routes: dict[str, _Route] = {}
        self._accumulator = Accumulator(
            Limits(
                batch_bytes=batch_room(self.config.batch_size),
                linger_ms=self.config.linger_ms,
                buffer_bytes_max=self.config.buffer_memory,
                record_bytes_max=self.config.max_request_size,
                delivery_timeout_ms=self.config.delivery_timeout_ms,
                idempotent=self.config.idempotent,
                transactional=self._TRANSACTIONAL,
            )
        )
        self._sender: Sender | None = None
        self._spans = ClientSpans(self.config.client_id) if self.config.tracing_enable else None

    async def start(self) -> Self:
        """Start the producer; ``async with`` does this.

        It connects when the first record is sent.
        """
        await self._session.start()
        self._sender = Sender(
            self._accumulator,
            self._session.cluster,
            self._session.transport,
            config=self.config,
            clock=self._clock,
        )
        self._session.spawn(self._sender.run(), name="producer-sender")
        return self

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            await self.close()
        else:
            await self.close(timeout_ms=0)

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = _NO_HEADERS,
    ) -> RecordMetadata:
        """Send one record and wait until it is acknowledged. Raises ClientError.

        For throughput, use ``enqueue`` or ``send_nowait`` and await the deliveries later.
        """
        delivery = await self.enqueue(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )
        return await delivery

    async def enqueue(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = _NO_HEADERS,
    ) -> Delivery:
        """Buffer one record and return its delivery; await the delivery for the record's place.

        Waits for metadata and memory for at most max_block_ms. Raises BufferFullError if there is
        still no room, UnknownTopicOrPartitionError.
        """
        deadline: Deadline | None = None
        while True:
            if self._route(topic) is None:
                deadline = deadline or Deadline.after(self.config.max_block_ms, self._now())
                await self._load(topic, deadline)
            try:
                return self.send_nowait(
                    topic,
                    value,
                    key,
                    partition=partition,
                    timestamp_ms=timestamp_ms,
                    headers=headers,
                )
            except BufferFullError:
                deadline = deadline or Deadline.after(self.config.max_block_ms, self._now())
                if deadline.passed(self._now()):
                    raise
            await self._wait_for_room(deadline)

    def send_nowait(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = _NO_HEADERS,
    ) -> Delivery:
        """Buffer one record without waiting, and return its delivery.

        Await ``partitions_for(topic)`` once per topic before. Raises BufferFullError. If no caller
        looks at the delivery of a failed record, ``flush`` or ``close`` raises the failure.
        """
        route = self._routes.get(topic)
        if route is None or route.version != self._session.cache.version:
            route = self._route(topic)
            if route is None:
                raise _not_ready(topic)
        span = None
        if self._spans is not None:
            span, headers = self._spans.send(topic, headers)
        if headers or type(value) is not bytes or not (key is None or type(key) is bytes):
            value, key, headers = _checked(value, key, headers)
            size_bytes = record_bytes(key, value, headers)
        else:
            size_bytes = RECORD_OVERHEAD_BYTES + len(value) + (0 if key is None else len(key))
        if partition is None:
            partition = route.choose(key, value, size_bytes)
        if not 0 <= partition < route.count:
            raise _no_such_partition(topic, partition, route.count)
        wall_ms = self._clock.wall_ms() if timestamp_ms is None else _checked_time(timestamp_ms)
        accumulator = self._accumulator
        queue = route.queues[partition]
        record = (wall_ms, key, value, headers)
        delivery = accumulator.append_open(queue, record, size_bytes)
        if delivery is None:
            delivery = accumulator.append(queue, record, size_bytes, self._now())
        if accumulator.wakes_sender:
            self._wake_sender()
        if span is not None:
            delivery.when_done(partial(ended, span, partition))
        return delivery

    async def send_encoded(
        self,
        partition: TopicPartition,
        records: Buffer,
        *,
        count: int,
        first_timestamp: int,
        max_timestamp: int,
    ) -> Delivery:
        """Buffer encoded records as one batch, in order with other records of the partition.

        ``records`` are uncompressed (compression_type is applied here), with timestamp deltas from
        ``first_timestamp`` (ms) and offset deltas 0 to ``count`` - 1. The buffer must stay
        unchanged until the delivery is done, which returns the place of the first record. Waits and
        raises as ``enqueue``; raises MessageTooLargeError above max_request_size.
        """
        if not 0 < count <= INT32_MAX:
            raise ValueError(f"count is {count}; a batch holds 1 to {INT32_MAX} records")
        encoded = EncodedRecords(
            partition,
            records.cast("B") if isinstance(records, memoryview) else records,
            count,
            _checked_time(first_timestamp),
            _checked_time(max_timestamp),
        )
        deadline = Deadline.after(self.config.max_block_ms, self._now())
        while True:
            if self._route(partition.topic) is None:
                await self._load(partition.topic, deadline)
            try:
                return self._take_encoded(encoded)
            except BufferFullError:
                if deadline.passed(self._now()):
                    raise
            await self._wait_for_room(deadline)

    async def partitions_for(self, topic: str) -> tuple[int, ...]:
        """Return the numbers of the topic's partitions. Raises UnknownTopicOrPartitionError."""
        await self._load(topic, Deadline.after(self.config.max_block_ms, self._now()))
        return tuple(range(len(self._session.cache.cluster.topics[topic].partitions)))

    async def flush(self, *, timeout_ms: int | None = None) -> None:
        """Send all buffered records without lingering, and wait until they are acknowledged or
        failed.

        Raises the failure of a record whose delivery no caller has looked at, and TimeoutError.
        """
        self._session.check_running()
        left = self._accumulator.begin_flush()
        self._wake_sender()
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1_000):
                for batch in left:
                    if not batch.resolved:
                        resolved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                        batch.waiters.append(resolved)
                        await resolved
        finally:
            self._accumulator.end_flush()
        self._raise_unobserved()

    async def close(self, *, timeout_ms: int | None = None) -> None:
        """Flush for at most ``timeout_ms`` (None: delivery_timeout_ms), then release all resources.

        Records not acknowledged by then fail with ClientClosedError. Raises as ``flush``.
        """
        if not self._session.is_running:
            return
        try:
            if timeout_ms != 0:
                await self.flush(timeout_ms=timeout_ms)
        except TimeoutError:
            pass
        finally:
            await self._session.close()
            self._accumulator.abandon(
                ClientClosedError(
                    ErrorCode.NETWORK_EXCEPTION,
                    "the producer closed before the acknowledgement",
                    hint="await flush() before close(), or allow close() more time",
                )
            )
        if timeout_ms != 0:
            self._raise_unobserved()

    def statistics(self) -> Statistics:
        """Return the buffered amounts, and counters of the records so far."""
        return self._accumulator.statistics()

    # -- internals

    def _now(self) -> int:
        return self._clock.now_ms()

    def _wake_sender(self) -> None:
        if self._sender is not None:
            self._sender.wake()

    def _route(self, topic: str) -> _Route | None:
        """Return the topic's route under the current metadata; None if metadata must be loaded."""
        self._session.check_running()
        cache = self._session.cache
        known = self._routes.get(topic)
        if known is not None and known.version == cache.version:
            return known
        view = cache.topic(topic)
        if view is None:
            return None
        queues = [
            self._accumulator.queue(TopicPartition(topic, number))
            for number in range(len(view.partitions))
        ]
        sticky = known.sticky if known else StickyChoice(self.config.batch_size, random.random)
        if known is not None and known.led != (view.led or known.led):
            sticky.forget()
        route = self._routes[topic] = _Route(
            view, queues, sticky, partitioner=self._partitioner, version=cache.version
        )
        return route

    def _check_sendable(self) -> None:
        """Raise if records would not count; overridden by producers in transactions."""

    def _take_encoded(self, encoded: EncodedRecords) -> Delivery:
        self._check_sendable()
        topic, number = encoded.partition
        route = self._route(topic)
        if route is None:
            raise _not_ready(topic)
        if not 0 <= number < route.count:
            raise _no_such_partition(topic, number, route.count)
        delivery = self._accumulator.append_encoded(route.queues[number], encoded, self._now())
        self._wake_sender()
        return delivery

    async def _load(self, topic: str, deadline: Deadline) -> None:
        self._session.check_running()
        await self._session.cluster.topic(
            topic, deadline, auto_create=self.config.allow_auto_create_topics
        )

    async def _wait_for_room(self, deadline: Deadline) -> None:
        """Wait until memory is released, or until the deadline."""
        assert self._sender is not None, "started"
        self._accumulator.short_of_memory()
        self._sender.wake()
        try:
            async with asyncio.timeout(deadline.left_ms(self._now()) / 1_000):
                await self._sender.wait_for_release()
        except TimeoutError:
            return

    def _raise_unobserved(self) -> None:
        failed = self._accumulator.take_unobserved_failures()
        if failed:
            for batch in failed:
                batch.observed = True
            first = failed[0].error
            assert first is not None, "failed without an error"
            raise first


def _as_bytes(data: object, what: str) -> bytes:
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"{what} must be bytes, not {type(data).__name__}: encode it first")


def _checked(
    value: object, key: object, headers: Sequence[Header]
) -> tuple[bytes | None, bytes | None, Sequence[Header]]:
    """Convert bytes-like values to bytes. Raises TypeError before a value can spoil a batch."""
    for name, _ in headers:
        if not isinstance(name, str):
            raise TypeError(f"a header's name must be str, not {type(name).__name__}")
    return (
        None if value is None else _as_bytes(value, "value"),
        None if key is None else _as_bytes(key, "key"),
        [
            (name, None if content is None else _as_bytes(content, f"header {name!r}"))
            for name, content in headers
        ],
    )


def _checked_time(timestamp_ms: int) -> int:
    if not isinstance(timestamp_ms, int) or not 0 <= timestamp_ms < 2**63:
        raise ValueError(
            f"timestamp_ms is {timestamp_ms!r}; it must be ms since 1970, not negative"
        )
    return timestamp_ms


def _no_such_partition(topic: str, partition: int, count: int) -> UnknownTopicOrPartitionError:
    return UnknownTopicOrPartitionError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}",
    )


def _not_ready(topic: str) -> ClientError:
    return NotLeaderError(
        ErrorCode.LEADER_NOT_AVAILABLE,
        f"send_nowait before the partitions of {topic!r} are known",
        hint=f"await producer.partitions_for({topic!r}) once, or use enqueue()",
    )
