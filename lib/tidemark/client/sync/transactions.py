"""Synchronous transactional producer and multi-writer transactions."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from tidemark.client.config import ClientConfig, ProducerConfig
from tidemark.client.producer.partitioner import Partitioner
from tidemark.client.sync.loop import (
    OnLoop,
    SyncClient,
    blocking,
    blocking_as,
    immediate,
    immediate_as,
)
from tidemark.client.sync.producer import SendsRecords, SyncDelivery, enqueue_many
from tidemark.client.transactions.multi_writer import TransactionHandle as AsyncHandle
from tidemark.client.transactions.multi_writer import Transactions as AsyncTransactions
from tidemark.client.transactions.multi_writer import Writer as AsyncWriter
from tidemark.client.transactions.multi_writer import WriterReceipt
from tidemark.client.transactions.transactional_producer import (
    TransactionalProducer as AsyncProducer,
)


class TransactionalProducer(SyncClient[AsyncProducer], SendsRecords[AsyncProducer]):
    """``tidemark.client.TransactionalProducer`` without ``await``."""

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
            name="tidemark-transactional-producer",
        )

    init = blocking(AsyncProducer.init)
    begin = blocking(AsyncProducer.begin)
    commit = blocking(AsyncProducer.commit)
    abort = blocking(AsyncProducer.abort)
    commit_or_abort = blocking(AsyncProducer.commit_or_abort)
    abort_if_open = blocking(AsyncProducer.abort_if_open)
    send_offsets = blocking(AsyncProducer.send_offsets)
    send = blocking(AsyncProducer.send)
    enqueue = blocking_as(SyncDelivery, AsyncProducer.enqueue)

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Begin a transaction; commit at the end of the block, or abort if the block raised."""
        self.begin()
        try:
            yield self
        except BaseException:
            self.abort_if_open()
            raise
        self.commit_or_abort()

    def send_many(self, topic: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Buffer (key, value) pairs; ``commit`` waits for them."""
        self._thread.call(enqueue_many(self._target, topic, records))


class Writer(SendsRecords[AsyncWriter]):
    """``tidemark.client.Writer`` without ``await``, started.

    Ends with ``close``, or with its client.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close(timeout_ms=None if error[0] is None else 0)

    close = blocking(AsyncWriter.close)
    receipt = immediate(AsyncWriter.receipt)
    send = blocking(AsyncWriter.send)
    enqueue = blocking_as(SyncDelivery, AsyncWriter.enqueue)

    def send_many(self, topic: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Buffer (key, value) pairs; ``flush`` waits for them."""
        self._thread.call(enqueue_many(self._target, topic, records))


class TransactionHandle(OnLoop[AsyncHandle]):
    """``tidemark.client.TransactionHandle`` without ``await``; processes exchange its ``str``."""

    def __str__(self) -> str:
        return str(self._target)

    def enlist(self, writer: str, config: ProducerConfig | None = None, **settings: Any) -> Writer:
        """Enlist a writer in the transaction and start it.

        As ``tidemark.client.TransactionHandle.enlist``.
        """

        async def started() -> AsyncWriter:
            return await (await self._target.enlist(writer, config, **settings)).start()

        return Writer(self._thread.call(started()), self._thread)

    def finish(self, *, commit: bool, writers: Iterable[Writer | WriterReceipt] = ()) -> bool:
        """End the transaction; return True if it was committed.

        As ``tidemark.client.TransactionHandle.finish``.
        """
        return self._thread.call(self._target.finish(commit=commit, writers=receipts(writers)))


class Transactions(SyncClient[AsyncTransactions]):
    """``tidemark.client.Transactions`` without ``await``."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        config: ClientConfig | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(
            lambda: AsyncTransactions(bootstrap_servers, config, **settings),
            name="tidemark-transactions",
        )

    begin_transaction = blocking_as(TransactionHandle, AsyncTransactions.begin_transaction)
    resume = immediate_as(TransactionHandle, AsyncTransactions.resume)


def receipts(writers: Iterable[Writer | WriterReceipt]) -> list[WriterReceipt]:
    """Return the receipts of these writers, in their order."""
    return [each.receipt() if isinstance(each, Writer) else each for each in writers]
