"""A consumer's fetch session with one broker (KIP-227), one fetch at a time."""

from collections.abc import Callable
from typing import Final

from bench.transactions_wire import Link, frame_of
from tidemark.codec.record_batch import BatchHeader, iterate_headers
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    read_fetch_response,
    write_fetch_request,
)
from tidemark.model.errors import ErrorCode

FETCH_VERSION: Final = 12
WAIT_MS: Final = 500
PARTITION_BYTES_MAX: Final = 1 << 20
FETCH_BYTES_MAX: Final = 8 << 20

OnBatch = Callable[[memoryview, BatchHeader], None]
"""Called for each batch that comes, with its bytes."""


class FetchSession:
    """Fetches partitions of a topic again and again, from ``offsets`` on."""

    def __init__(
        self,
        link: Link,
        topic: str,
        offsets: dict[int, int],
        on_batch: OnBatch,
        *,
        committed: bool = False,
    ) -> None:
        self.fetches = 0
        self._link, self._topic, self._offsets = link, topic, offsets
        self._on_batch = on_batch
        self._committed = committed
        self._moved = set(offsets)
        self._session = (0, 0)

    def fetch(self) -> None:
        """Ask for what has moved since the last fetch; for all in the first."""
        wanted = [
            FetchPartition(one, -1, self._offsets[one], -1, -1, PARTITION_BYTES_MAX)
            for one in sorted(self._moved)
        ]
        self._moved.clear()
        request = FetchRequest(
            replica_id=-1,
            replica_epoch=-1,
            wait_ms_max=WAIT_MS,
            bytes_min=1,
            bytes_max=FETCH_BYTES_MAX,
            isolation_level=int(self._committed),
            session_id=self._session[0],
            session_epoch=self._session[1],
            topics=[FetchTopic(self._topic, bytes(16), wanted)] if wanted else [],
            forgotten=[],
            rack_id="",
            cluster_id=None,
        )
        frame = frame_of(ApiKey.FETCH, FETCH_VERSION, write_fetch_request(FETCH_VERSION, request))
        self._link.ask(ApiKey.FETCH, FETCH_VERSION, frame, self._on_answer)

    def _on_answer(self, body: memoryview) -> None:
        answer = read_fetch_response(body, FETCH_VERSION)
        if answer.error_code:
            raise ConnectionError(f"Fetch: {ErrorCode(answer.error_code).name}")
        if not answer.session_id:
            raise ConnectionError("the broker has no room for another fetch session")
        self._session = (answer.session_id, self._session[1] + 1)
        for topic in answer.topics:
            for result, records in topic.partitions:
                if result.error_code or result.aborted:
                    raise ConnectionError(f"{result.partition}: {result}")
                if records:
                    self._take(result.partition, records)
        self.fetches += 1
        self.fetch()

    def _take(self, partition: int, records: memoryview) -> None:
        self._moved.add(partition)
        for position, header in iterate_headers(records):
            self._offsets[partition] = header.last_offset + 1
            self._on_batch(records[position : position + header.size_bytes], header)
