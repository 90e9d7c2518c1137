"""A bare Kafka connection for tests: one request, one answer, by version; and raw bytes where they
are wanted.
"""

import itertools
import socket
import struct
from types import TracebackType
from typing import Any

from tidemark.codec.record_batch import iterate_headers
from tidemark.codec.records import build_batch, read_records
from tidemark.kafka import fetch, list_offsets, metadata, produce
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.headers import read_response_header, request_header
from tidemark.model.errors import ErrorCode
from tidemark.runtime.clock import Clock
from waiting import PATIENCE_MS, PATIENCE_S, wait_for

NO_ID = bytes(16)


class Wire:
    """One connection. Every call waits for its own answer; ``send``/``receive`` pipeline."""

    def __init__(self, port: int, *, timeout_s: float = PATIENCE_S) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self._numbers = itertools.count(1)
        self._buffer = bytearray()

    def __enter__(self) -> "Wire":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, api_key: int, version: int, body: bytes) -> int:
        """Send one request; answers its correlation id."""
        number = next(self._numbers)
        frame = request_header(api_key, version, number, "wire") + body
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        return number

    def receive_frame(self) -> bytes:
        """One answer, without its length. Raises EOFError when the broker has closed the
        connection.
        """
        while len(self._buffer) < 4 or len(self._buffer) < 4 + self._size():
            chunk = self.socket.recv(1 << 20)
            if not chunk:
                raise EOFError("the broker closed the connection")
            self._buffer += chunk
        size = self._size()
        frame = bytes(self._buffer[4 : 4 + size])
        del self._buffer[: 4 + size]
        return frame

    def _size(self) -> int:
        return int(struct.unpack_from(">i", self._buffer)[0])

    def receive(self, api_key: int, version: int, number: int) -> memoryview:
        """The body of the answer to request ``number``."""
        frame = memoryview(self.receive_frame())
        correlation_id, position = read_response_header(frame, api_key, version)
        assert correlation_id == number, (correlation_id, number)
        return frame[position:]

    def ask(self, api_key: int, version: int, body: bytes) -> memoryview:
        """One request and the body of its answer."""
        return self.receive(api_key, version, self.send(api_key, version, body))

    def is_closed(self) -> bool:
        """Whether the broker closes this connection (or has)."""
        try:
            self.receive_frame()
        except (EOFError, ConnectionError):
            return True
        return False

    # -- the hot APIs

    def produce(
        self, topic: str, records: bytes | None, *, version: int = 9, **options: Any
    ) -> produce.ProducePartitionResult:
        """Produce to one partition."""
        body = self.ask(
            ApiKey.PRODUCE, version, produce_body(topic, records, version=version, **options)
        )
        return produce.read_produce_response(body, version).topics[0][2][0]

    def fetch(self, *wanted: tuple[str, int, int], version: int = 12, **options: Any) -> Any:
        """Fetch (topic, partition, offset)..."""
        body = self.ask(ApiKey.FETCH, version, fetch_body(*wanted, version=version, **options))
        return fetch.read_fetch_response(body, version)

    def offset(self, topic: str, partition: int, timestamp: int, *, version: int = 7) -> Any:
        """ListOffsets of one partition."""
        request = list_offsets.ListOffsetsRequest(
            -1,
            0,
            [
                list_offsets.ListOffsetsTopic(
                    topic, [list_offsets.ListOffsetsPartition(partition, timestamp)]
                )
            ],
        )
        body = self.ask(
            ApiKey.LIST_OFFSETS,
            version,
            list_offsets.write_list_offsets_request(version, request),
        )
        return list_offsets.read_list_offsets_response(body, version).topics[0][1][0]

    def metadata(
        self, *topics: str, version: int = 12, create: bool = False
    ) -> metadata.MetadataResponse:
        """Metadata of some topics, or of all."""
        asked = [metadata.MetadataQuery(name) for name in topics] if topics else None
        request = metadata.MetadataRequest(asked, allow_auto_topic_creation=create)
        body = self.ask(ApiKey.METADATA, version, metadata.write_metadata_request(version, request))
        return metadata.read_metadata_response(body, version)


def produce_body(
    topic: str,
    records: bytes | None,
    *,
    version: int = 9,
    partition: int = 0,
    acks: int = 1,
    timeout_ms: int = PATIENCE_MS,
    topic_id: bytes = NO_ID,
    transactional_id: str | None = None,
) -> bytes:
    """A Produce request for one partition."""
    view = None if records is None else memoryview(records)
    request = produce.ProduceRequest(
        transactional_id,
        acks,
        timeout_ms,
        [produce.ProduceTopic(topic, topic_id, [produce.ProducePartition(partition, view)])],
    )
    return produce.write_produce_request(version, request)


def fetch_body(
    *wanted: tuple[str, int, int],
    version: int = 12,
    wait_ms: int = 0,
    bytes_min: int = 1,
    bytes_max: int = 1 << 25,
    partition_bytes_max: int = 1 << 20,
    session: tuple[int, int] = (0, -1),
    forgotten: tuple[tuple[str, int], ...] = (),
    topic_id: bytes = NO_ID,
    leader_epoch: int = -1,
    isolation_level: int = 0,
) -> bytes:
    """A Fetch request."""
    topics = [
        fetch.FetchTopic(
            topic,
            topic_id,
            [fetch.FetchPartition(partition, leader_epoch, offset, -1, -1, partition_bytes_max)],
        )
        for topic, partition, offset in wanted
    ]
    request = fetch.FetchRequest(
        -1,
        -1,
        wait_ms,
        bytes_min,
        bytes_max,
        isolation_level,
        *session,
        topics,
        [(topic, topic_id, [partition]) for topic, partition in forgotten],
        "",
        None,
    )
    return fetch.write_fetch_request(version, request)


def batch(
    *values: bytes, timestamp: int | None = None, key: bytes | None = None, **fields: Any
) -> bytes:
    """A record batch of these values, written now unless ``timestamp`` (ms) says otherwise.

    A record older than ``retention.ms`` is deleted whenever the next pass comes: a test that wants
    old records switches retention off.
    """
    time_ms = Clock().wall_ms() if timestamp is None else timestamp
    return build_batch([(time_ms, key, value, ()) for value in values], **fields)


_NOT_YET = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE)


def end_of(wire: Wire, topic: str, partition: int = 0) -> int:
    """The partition's next offset, of its leader: a broker that has just started may not lead yet,
    and a leader that has just begun may not know it yet (KIP-207).
    """

    def known() -> Any:
        found = wire.offset(topic, partition, -1)
        return None if found.error_code in _NOT_YET else found

    found = wait_for(known, f"the end of {topic}-{partition} is known")
    assert found.error_code == ErrorCode.NONE, ErrorCode(found.error_code)
    return int(found.offset)


def records_of(response: fetch.FetchResponse) -> list[bytes | None]:
    """The values of all records of a fetch."""
    found = []
    for topic in response.topics:
        for one in topic.partitions:
            data = one.records or memoryview(b"")
            for position, header in iterate_headers(data):
                whole = data[position : position + header.size_bytes]
                found += [record.value for record in read_records(whole, header)]
    return found
