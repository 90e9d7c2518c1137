"""Sink batches without ``await``: see ``tidemark.client.sync``."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tidemark.client.config import ClientConfig, ProducerConfig
from tidemark.client.sync.loop import LoopThread, SyncFace
from tidemark.client.sync.transactions import Writer
from tidemark.client.transactions import sink_batches
from tidemark.client.transactions.multi_writer import WriterReceipt
from tidemark.client.transactions.sink_batches import (
    BatchId,
    BatchOutcome,
    GroupOffsets,
    SinkDescription,
)

__all__ = ["BatchWriter", "SinkBatches", "Writer"]


class BatchWriter(Writer):
    """See ``tidemark.client.transactions.sink_batches.BatchWriter``."""

    def __init__(
        self, writer: sink_batches.BatchWriter, thread: LoopThread[sink_batches.SinkBatches]
    ) -> None:
        super().__init__(writer, thread)
        self.retired_query_id = writer.retired_query_id
        """Until the query's first commit: whom it took the sink over from; '': nobody."""


class SinkBatches(SyncFace[sink_batches.SinkBatches]):
    """See ``tidemark.client.transactions.sink_batches.SinkBatches``."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        config: ClientConfig | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(
            lambda: sink_batches.SinkBatches(bootstrap_servers, config, **settings),
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
        """A started producer in the batch's transaction, which it keeps open.

        Raises BatchCommittedError, StaleBatchError, RetiredQueryError.
        """

        async def started() -> sink_batches.BatchWriter:
            enlisted = await self._client.enlist(
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
        """Commit what ``writers`` wrote, unless the batch is committed already. ``offsets_written``
        is called in the client's thread.
        """
        receipts = [each.receipt() if isinstance(each, Writer) else each for each in writers]
        return self._thread.call(
            self._client.commit(
                batch,
                receipts,
                note=note,
                group_offsets=group_offsets,
                offsets_written=offsets_written,
                timeout_ms=timeout_ms,
            )
        )

    def abort(self, batch: BatchId) -> BatchOutcome:
        """Give the batch up; one that is committed stays so."""
        return self._thread.call(self._client.abort(batch))

    def describe(self, sink_id: str, *, timeout_ms: int | None = None) -> SinkDescription:
        """What is known of a sink. Raises TransactionalIdNotFoundError."""
        return self._thread.call(self._client.describe(sink_id, timeout_ms=timeout_ms))

    def forget(self, sink_id: str, *, abort_open: bool = False) -> bool:
        """Lose all that is known of a sink; False when nothing was."""
        return self._thread.call(self._client.forget(sink_id, abort_open=abort_open))
