"""The synchronous reader of offset ranges."""

from collections.abc import Iterator, Sequence
from typing import Any

from tidemark.client.consumer.range_reader import (
    OffsetRange,
    RangeReaderConfig,
    RawBatch,
    raw_batches,
)
from tidemark.client.consumer.range_reader import RangeReader as AsyncRangeReader
from tidemark.client.sync.loop import SyncClient
from tidemark.model.ids import NO_TOPIC_ID
from tidemark.model.topics import TopicPartition


class RangeReader(SyncClient[AsyncRangeReader]):
    """``tidemark.client.RangeReader`` without ``await``.

    Batches are checked and decompressed in the caller's thread while the client's thread fetches.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        config: RangeReaderConfig | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(
            lambda: AsyncRangeReader(bootstrap_servers, config, **settings),
            name="tidemark-range-reader",
        )

    def read(
        self,
        partition: TopicPartition,
        start: int,
        end: int,
        *,
        read_committed: bool,
        topic_id: bytes = NO_TOPIC_ID,
    ) -> Iterator[RawBatch]:
        """Yield the batches that hold offsets of [start, end), in order.

        As ``tidemark.client.RangeReader.read``.
        """
        asked = OffsetRange(TopicPartition(*partition), start, end, topic_id)
        cursor = self._thread.call_plain(self._target.open, asked, read_committed=read_committed)
        try:
            while (chunk := self._thread.call(cursor.next())) is not None:
                yield from raw_batches(asked, chunk)
        finally:
            self._thread.call_plain(cursor.close)
