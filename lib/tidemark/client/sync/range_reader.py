"""RangeReader without ``await``: see ``tidemark.client.sync``."""

from collections.abc import Iterator, Sequence
from typing import Any

from tidemark.client.consumer import range_reader as async_reader
from tidemark.client.consumer.range_reader import (
    OffsetRange,
    RangeReaderConfig,
    RawBatch,
    raw_batches,
)
from tidemark.client.sync.loop import SyncFace
from tidemark.model.ids import NO_TOPIC_ID
from tidemark.model.topics import TopicPartition

__all__ = ["RangeReader"]


class RangeReader(SyncFace[async_reader.RangeReader]):
    """See ``tidemark.client.range_reader.RangeReader``. Checksums and compression are worked on in
    the caller's thread, while the next fetch is under way in the client's.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        config: RangeReaderConfig | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(
            lambda: async_reader.RangeReader(bootstrap_servers, config, **settings),
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
        """The batches that hold offsets of [start, end), in order."""
        asked = OffsetRange(TopicPartition(*partition), start, end, topic_id)
        cursor = self._thread.call_plain(self._client.open, asked, read_committed=read_committed)
        try:
            while (chunk := self._thread.call(cursor.next())) is not None:
                yield from raw_batches(asked, chunk)
        finally:
            self._thread.call_plain(cursor.close)
