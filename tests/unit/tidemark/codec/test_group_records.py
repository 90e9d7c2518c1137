"""Records of __consumer_offsets: Kafka's bytes, written out by hand from its schemas."""

from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.old import types
from tidemark.codec.group_records import (
    DamagedRecordError,
    GroupMetadataRecord,
    GroupMetadataValue,
    MemberMetadata,
    NewerRecordError,
    OffsetCommitRecord,
    OffsetCommitValue,
    ShareGroupMetadataRecord,
    ShareGroupMetadataValue,
    decode,
    encode,
)
from tidemark.model.ids import TopicId

TOPIC_ID = TopicId(bytes(range(16)))
OFFSET_KEY = bytes.fromhex("00010001 670001 7400000003")
GROUP_KEY = bytes.fromhex("00020001 67")
GROUP_V3 = bytes.fromhex(
    "0003"  # version
    "0008 636f6e73756d6572"  # protocol type: consumer
    "00000005"  # generation
    "0005 72616e6765"  # protocol: range
    "0001 61"  # leader: a
    "00000000000003e8"  # current state timestamp: 1000
    "00000002"  # members
    "0001 61 0001 69 0001 63 0002 2f68"  # a, instance i, client c, host /h
    "0000ea60 00002710"  # rebalance 60000, session 10000
    "00000002 0102 00000001 03"  # subscription, assignment
    "0001 62 ffff 0001 63 0002 2f68"  # b, no instance
    "0000ea60 00002710"
    "00000000 00000000"
)
GROUP = GroupMetadataValue(
    "consumer",
    5,
    "range",
    "a",
    1_000,
    (
        MemberMetadata("a", "i", "c", "/h", 60_000, 10_000, b"\1\2", b"\3"),
        MemberMetadata("b", None, "c", "/h", 60_000, 10_000, b"", b""),
    ),
)


def offset(value: OffsetCommitValue | None) -> OffsetCommitRecord:
    return OffsetCommitRecord("g", "t", 3, value)


OFFSETS = {
    # value version 0: no leader epoch, no expiry
    "0000 000000000000002a 0001 6d 00000000000003e8": OffsetCommitValue(42, -1, "m", 1_000),
    # value version 1: with a time of expiry
    "0001 000000000000002a 0001 6d 00000000000003e8 00000000000007d0": OffsetCommitValue(
        42, -1, "m", 1_000, 2_000
    ),
    # value version 2: neither
    "0002 000000000000002a 0001 6d 00000000000003e8": OffsetCommitValue(42, -1, "m", 1_000),
    # value version 3: with the leader epoch
    "0003 000000000000002a 00000007 0001 6d 00000000000003e8": OffsetCommitValue(42, 7, "m", 1_000),
    # value version 4: compact, tagged fields; tag 0 is the topic id
    "0004 000000000000002a 00000007 02 6d 00000000000003e8 01 00 10"
    "000102030405060708090a0b0c0d0e0f": OffsetCommitValue(42, 7, "m", 1_000, -1, TOPIC_ID),
    "0004 000000000000002a 00000007 02 6d 00000000000003e8 00": OffsetCommitValue(
        42, 7, "m", 1_000
    ),
}
WRITTEN = [text for text in OFFSETS if text[:4] in ("0001", "0003") or text.endswith("0e0f")]


@pytest.mark.parametrize("text", OFFSETS)
@pytest.mark.feature("E04")
def test_positions_of_every_version_are_read(text: str) -> None:
    assert decode(OFFSET_KEY, bytes.fromhex(text)) == offset(OFFSETS[text])


@pytest.mark.parametrize("text", WRITTEN)
@pytest.mark.feature("E04", "D05")
def test_positions_are_written_in_kafkas_bytes(text: str) -> None:
    assert encode(offset(OFFSETS[text])) == (OFFSET_KEY, bytes.fromhex(text))


@pytest.mark.feature("E13")
def test_the_key_of_a_position_begins_with_its_group() -> None:
    key, value = encode(offset(None))
    assert key == OFFSET_KEY
    assert value is None
    assert decode(key, value) == offset(None)


def test_the_oldest_key_of_a_position_is_read() -> None:
    assert decode(b"\0\0" + OFFSET_KEY[2:], None) == offset(None)


@pytest.mark.feature("E13")
def test_a_group_is_written_in_kafkas_bytes() -> None:
    record = GroupMetadataRecord("g", GROUP)
    assert encode(record) == (GROUP_KEY, GROUP_V3)
    assert decode(GROUP_KEY, GROUP_V3) == record
    assert encode(GroupMetadataRecord("g", None)) == (GROUP_KEY, None)


def test_another_library_reads_a_group_the_same_way() -> None:
    text = types.String("utf-8")
    members = types.Array(
        ("member_id", text),
        ("group_instance_id", text),
        ("client_id", text),
        ("client_host", text),
        ("rebalance_timeout_ms", types.Int32),
        ("session_timeout_ms", types.Int32),
        ("subscription", types.Bytes),
        ("assignment", types.Bytes),
    )
    schema = types.Schema(
        ("version", types.Int16),
        ("protocol_type", text),
        ("generation", types.Int32),
        ("protocol", text),
        ("leader", text),
        ("current_state_timestamp", types.Int64),
        ("members", members),
    )
    read = schema.decode(BytesIO(GROUP_V3))
    *head, rows = read
    assert head == [3, "consumer", 5, "range", "a", 1_000]
    assert tuple(MemberMetadata(*row) for row in rows) == GROUP.members


