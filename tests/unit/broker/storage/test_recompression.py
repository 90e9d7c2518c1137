"""Recompression and checks of a producer's batch before it is stored."""

import pytest
from broker.storage.recompression import (
    RECORDS_NAMED_MAX,
    BatchRule,
    Refusal,
    apply_rule,
    rule_for,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.codec.compression import CODEC_NAMES, GZIP, LZ4, NONE, SNAPPY, ZSTD
from tidemark.codec.record_batch import BatchHeader, crc_matches, read_header
from tidemark.codec.records import (
    assemble_batch,
    build_batch,
    encode_record,
    read_records,
    records_payload,
)
from tidemark.model.errors import ErrorCode
from tidemark.model.topic_configs import topic_config

FIELDS = {"producer_id": 9, "producer_epoch": 2, "base_sequence": 40, "leader_epoch": 6}
RECORDS = [
    (1_000, b"a", b"value" * 50, (("trace", b"1"), ("none", None))),
    (900, None, None, ()),
    (1_005, b"", b"", ()),
]


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(list(CODEC_NAMES)), st.sampled_from([None, *CODEC_NAMES]))
def test_all_but_the_codec_stays(came: int, wanted: int | None) -> None:
    batch = build_batch(RECORDS, compression=came, attributes_extra=0x10, **FIELDS)
    stored = apply_rule(batch, BatchRule(wanted, None, keys_required=False))
    assert isinstance(stored, bytes)
    before, after = read_header(batch), read_header(stored)
    assert after.compression == (came if wanted is None else wanted)
    assert crc_matches(memoryview(stored), after)
    assert after.size_bytes == len(stored)
    changing = {"crc": 0, "attributes": 0, "batch_length": 0}
    assert after._replace(**changing) == before._replace(**changing)
    assert after.is_transactional
    assert read_records(stored, after) == read_records(batch, before)


def test_a_batch_that_is_right_already_is_the_same_bytes() -> None:
    batch = build_batch(RECORDS, compression=ZSTD, **FIELDS)
    assert apply_rule(batch, BatchRule(ZSTD, 3, keys_required=False)) is batch


def refusal(batch: bytes, *, keys_required: bool = False, bytes_max: int = 10**6) -> Refusal:
    outcome = apply_rule(batch, BatchRule(GZIP, None, keys_required), bytes_max=bytes_max)
    assert isinstance(outcome, Refusal)
    return outcome


def test_a_timestamp_beyond_64_bits_is_refused() -> None:
    batch = build_batch(RECORDS)
    header = read_header(batch)._replace(base_timestamp=2**63 - 1)
    payload = records_payload(batch, header)
    assert refusal(assemble_batch(header, payload)).error is ErrorCode.INVALID_TIMESTAMP


def test_a_timestamp_before_64_bits_is_refused() -> None:
    header = read_header(build_batch(RECORDS))._replace(
        base_timestamp=-(2**62), last_offset_delta=1, record_count=2
    )
    payload = encode_record(2**62, 0, b"a", b"") + encode_record(-(2**63), 1, b"b", b"")
    assert refusal(assemble_batch(header, payload)).error is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.feature("A19")
def test_a_compacted_topic_wants_keys() -> None:
    refused = refusal(build_batch(RECORDS), keys_required=True)
    assert refused.error is ErrorCode.INVALID_RECORD
    assert refused.message == "record 1 has no key, which a compacted topic needs"
    keyed = build_batch([RECORDS[0], RECORDS[2]])
    assert isinstance(apply_rule(keyed, BatchRule(None, None, keys_required=True)), bytes)


def mixed(keyless: list[int], count: int) -> bytes:
    """A batch whose records at these indexes have no key."""
    keys = [None if index in keyless else b"k" for index in range(count)]
    return bytes(build_batch([(0, key, b"v", ()) for key in keys]))


@given(st.sets(st.integers(0, 30), min_size=1))
def test_every_record_without_a_key_is_named(keyless: set[int]) -> None:
    refused = refusal(mixed(sorted(keyless), 31), keys_required=True)
    assert refused.records == tuple(sorted(keyless))
    assert refused.message.startswith(f"record {min(keyless)} has no key")


def test_no_more_records_are_named_than_are_allowed() -> None:
    count = RECORDS_NAMED_MAX + 5
    refused = refusal(mixed(list(range(count)), count), keys_required=True)
    assert refused.records == tuple(range(RECORDS_NAMED_MAX))
    assert refused.message.endswith(f"nor have {count - 1} others")


def test_bytes_that_are_no_batch_are_corrupt() -> None:
    batch = build_batch(RECORDS)
    flipped = batch[:-1] + bytes([batch[-1] ^ 1])
    for corrupt in (flipped, batch[:-1], batch + b"\x00", batch[:40], b""):
        assert refusal(corrupt).error is ErrorCode.CORRUPT_MESSAGE


