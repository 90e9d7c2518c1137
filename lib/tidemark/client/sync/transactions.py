"""Transactions without ``await``: see ``tidemark.client.sync``."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from tidemark.client.config import ClientConfig, ProducerConfig
from tidemark.client.consumer.group_types import GroupMetadata, OffsetsInput
from tidemark.client.producer.batches import EncodedRecords, Header, RecordMetadata
from tidemark.client.producer.partitioner import Partitioner
from tidemark.client.producer.producer import Producer
from tidemark.client.sync.loop import LoopThread, SyncFace, send_all_encoded
from tidemark.client.transactions import multi_writer as handles
from tidemark.client.transactions import transactional_producer as async_producer

__all__ = ["TransactionHandle", "TransactionalProducer", "Transactions", "Writer"]


class TransactionalProducer(SyncFace[async_producer.TransactionalProducer]):
    """See ``tidemark.client.TransactionalProducer``."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        config: ProducerConfig | None = None,
        *,
        partitioner: Partitioner | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(
            lambda: async_producer.TransactionalProducer(
                bootstrap_servers, config, partitioner=partitioner, **settings
            ),
            name="tidemark-transactional-producer",
        )

    def init(self) -> None:
        """Take the transactional id over: whoever had it is fenced."""
        self._thread.call(self._client.init())

    def begin(self) -> None:
        """Open a transaction."""
        self._thread.call(self._client.begin())

    def commit(self) -> None:
        """Send all that was taken, then commit."""
        self._thread.call(self._client.commit())

    def abort(self) -> None:
        """Give the transaction up."""
        self._thread.call(self._client.abort())

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """``begin``, and at the end of the block ``commit``, or ``abort`` when it raised."""
        self.begin()
        try:
            yield self
        except BaseException:
            self._thread.call(self._client.abort_if_open())
            raise
        self._thread.call(self._client.commit_or_abort())

    def send_offsets(self, offsets: OffsetsInput, group: GroupMetadata) -> None:
        """Commit a consumer's offsets as part of the transaction."""
        self._thread.call(self._client.send_offsets(offsets, group))

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = (),
    ) -> RecordMetadata:
        """Send one record and wait until it is in the log; it is visible once committed."""
        return self._thread.call(
            self._client.send(
                topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
            )
        )

    def send_many(self, topic: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Take (key, value) pairs; ``commit`` waits for them."""
        self._thread.call(_enqueue_many(self._client, topic, records))


class Writer:
    """See ``tidemark.client.Writer``. Lives until its ``close``, or that of its Transactions."""

    def __init__(self, writer: handles.Writer, thread: LoopThread[Any]) -> None:
        self._writer = writer
        self._thread = thread

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close(timeout_ms=None if error[0] is None else 0)

    def close(self, *, timeout_ms: int | None = None) -> None:
        """Flush for at most ``timeout_ms`` and let go of everything. What was written counts if the
        receipt is part of the commit.
        """
        self._thread.call(self._writer.close(timeout_ms=timeout_ms))

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
    ) -> RecordMetadata:
        """Send one record and wait until it is in the log."""
        return self._thread.call(self._writer.send(topic, value, key, partition=partition))

    def send_many(self, topic: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Take (key, value) pairs; ``flush`` waits for them."""
        self._thread.call(_enqueue_many(self._writer, topic, records))

    def send_encoded_many(self, batches: Sequence[EncodedRecords]) -> None:
        """As ``Producer.send_encoded_many``."""
        self._thread.call(send_all_encoded(self._writer, batches))

    def partitions_for(self, topic: str) -> tuple[int, ...]:
        """Numbers of the topic's partitions."""
        return self._thread.call(self._writer.partitions_for(topic))

    def flush(self) -> None:
        """Wait until all records are in the log."""
        self._thread.call(self._writer.flush())

    def receipt(self) -> handles.WriterReceipt:
        """What ``finish`` needs to know of it."""
        return self._thread.call_plain(self._writer.receipt)


class TransactionHandle:
    """See ``tidemark.client.TransactionHandle``; ``str`` of it travels between processes."""

    def __init__(
        self, handle: handles.TransactionHandle, thread: LoopThread[handles.Transactions]
    ) -> None:
        self._handle = handle
        self._thread = thread

    def __str__(self) -> str:
        return str(self._handle)

    def enlist(self, writer: str, config: ProducerConfig | None = None, **settings: Any) -> Writer:
        """A started producer in this transaction."""
        return Writer(
            self._thread.call(_started(self._handle, writer, config, settings)), self._thread
        )

    def finish(self, *, commit: bool, writers: Iterable[Writer | handles.WriterReceipt]) -> bool:
        """End the transaction; True when it was committed, however often it is asked."""
        receipts = [each.receipt() if isinstance(each, Writer) else each for each in writers]
        return self._thread.call(self._handle.finish(commit=commit, writers=receipts))


class Transactions(SyncFace[handles.Transactions]):
    """See ``tidemark.client.Transactions``."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        config: ClientConfig | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(
            lambda: handles.Transactions(bootstrap_servers, config, **settings),
            name="tidemark-transactions",
        )

    def begin_transaction(
        self, transactional_id: str, *, timeout_ms: int = 60_000, abort_previous: bool = False
    ) -> TransactionHandle:
        """Open a transaction, which the coordinator aborts after ``timeout_ms``."""
        begun = self._thread.call(
            self._client.begin_transaction(
                transactional_id, timeout_ms=timeout_ms, abort_previous=abort_previous
            )
        )
        return TransactionHandle(begun, self._thread)

    def resume(self, token: str) -> TransactionHandle:
        """The transaction whose handle another process gave as text."""
        return TransactionHandle(self._thread.call_plain(self._client.resume, token), self._thread)


async def _started(
    handle: handles.TransactionHandle,
    writer: str,
    config: ProducerConfig | None,
    settings: dict[str, Any],
) -> handles.Writer:
    enlisted = await handle.enlist(writer, config, **settings)
    await enlisted.start()
    return enlisted


async def _enqueue_many(
    producer: Producer,
    topic: str,
    records: Iterable[tuple[bytes | None, bytes | None]],
) -> None:
    for key, value in records:
        await producer.enqueue(topic, value, key)
