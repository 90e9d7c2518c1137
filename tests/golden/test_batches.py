"""Record batches against other implementations: bytes kept from their encoders, and both directions
live.

``batches.json`` holds batches as kafka-python and aiokafka wrote them, with what is in them.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from tidemark.codec.compression import CODEC_NAMES, SNAPPY
from tidemark.codec.record_batch import crc_matches, read_header
from tidemark.codec.records import Record, build_batch, read_records

GOLDEN = json.loads((Path(__file__).parent / "batches.json").read_text())
# kafka-python takes python-snappy, which we do not need otherwise.
READERS = [(AiokafkaBatch, codec) for codec in CODEC_NAMES] + [
    (KafkaPythonBatch, codec) for codec in CODEC_NAMES if codec != SNAPPY
]
BUILDERS = [(AiokafkaBuilder, codec) for codec in CODEC_NAMES] + [
    (KafkaPythonBuilder, codec) for codec in CODEC_NAMES if codec != SNAPPY
]
INPUTS = [
    (1_700_000_000_000, b"k0", b"v0", ()),
    (1_700_000_000_007, None, b"x" * 9_000, (("trace", b"\xff\x00"), ("none", None))),
    (1_699_999_999_000, b"", None, ()),
]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _expected(entry: dict[str, Any]) -> list[Record]:
    return [
        Record(
            offset,
            timestamp,
            _bytes(key),
            _bytes(value),
            tuple((name, _bytes(content)) for name, content in headers),
        )
        for offset, (timestamp, key, value, headers) in enumerate(entry["records"])
    ]


@pytest.mark.parametrize("entry", GOLDEN, ids=lambda entry: str(entry["name"]))
def test_golden_batch_is_read(entry: dict[str, Any]) -> None:
    batch = memoryview(bytes.fromhex(entry["hex"]))
    header = read_header(batch)
    assert crc_matches(batch, header)
    assert header.size_bytes == len(batch)
    assert header.attributes == entry["attributes"]
    assert [header.producer_id, header.producer_epoch, header.base_sequence] == entry["producer"]
    assert header.last_offset_delta == len(entry["records"]) - 1
    assert header.max_timestamp == max(record[0] for record in entry["records"])
    assert read_records(batch, header) == _expected(entry)


@pytest.mark.parametrize(
    "entry",
    [entry for entry in GOLDEN if not entry["attributes"] & 7],
    ids=lambda entry: str(entry["name"]),
)
def test_golden_batch_is_written_byte_for_byte(entry: dict[str, Any]) -> None:
    """Without compression an encoder has no choice left."""
    golden = bytes.fromhex(entry["hex"])
    producer_id, producer_epoch, base_sequence = entry["producer"]
    ours = build_batch(
        [record[1:] for record in _expected(entry)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        leader_epoch=read_header(golden).partition_leader_epoch,
        attributes_extra=entry["attributes"],
    )
    assert ours == golden


@pytest.mark.parametrize(("reader", "codec"), READERS)
def test_others_read_what_we_write(reader: Any, codec: int) -> None:
    batch = build_batch(INPUTS, compression=codec, base_offset=40, producer_id=9, producer_epoch=1)
    theirs = reader(bytearray(batch))
    assert theirs.validate_crc()
    read = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert read == [(40 + index, *record) for index, record in enumerate(INPUTS)]


@pytest.mark.parametrize(("builder", "codec"), BUILDERS)
def test_we_read_what_others_write(builder: Any, codec: int) -> None:
    theirs = builder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=9,
        producer_epoch=1,
        base_sequence=5,
        batch_size=1 << 20,
    )
    for offset, (timestamp, key, value, headers) in enumerate(INPUTS):
        theirs.append(offset, timestamp=timestamp, key=key, value=value, headers=list(headers))
    batch = memoryview(bytes(theirs.build()))
    header = read_header(batch)
    assert crc_matches(batch, header)
    assert [tuple(r[1:]) for r in read_records(batch, header)] == INPUTS