def test_an_empty_group_has_nulls() -> None:
    empty = GroupMetadataValue("consumer", 6, None, None, 1_000)
    _, value = encode(GroupMetadataRecord("g", empty))
    golden = "0003 0008 636f6e73756d6572 00000006 ffff ffff 00000000000003e8 00000000"
    assert value == bytes.fromhex(golden)
    assert decode(GROUP_KEY, value) == GroupMetadataRecord("g", empty)


@pytest.mark.parametrize(
    ("text", "timeout_ms"),
    [
        # version 0: no time of the last change, no rebalance timeouts
        ("0000 0001 74 00000001 0001 70 0001 61 00000001 0001 61 0001 63 0001 68 {}", 10_000),
        # version 1: rebalance timeouts
        ("0001 0001 74 00000001 0001 70 0001 61 00000001 0001 61 0001 63 0001 68 {60}", 60_000),
    ],
)
def test_old_groups_are_read(text: str, timeout_ms: int) -> None:
    tail = "00002710 00000000 00000000"
    both = text.replace("{60}", f"0000ea60 {tail}").replace("{}", tail)
    member = MemberMetadata("a", None, "c", "h", timeout_ms, 10_000, b"", b"")
    value = GroupMetadataValue("t", 1, "p", "a", -1, (member,))
    assert decode(GROUP_KEY, bytes.fromhex(both)) == GroupMetadataRecord("g", value)


def test_the_flexible_version_of_a_group_is_read() -> None:
    golden = (
        "0004 02 74 00000001 02 70 02 61 00000000000003e8 02"
        "02 61 00 02 63 02 68 0000ea60 00002710 02 01 01 00 00"
    )
    member = MemberMetadata("a", None, "c", "h", 60_000, 10_000, b"\1", b"")
    value = GroupMetadataValue("t", 1, "p", "a", 1_000, (member,))
    assert decode(GROUP_KEY, bytes.fromhex(golden)) == GroupMetadataRecord("g", value)


@pytest.mark.parametrize("key", [OFFSET_KEY, GROUP_KEY])
def test_a_newer_version_is_refused_by_name(key: bytes) -> None:
    with pytest.raises(NewerRecordError, match="version 5"):
        decode(key, b"\0\5" + bytes(100))


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(NewerRecordError, match="type 99"):
        decode(b"\0\x63\0\1g", None)


@pytest.mark.parametrize("key_type", [9, 15, 17, 24])
def test_types_that_are_kafkas_alone_are_ignored(key_type: int) -> None:
    assert decode(key_type.to_bytes(2, "big") + b"\0\1g", b"\0\0") is None


@pytest.mark.parametrize("key", [OFFSET_KEY, GROUP_KEY])
def test_every_cut_is_damage(key: bytes) -> None:
    value = GROUP_V3 if key == GROUP_KEY else bytes.fromhex(WRITTEN[0])
    for end in range(len(value)):
        with pytest.raises(DamagedRecordError):
            decode(key, value[:end])


TEXT = st.text(max_size=8)
VALUES = st.builds(
    OffsetCommitValue,
    st.integers(0, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    TEXT,
    st.integers(0, 2**63 - 1),
    st.just(-1),
    st.binary(min_size=16, max_size=16).map(TopicId),
)
MEMBERS = st.builds(
    MemberMetadata,
    TEXT,
    st.none() | TEXT,
    TEXT,
    TEXT,
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.binary(max_size=9),
    st.binary(max_size=9),
)
GROUPS = st.builds(
    GroupMetadataValue,
    TEXT,
    st.integers(0, 2**31 - 1),
    st.none() | TEXT,
    st.none() | TEXT,
    st.integers(-1, 2**63 - 1),
    st.lists(MEMBERS, max_size=3).map(tuple),
)
RECORDS = st.builds(
    OffsetCommitRecord, TEXT, TEXT, st.integers(0, 2**31 - 1), st.none() | VALUES
) | st.builds(GroupMetadataRecord, TEXT, st.none() | GROUPS)


@settings(max_examples=25, deadline=None)
@given(RECORDS)
def test_records_come_back(record: OffsetCommitRecord | GroupMetadataRecord) -> None:
    assert decode(*encode(record)) == record


def test_the_id_of_a_share_group_is_written_in_kafkas_bytes() -> None:
    record = ShareGroupMetadataRecord("g", ShareGroupMetadataValue(epoch=3))
    key, value = encode(record)
    assert key == bytes.fromhex("000b 0001 67")
    assert value == bytes.fromhex("0000 00000003 0000000000000000 00")
    assert decode(key, value) == record
    assert decode(key, None) == ShareGroupMetadataRecord("g", None)
