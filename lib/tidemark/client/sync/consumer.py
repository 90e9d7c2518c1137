"""The synchronous consumer."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tidemark.client.config import ConsumerConfig
from tidemark.client.consumer.consumer import Consumer as AsyncConsumer
from tidemark.client.consumer.fetched_chunk import ConsumerRecord
from tidemark.client.consumer.group_types import RebalanceListener
from tidemark.client.sync.lending import LendingConsumer
from tidemark.client.sync.loop import SyncClient, blocking, immediate
from tidemark.model.topics import TopicPartition


class Consumer(SyncClient[LendingConsumer]):
    """``tidemark.client.Consumer`` without ``await``."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        config: ConsumerConfig | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(
            lambda: LendingConsumer(bootstrap_servers, config, **settings),
            name="tidemark-consumer",
        )
        self._thread.before_each = self._target.take_back

    assign = immediate(AsyncConsumer.assign)
    assign_topic = blocking(AsyncConsumer.assign_topic)
    assignment = immediate(AsyncConsumer.assignment)
    unsubscribe = blocking(AsyncConsumer.unsubscribe)

    def subscribe(
        self,
        topics: Iterable[str] = (),
        listener: RebalanceListener | None = None,
        *,
        pattern: str | None = None,
    ) -> None:
        """Subscribe to topics, whose partitions the group divides among its members.

        As ``tidemark.client.Consumer.subscribe``. The listener is called in a thread of its own
        while ``poll`` waits for it, so that it may call this consumer.
        """
        own = None if listener is None else _ListenerInThread(listener)
        names = topics if isinstance(topics, str) else list(topics)
        self._thread.call_plain(self._target.subscribe, names, own, pattern=pattern)

    commit = blocking(AsyncConsumer.commit)
    committed = blocking(AsyncConsumer.committed)
    group_metadata = immediate(AsyncConsumer.group_metadata)

    seek = immediate(AsyncConsumer.seek)
    seek_to_beginning = immediate(AsyncConsumer.seek_to_beginning)
    seek_to_end = immediate(AsyncConsumer.seek_to_end)
    seek_to_timestamp = immediate(AsyncConsumer.seek_to_timestamp)
    position = blocking(AsyncConsumer.position)
    rewind = immediate(AsyncConsumer.rewind)
    pause = immediate(AsyncConsumer.pause)
    resume = immediate(AsyncConsumer.resume)
    paused = immediate(AsyncConsumer.paused)

    poll = blocking(AsyncConsumer.poll)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Yield records without end. The position advances with each record."""
        while True:
            record = self._target.next_lent()
            if record is None:
                self._thread.call(self._target.lend())
                record = self._target.next_lent(polled=True)
            if record is not None:
                yield record

    beginning_offsets = blocking(AsyncConsumer.beginning_offsets)
    end_offsets = blocking(AsyncConsumer.end_offsets)
    offsets_for_times = blocking(AsyncConsumer.offsets_for_times)
    high_watermark = immediate(AsyncConsumer.high_watermark)


class _ListenerInThread:
    """Calls a listener outside the loop's thread: calls of the consumer wait for the loop."""

    def __init__(self, listener: RebalanceListener) -> None:
        self._listener = listener

    async def on_assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        await asyncio.to_thread(self._listener.on_assigned, partitions)

    async def on_revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        await asyncio.to_thread(self._listener.on_revoked, partitions)

    async def on_lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        await asyncio.to_thread(self._listener.on_lost, partitions)
