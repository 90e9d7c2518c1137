"""TracedRouter: a RequestRouter that finds the traces of produced records before they are handled.

It looks into batches, which the hot path never does, and is used only with ``tracing.enable``.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from tidemark.codec.record_batch import HEADER_BYTES, read_header
from tidemark.codec.records import RecordsError, read_records
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.headers import MalformedRequestError, read_request_header
from tidemark.kafka.produce import ProduceRequest, read_produce_request
from tidemark.model.ids import TopicId
from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.counters import BrokerCounters
from broker.shell.listener.connection import Connection
from broker.shell.listener.request_router import Handler, HotHandler, RequestRouter
from broker.shell.request_spans import SpannedTimes, Traced
from broker.shell.throttling import Throttling

BATCH_BYTES_MAX: Final = 64 * 1024
"""Size up to which a batch is looked into, before and after decompression: it is done on the event
loop.
"""
LINKS_MAX: Final = 32
_TRACEPARENT: Final = "traceparent"
_PRODUCE: Final = int(ApiKey.PRODUCE)


class TracedRouter(RequestRouter):
    """Router that notes the traces of Produce requests."""

    def __init__(
        self,
        counters: BrokerCounters,
        hot: Mapping[ApiKey, HotHandler],
        long_tail: Mapping[ApiKey, Handler],
        quotas: Throttling,
        *,
        spans: SpannedTimes,
        metadata: MetadataCache,
    ) -> None:
        super().__init__(counters, hot, long_tail, quotas)
        self._metadata = metadata
        self._spans = spans

    def handle(self, connection: Connection, frame: memoryview) -> None:
        """Note the traces, then pass the frame to its handler."""
        if int.from_bytes(frame[:2], "big") == _PRODUCE:
            self._note(connection, frame)
        super().handle(connection, frame)

    def _note(self, connection: Connection, frame: memoryview) -> None:
        try:
            header = read_request_header(frame)
            request = read_produce_request(frame[header.body_position :], header.api_version)
        except (MalformedRequestError, KeyError):
            return  # the handler closes the connection, or refuses the version
        by_id = self._metadata.image.topics_by_id
        topics = [
            topic or by_id[TopicId(topic_id)].name
            for topic, topic_id, _ in request.topics
            if topic or topic_id in by_id
        ]
        self._spans.expect(
            connection.peer, header.correlation_id, Traced(topics, traceparents(request))
        )


def traceparents(request: ProduceRequest) -> list[str]:
    """Return the traceparent headers of the records, each once, at most LINKS_MAX."""
    found: dict[str, None] = {}
    for batch in _small_batches(request):
        try:
            records = read_records(batch, read_header(batch), bytes_max=BATCH_BYTES_MAX)
        except RecordsError:
            continue  # the handler refuses it, or it is too large when it is decompressed
        for record in records:
            for name, value in record.headers:
                if name == _TRACEPARENT and value is not None and len(found) < LINKS_MAX:
                    found[value.decode("ascii", "replace")] = None
    return list(found)


def _small_batches(request: ProduceRequest) -> Iterator[memoryview]:
    for _, _, partitions in request.topics:
        for _, batch in partitions:
            if batch is not None and HEADER_BYTES <= len(batch) <= BATCH_BYTES_MAX:
                yield batch
