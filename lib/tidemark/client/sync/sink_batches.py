"""Synchronous sink batches."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tidemark.client.config import ClientConfig, ProducerConfig
from tidemark.client.sync.loop import LoopThread, SyncClient, blocking
from tidemark.client.sync.transactions import Writer, receipts
from tidemark.client.transactions.multi_writer import WriterReceipt
from tidemark.client.transactions.sink_batches import (
    BatchId,
    BatchOutcome,
    GroupOffsets,
)
from tidemark.client.transactions.sink_batches import BatchWriter as AsyncBatchWriter
from tidemark.client.transactions.sink_batches import SinkBatches as AsyncSinkBatches


class BatchWriter(Writer):
    """``tidemark.client.transactions.sink_batches.BatchWriter`` without ``await``, started."""

    def __init__(self, target: AsyncBatchWriter, thread: LoopThread[Any]) -> None:
        super().__init__(target, thread)
        self.retired_query_id = target.retired_query_id
        """Query from which this one took over the sink; '' if none, or after its first commit."""


class SinkBatches(SyncClient[AsyncSinkBatches]):
    """``tidemark.client.SinkBatches`` without ``await``."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        config: ClientConfig | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(
            lambda: AsyncSinkBatches(bootstrap_servers, config, **settings),
            name="tidemark-sink-batches",
        )

    def enlist(
        self,
        batch: BatchId,
        writer: str,
        config: ProducerConfig | None = None,
        *,
        timeout_ms: int = 60_000,
        **producer_settings: Any,
    ) -> BatchWriter:
        """Enlist a writer in the batch's transaction and start it; it keeps the batch open.

        As ``tidemark.client.SinkBatches.enlist``.
        """

        async def started() -> AsyncBatchWriter:
            enlisted = await self._target.enlist(
                batch, writer, config, timeout_ms=timeout_ms, **producer_settings
            )
            return await enlisted.start()

        return BatchWriter(self._thread.call(started()), self._thread)

    def commit(
        self,
        batch: BatchId,
        writers: Iterable[Writer | WriterReceipt] = (),
        *,
        note: str = "",
        group_offsets: GroupOffsets | None = None,
        offsets_written: Callable[[], None] | None = None,
        timeout_ms: int = 60_000,
    ) -> BatchOutcome:
        """Commit the records of ``writers``, unless the batch is already committed.

        As ``tidemark.client.SinkBatches.commit``; ``offsets_written`` is called in the client's
        thread.
        """
        return self._thread.call(
            self._target.commit(
                batch,
                receipts(writers),
                note=note,
                group_offsets=group_offsets,
                offsets_written=offsets_written,
                timeout_ms=timeout_ms,
            )
        )

    abort = blocking(AsyncSinkBatches.abort)
    describe = blocking(AsyncSinkBatches.describe)
    forget = blocking(AsyncSinkBatches.forget)
