"""Request frames for the load: built once by the codec, then patched in place for each request."""

import struct
from typing import Final

from crc32c import crc32c
from tidemark.codec.record_batch import CRC_POSITION, CRC_START
from tidemark.codec.records import build_batch
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.fetch import FetchPartition, FetchRequest, FetchTopic, write_fetch_request
from tidemark.kafka.headers import request_header
from tidemark.kafka.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    write_produce_request,
)
from tidemark.runtime.clock import Clock

PRODUCE_VERSION: Final = 9
FETCH_VERSION: Final = 12
CORRELATION_POSITION: Final = 8  # in a frame with its length: 4 length, 2 key, 2 version
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_UINT32: Final = struct.Struct(">I")
RECORD_BYTES: Final = 1024


def batch_of(size_bytes: int, *, producer_id: int = -1, keyed: bool = False) -> bytes:
    """One batch of exactly ``size_bytes``, with records of about 1 KiB; ``keyed``: a key each."""
    epoch, sequence = (-1, -1) if producer_id < 0 else (0, 0)
    count = max(1, size_bytes // RECORD_BYTES)

    def build(last_value_bytes: int) -> bytes:
        values = [bytes([index % 251]) * (RECORD_BYTES - 24) for index in range(count - 1)]
        values.append(b"x" * last_value_bytes)
        return build_batch(
            [
                (now_ms, b"%06d" % number if keyed else None, value, ())
                for number, value in enumerate(values)
            ],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )

    now_ms = Clock().wall_ms()
    last = 64
    for _ in range(4):
        last += size_bytes - len(build(last))
    batch = build(last)
    assert len(batch) == size_bytes, (len(batch), size_bytes)
    return batch


class ProduceFrame:
    """A whole produce request; ``stamp`` makes it the next one."""

    def __init__(self, topic: str, partition: int, batch: bytes, *, acks: int = 1) -> None:
        request = ProduceRequest(
            None,
            acks,
            30_000,
            [ProduceTopic(topic, bytes(16), [ProducePartition(partition, memoryview(batch))])],
        )
        body = write_produce_request(PRODUCE_VERSION, request)
        frame = request_header(ApiKey.PRODUCE, PRODUCE_VERSION, 0, "bench") + body
        self.buffer = bytearray(_INT32.pack(len(frame)) + frame)
        self.batch_at = self.buffer.index(batch)
        self.batch_bytes = len(batch)
        self.records = _INT32.unpack_from(batch, 57)[0]
        self.is_idempotent = _INT64.unpack_from(batch, 43)[0] >= 0
        self.covered = memoryview(self.buffer)[
            self.batch_at + CRC_START : self.batch_at + len(batch)
        ]
        self.sequence = 0

    def stamp(self, correlation_id: int) -> None:
        """Correlation id and, for an idempotent producer, the next sequence and its CRC."""
        _INT32.pack_into(self.buffer, CORRELATION_POSITION, correlation_id)
        if self.is_idempotent:
            _INT32.pack_into(self.buffer, self.batch_at + 53, self.sequence)
            _UINT32.pack_into(self.buffer, self.batch_at + CRC_POSITION, crc32c(self.covered))
            self.sequence += self.records


class FetchFrame:
    """A whole sessionless fetch request of one partition; ``stamp`` moves its offset."""

    _SENTINEL: Final = 0x0102030405060708

    def __init__(self, topic: str, partition: int, bytes_max: int, *, wait_ms_max: int = 0) -> None:
        request = FetchRequest(
            replica_id=-1,
            replica_epoch=-1,
            wait_ms_max=wait_ms_max,
            bytes_min=1,
            bytes_max=bytes_max,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic,
                    bytes(16),
                    [FetchPartition(partition, -1, self._SENTINEL, -1, -1, bytes_max)],
                )
            ],
            forgotten=[],
            rack_id="",
            cluster_id=None,
        )
        body = write_fetch_request(FETCH_VERSION, request)
        frame = request_header(ApiKey.FETCH, FETCH_VERSION, 0, "bench") + body
        self.buffer = bytearray(_INT32.pack(len(frame)) + frame)
        self.offset_at = self.buffer.index(_INT64.pack(self._SENTINEL))

    def stamp(self, correlation_id: int, offset: int) -> None:
        """The next request."""
        _INT32.pack_into(self.buffer, CORRELATION_POSITION, correlation_id)
        _INT64.pack_into(self.buffer, self.offset_at, offset)
