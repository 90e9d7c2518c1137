"""The synchronous producer, and methods of all synchronous classes that send records."""

from collections.abc import Iterable, Sequence
from typing import Any

from tidemark.client.config import ProducerConfig
from tidemark.client.producer.batches import Delivery, EncodedRecords, RecordMetadata
from tidemark.client.producer.partitioner import Partitioner
from tidemark.client.producer.producer import Producer as AsyncProducer
from tidemark.client.sync.loop import (
    LoopThread,
    OnLoop,
    SyncClient,
    Target_co,
    blocking,
    blocking_as,
    immediate,
)


class SyncDelivery:
    """Outcome of one record, for callers in any thread."""

    __slots__ = ("_delivery", "_thread")

    def __init__(self, delivery: Delivery, thread: LoopThread[Any]) -> None:
        self._delivery = delivery
        self._thread = thread

    def done(self) -> bool:
        """True once the record was acknowledged or has failed."""
        return self._delivery.done()

    def result(self) -> RecordMetadata:
        """Wait for the acknowledgement and return the record's place. Raises its failure."""
        if self._delivery.done():
            return self._delivery.result()
        return self._thread.call(_awaited(self._delivery))


class SendsRecords(OnLoop[Target_co]):
    """Methods that producers and the writers of transactions share."""

    send_encoded = blocking_as(SyncDelivery, AsyncProducer.send_encoded)
    partitions_for = blocking(AsyncProducer.partitions_for)
    flush = blocking(AsyncProducer.flush)
    statistics = immediate(AsyncProducer.statistics)

    def send_encoded_many(self: OnLoop[AsyncProducer], batches: Sequence[EncodedRecords]) -> None:
        """Buffer several encoded batches in one hop, and return when there was room for all.

        ``flush`` waits for their acknowledgement and raises the first failure.
        """
        self._thread.call(_send_encoded_many(self._target, batches))


class Producer(SyncClient[AsyncProducer], SendsRecords[AsyncProducer]):
    """``tidemark.client.Producer`` without ``await``.

    ``with Producer("host:9092") as producer: producer.send("topic", b"value")``.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        config: ProducerConfig | None = None,
        *,
        partitioner: Partitioner | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(
            lambda: AsyncProducer(bootstrap_servers, config, partitioner=partitioner, **settings),
            name="tidemark-producer",
        )

    send = blocking(AsyncProducer.send)
    enqueue = blocking_as(SyncDelivery, AsyncProducer.enqueue)

    def send_many(
        self, topic: str, records: Iterable[tuple[bytes | None, bytes | None]]
    ) -> list[RecordMetadata]:
        """Send (key, value) pairs and wait until all are acknowledged; results in their order."""
        return self._thread.call(_send_many(self._target, topic, records))


async def enqueue_many(
    producer: AsyncProducer, topic: str, records: Iterable[tuple[bytes | None, bytes | None]]
) -> list[Delivery]:
    """Buffer (key, value) pairs and return their deliveries."""
    return [await producer.enqueue(topic, value, key) for key, value in records]


async def _send_many(
    producer: AsyncProducer, topic: str, records: Iterable[tuple[bytes | None, bytes | None]]
) -> list[RecordMetadata]:
    deliveries = await enqueue_many(producer, topic, records)
    return [await delivery for delivery in deliveries]


async def _send_encoded_many(producer: AsyncProducer, batches: Sequence[EncodedRecords]) -> None:
    for batch in batches:
        await producer.send_encoded(
            batch.partition,
            batch.records,
            count=batch.count,
            first_timestamp=batch.first_timestamp,
            max_timestamp=batch.max_timestamp,
        )


async def _awaited(delivery: Delivery) -> RecordMetadata:
    return await delivery
