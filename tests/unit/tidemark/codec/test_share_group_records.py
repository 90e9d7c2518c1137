"""Records of share groups: Kafka's bytes, written out by hand from its schemas (4.3)."""

import pytest
from tidemark.codec.coordinator_fields import DamagedRecordError, NewerRecordError
from tidemark.codec.share_group_records import (
    NamedTopic,
    NamedTopicPartitions,
    ShareGroupCurrentMemberAssignmentRecord,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataRecord,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataRecord,
    ShareGroupMetadataValue,
    ShareGroupRecord,
    ShareGroupStatePartitionMetadataRecord,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberRecord,
    ShareGroupTargetAssignmentMetadataRecord,
    ShareGroupTargetAssignmentMetadataValue,
)
from tidemark.codec.share_records import decode, encode
from tidemark.model.assignment import TopicIdPartitions
from tidemark.model.ids import TopicId

UUID = "000102030405060708090a0b0c0d0e0f"
TOPIC_ID = TopicId(bytes(range(16)))
PARTITIONS = (TopicIdPartitions(TOPIC_ID, (0, 2)),)
TOPICS_BYTES = f"02 {UUID} 03 00000000 00000002 00"
NAMED = NamedTopicPartitions(TOPIC_ID, "t", (0, 2))
NAMED_BYTES = f"02 {UUID} 02 74 03 00000000 00000002 00"

GOLDEN: list[tuple[ShareGroupRecord, str, str]] = [
    (
        ShareGroupMemberMetadataRecord(
            "g", "m", ShareGroupMemberMetadataValue(None, "c", "/h", ("t", "uu"))
        ),
        "000a 0001 67 0001 6d",
        "0000 00 02 63 03 2f68 03 02 74 03 7575 00",
    ),
    (
        ShareGroupMemberMetadataRecord("g", "m", ShareGroupMemberMetadataValue("r1", "", "", ())),
        "000a 0001 67 0001 6d",
        "0000 03 7231 01 01 01 00",
    ),
    (
        ShareGroupMetadataRecord("g", ShareGroupMetadataValue(7, 258)),
        "000b 0001 67",
        "0000 00000007 0000000000000102 00",
    ),
    (
        ShareGroupTargetAssignmentMetadataRecord("g", ShareGroupTargetAssignmentMetadataValue(9)),
        "000c 0001 67",
        "0000 00000009 00",
    ),
    (
        ShareGroupTargetAssignmentMetadataRecord(
            "g", ShareGroupTargetAssignmentMetadataValue(9, 1_000)
        ),
        "000c 0001 67",
        "0000 00000009 01 00 08 00000000000003e8",
    ),
    (
        ShareGroupTargetAssignmentMemberRecord("g", "m", PARTITIONS),
        "000d 0001 67 0001 6d",
        f"0000 {TOPICS_BYTES} 00",
    ),
    (
        ShareGroupCurrentMemberAssignmentRecord(
            "g", "m", ShareGroupCurrentMemberAssignmentValue(5, 4, 0, PARTITIONS)
        ),
        "000e 0001 67 0001 6d",
        f"0000 00000005 00000004 00 {TOPICS_BYTES} 00",
    ),
    (
        ShareGroupStatePartitionMetadataRecord(
            "g",
            ShareGroupStatePartitionMetadataValue(
                (NAMED,), (NAMED,), (NamedTopic(TOPIC_ID, "dd"),)
            ),
        ),
        "000f 0001 67",
        f"0000 {NAMED_BYTES} {NAMED_BYTES} 02 {UUID} 03 6464 00 00",
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_records_are_written_in_kafkas_bytes(
    record: ShareGroupRecord, key: str, value: str
) -> None:
    assert encode(record) == (bytes.fromhex(key), bytes.fromhex(value))


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_records_are_read(record: ShareGroupRecord, key: str, value: str) -> None:
    assert decode(bytes.fromhex(key), bytes.fromhex(value)) == record


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_tombstones_have_only_a_key(record: ShareGroupRecord, key: str, value: str) -> None:
    tombstone = decode(bytes.fromhex(key), None)
    assert tombstone is not None
    assert tombstone.value is None
    assert encode(tombstone) == (bytes.fromhex(key), None)


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_newer_versions_and_cuts_are_refused(
    record: ShareGroupRecord, key: str, value: str
) -> None:
    whole = bytes.fromhex(value)
    with pytest.raises(NewerRecordError, match="version 1"):
        decode(bytes.fromhex(key), b"\0\1" + whole[2:])
    for end in range(len(whole) - 1):  # the last byte may say that no tagged fields follow
        with pytest.raises(DamagedRecordError):
            decode(bytes.fromhex(key), whole[:end])


def test_kinds_of_other_releases() -> None:
    assert decode(bytes.fromhex("0009 0001 67"), None) is None
    with pytest.raises(NewerRecordError, match="type 16"):
        decode(bytes.fromhex("0010 0001 67"), None)


def test_a_time_of_another_size_is_no_time() -> None:
    with pytest.raises(DamagedRecordError, match="4 bytes"):
        decode(bytes.fromhex("000c 0001 67"), bytes.fromhex("0000 00000009 01 00 04 00000001"))