def with_header(batch: bytes, **changes: int) -> bytes:
    header: BatchHeader = read_header(batch)._replace(**changes)
    return assemble_batch(header, records_payload(batch, header))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"record_count": 2}, "2 records do not span 3 offsets"),
        ({"record_count": 2, "last_offset_delta": 1}, "bytes left behind"),
        ({"record_count": 4, "last_offset_delta": 3}, "malformed record"),
        ({"last_offset_delta": 5}, "3 records do not span 6 offsets"),
        ({"record_count": 0, "last_offset_delta": -1}, "0 records do not span"),
    ],
)
def test_a_header_that_lies_is_an_invalid_record(changes: dict[str, int], words: str) -> None:
    refused = refusal(with_header(build_batch(RECORDS), **changes))
    assert refused.error is ErrorCode.INVALID_RECORD
    assert words in refused.message


def test_offset_deltas_count_from_zero() -> None:
    header = read_header(build_batch([(0, b"", b"", ())] * 2))
    payload = encode_record(0, 0, b"a", b"") + encode_record(0, 2, b"b", b"")
    refused = refusal(assemble_batch(header, payload))
    assert refused[:2] == (ErrorCode.INVALID_RECORD, "record 1 has offset delta 2")


def test_bytes_that_do_not_decompress_are_an_invalid_record() -> None:
    header = read_header(build_batch(RECORDS))
    for codec in (GZIP, SNAPPY, LZ4, ZSTD, 6):
        lying = assemble_batch(header, b"no such thing")
        lying = with_attributes(lying, codec)
        assert refusal(lying).error is ErrorCode.INVALID_RECORD


def with_attributes(batch: bytes, attributes: int) -> bytes:
    """Return the same bytes with another codec's number and a correct CRC."""
    from tidemark.codec.record_batch import CRC_POSITION, CRC_START, crc_of

    changed = bytearray(batch)
    changed[CRC_START : CRC_START + 2] = attributes.to_bytes(2)
    changed[CRC_POSITION:CRC_START] = crc_of(memoryview(changed)).to_bytes(4)
    return bytes(changed)


def test_a_bomb_is_an_invalid_record() -> None:
    bomb = build_batch([(0, b"k", bytes(10**6), ())], compression=ZSTD)
    assert refusal(bomb, bytes_max=10**5).error is ErrorCode.INVALID_RECORD


def test_a_wrong_highest_timestamp_is_set_right() -> None:
    batch = with_header(build_batch(RECORDS), max_timestamp=99_999)
    stored = apply_rule(batch, BatchRule(NONE, None, keys_required=False))
    assert isinstance(stored, bytes)
    assert read_header(stored).max_timestamp == 1_005


@pytest.mark.parametrize(
    ("overrides", "rule"),
    [
        ({}, None),
        ({"cleanup.policy": "compact"}, BatchRule(None, None, True)),
        ({"compression.type": "uncompressed"}, BatchRule(NONE, None, False)),
        ({"compression.type": "gzip"}, BatchRule(GZIP, None, False)),
        ({"compression.type": "gzip", "compression.gzip.level": "1"}, BatchRule(GZIP, 1, False)),
        ({"compression.type": "snappy"}, BatchRule(SNAPPY, None, False)),
        ({"compression.type": "lz4"}, BatchRule(LZ4, None, False)),
        ({"compression.type": "lz4", "compression.lz4.level": "12"}, BatchRule(LZ4, 12, False)),
        ({"compression.type": "zstd"}, BatchRule(ZSTD, 3, False)),
        ({"compression.type": "zstd", "cleanup.policy": "compact"}, BatchRule(ZSTD, 3, True)),
    ],
)
def test_the_rule_comes_from_the_topics_config(
    overrides: dict[str, str], rule: BatchRule | None
) -> None:
    wanted = rule and rule._replace(batch_bytes_max=5_000)
    assert rule_for(topic_config({**overrides, "max.message.bytes": "5000"})) == wanted


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4])
def test_a_batch_that_grows_beyond_the_topics_bound_is_refused_on_the_way(codec: int) -> None:
    batch = build_batch([(0, None, bytes(3_000_000), ())], compression=ZSTD)
    rule = BatchRule(codec, None, keys_required=False, batch_bytes_max=2_000)
    refused = apply_rule(batch, rule)
    assert isinstance(refused, Refusal)
    assert refused.error is ErrorCode.MESSAGE_TOO_LARGE
    assert "max.message.bytes (2000)" in refused.message


@pytest.mark.parametrize("came", [GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("wanted", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_a_large_batch_is_compressed_again_in_pieces(came: int, wanted: int) -> None:
    records = [(n, b"%d" % n, bytes(1_000), ()) for n in range(1_000)]
    batch = build_batch(records, compression=came)
    stored = apply_rule(batch, BatchRule(wanted, None, keys_required=True))
    assert isinstance(stored, bytes)
    header = read_header(stored)
    assert header.compression == wanted
    assert read_records(stored, header) == read_records(batch, read_header(batch))


def test_only_batches_that_have_to_go_through_the_worker() -> None:
    plain, packed = (read_header(build_batch(RECORDS, compression=codec)) for codec in (NONE, ZSTD))
    assert BatchRule(ZSTD, 3, False).concerns(plain)
    assert not BatchRule(ZSTD, 3, False).concerns(packed)
    assert BatchRule(ZSTD, 3, True).concerns(packed)
    assert not BatchRule(None, None, False).concerns(packed)
