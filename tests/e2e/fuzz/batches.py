"""Record batches as no honest producer sends them: one thing wrong in an otherwise good batch.

The CRC is made right again wherever the damage lies behind it, so that the broker cannot stop at
the CRC.
"""

import gzip
import random
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import zstandard
from tidemark.codec.record_batch import (
    CRC_POSITION,
    CRC_START,
    HEADER_BYTES,
    crc_of,
    read_header,
    write_header,
)
from tidemark.codec.records import build_batch, encode_record

GZIP: Final = 1
ZSTD: Final = 4
CODECS: Final = range(5)
BOMB_BYTES: Final = 64 * 1024 * 1024
_TIME: Final = 1_700_000_000_000
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_ODD_SIZES: Final = (0, 1, 48, 49, 60, _INT32_MAX, -1, -(2**31))
_ODD_TIMES: Final = (-1, -2, 0, 1, _INT64_MAX, -(2**63), 2**62)
_ODD_COUNTS: Final = (0, -1, 1, 2, 1_000_000, _INT32_MAX, -(2**31))


def sealed(batch: bytes) -> bytes:
    """The same bytes under a CRC that matches."""
    crc = struct.pack(">I", crc_of(memoryview(batch)))
    return batch[:CRC_POSITION] + crc + batch[CRC_START:]


def with_fields(batch: bytes, **fields: int) -> bytes:
    """A batch with other header fields, and the CRC that goes with them."""
    return sealed(write_header(read_header(batch)._replace(**fields)) + batch[HEADER_BYTES:])


def with_payload(batch: bytes, payload: bytes, **fields: int) -> bytes:
    """A batch whose records are these bytes; length and CRC match."""
    header = read_header(batch)._replace(batch_length=HEADER_BYTES - 12 + len(payload), **fields)
    return sealed(write_header(header) + payload)


@lru_cache
def bomb(codec: int) -> bytes:
    """A few kilobytes that unfold to `BOMB_BYTES` of one record."""
    record = encode_record(0, 0, b"k", bytes(BOMB_BYTES))
    packed = zstandard.compress(record) if codec == ZSTD else gzip.compress(record)
    return with_payload(
        build_batch([(_TIME, b"k", b"v", ())]), packed, attributes=codec, record_count=1
    )


class HostileBatches:
    """Draws batches; about one in three is good."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._good = [
            build_batch(
                [(_TIME + index, b"k%d" % index, b"v" * size, ()) for index in range(records)],
                compression=codec,
            )
            for codec in CODECS
            for records, size in ((1, 1), (3, 40), (20, 100))
        ]
        self._damages: tuple[Callable[[bytes], bytes], ...] = (
            self._wrong_crc,
            self._wrong_magic,
            self._wrong_length,
            self._wrong_count,
            self._wrong_attributes,
            self._wrong_times,
            self._wrong_producer,
            self._wrong_records,
            self._wrong_bytes,
            self._not_one,
        )

    def draw(self) -> bytes | None:
        """The records of one partition of a Produce request."""
        dice = self._dice
        die = dice.randrange(5_000)
        if die < 2:
            return bomb(dice.choice((GZIP, ZSTD)))
        if die < 60:
            return dice.choice((None, b"", b"\0", dice.randbytes(70)))
        good = dice.choice(self._good)
        return good if die < 1_700 else dice.choice(self._damages)(good)

    def _wrong_crc(self, batch: bytes) -> bytes:
        return batch[:CRC_POSITION] + self._dice.randbytes(4) + batch[CRC_START:]

    def _wrong_magic(self, batch: bytes) -> bytes:
        return with_fields(batch, magic=self._dice.choice((0, 1, 3, 127, 255)))

    def _wrong_length(self, batch: bytes) -> bytes:
        if self._dice.random() < 0.5:
            return batch[: self._dice.randrange(len(batch))]
        return with_fields(batch, batch_length=self._dice.choice(_ODD_SIZES))

    def _wrong_count(self, batch: bytes) -> bytes:
        count = self._dice.choice(_ODD_COUNTS)
        delta = self._dice.choice((count - 1, count - 1, 0, -1, _INT32_MAX))
        return with_fields(batch, record_count=count, last_offset_delta=max(-(2**31), delta))

    def _wrong_attributes(self, batch: bytes) -> bytes:
        bits = self._dice.choice((5, 6, 7, 0x08, 0x10, 0x20, 0x30, 0x40, 0x80, -1, 0x7FFF))
        return with_fields(batch, attributes=bits)

    def _wrong_times(self, batch: bytes) -> bytes:
        dice = self._dice
        return with_fields(
            batch, base_timestamp=dice.choice(_ODD_TIMES), max_timestamp=dice.choice(_ODD_TIMES)
        )

    def _wrong_producer(self, batch: bytes) -> bytes:
        dice = self._dice
        return with_fields(
            batch,
            producer_id=dice.choice((0, 1, 2, 3, -2, _INT64_MAX, -(2**63))),
            producer_epoch=dice.choice((0, 0, 1, 2, -1, 2**15 - 1, -(2**15))),
            base_sequence=dice.choice((0, 0, 1, 3, -1, _INT32_MAX, _INT32_MAX - 1)),
        )

    def _wrong_records(self, batch: bytes) -> bytes:
        """Garbage, or another codec than the header says, behind a CRC that matches."""
        dice = self._dice
        payload = bytearray(batch[HEADER_BYTES:])
        if dice.random() < 0.5:
            payload = bytearray(dice.randbytes(dice.randrange(100)))
        else:
            payload[dice.randrange(len(payload))] ^= 1 << dice.randrange(8)
        return with_payload(batch, bytes(payload), attributes=dice.choice(CODECS))

    def _wrong_bytes(self, batch: bytes) -> bytes:
        spoilt = bytearray(batch)
        for _ in range(self._dice.randrange(1, 4)):
            spoilt[self._dice.randrange(len(spoilt))] ^= 1 << self._dice.randrange(8)
        return bytes(spoilt)

    def _not_one(self, batch: bytes) -> bytes:
        return self._dice.choice((batch * 2, batch + b"\0", batch + batch[:30], b"\0" + batch))
