"""Records of KIP-848 groups: Kafka's bytes, written out by hand from its schemas."""

import pytest
from tidemark.codec.group_records import DamagedRecordError, NewerRecordError, decode, encode
from tidemark.codec.group_records_consumer import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataRecord,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataRecord,
    ConsumerGroupRegularExpressionRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
    ConsumerRecord,
    RegularExpressionValue,
    TopicMetadata,
)
from tidemark.model.assignment import TopicIdPartitions
from tidemark.model.ids import TopicId

UUID = "000102030405060708090a0b0c0d0e0f"
TOPIC_ID = TopicId(bytes(range(16)))
PARTITIONS = (TopicIdPartitions(TOPIC_ID, (0, 2)),)
TOPICS_BYTES = f"02 {UUID} 03 00000000 00000002 00"
ABOUT = ConsumerGroupMemberMetadataValue("i", None, "c", "/h", ("t",), None, 45_000, "uniform")
ABOUT_BYTES = "02 69 00 02 63 03 2f68 02 02 74 00 0000afc8 08 756e69666f726d"
CLASSIC = ClassicMemberMetadata(10_000, (ClassicProtocol("range", b"\1\2"),))

GOLDEN: list[tuple[ConsumerRecord, str, str]] = [
    (
        ConsumerGroupMetadataRecord("g", ConsumerGroupMetadataValue(7)),
        "0003 0001 67",
        "0000 00000007 00",
    ),
    (
        ConsumerGroupMetadataRecord("g", ConsumerGroupMetadataValue(7, 258)),
        "0003 0001 67",
        "0000 00000007 01 00 08 0000000000000102",
    ),
    (
        ConsumerGroupPartitionMetadataRecord("g", (TopicMetadata(TOPIC_ID, "t", 3),)),
        "0004 0001 67",
        f"0000 02 {UUID} 02 74 00000003 01 00 00",
    ),
    (
        ConsumerGroupMemberMetadataRecord("g", "m", ABOUT),
        "0005 0001 67 0001 6d",
        f"0000 {ABOUT_BYTES} 00",
    ),
    (
        ConsumerGroupMemberMetadataRecord(
            "g",
            "m",
            ConsumerGroupMemberMetadataValue(
                "i", None, "c", "/h", ("t",), None, 45_000, "uniform", CLASSIC
            ),
        ),
        "0005 0001 67 0001 6d",
        f"0000 {ABOUT_BYTES} 01 00 11 01 00002710 02 06 72616e6765 03 0102 00 00",
    ),
    (
        ConsumerGroupTargetAssignmentMetadataRecord("g", 9),
        "0006 0001 67",
        "0000 00000009 00",
    ),
    (
        ConsumerGroupTargetAssignmentMemberRecord("g", "m", PARTITIONS),
        "0007 0001 67 0001 6d",
        f"0000 {TOPICS_BYTES} 00",
    ),
    (
        ConsumerGroupCurrentMemberAssignmentRecord(
            "g", "m", ConsumerGroupCurrentMemberAssignmentValue(5, 4, 1, (), PARTITIONS)
        ),
        "0008 0001 67 0001 6d",
        f"0000 00000005 00000004 01 01 {TOPICS_BYTES} 00",
    ),
    (
        ConsumerGroupRegularExpressionRecord(
            "g", "t.*", RegularExpressionValue(("t", "tt"), 6, 1_000)
        ),
        "0010 0001 67 0003 742e2a",
        "0000 03 02 74 03 7474 0000000000000006 00000000000003e8 00",
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
@pytest.mark.feature("E13")
def test_records_are_written_in_kafkas_bytes(record: ConsumerRecord, key: str, value: str) -> None:
    assert encode(record) == (bytes.fromhex(key), bytes.fromhex(value))


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_records_are_read(record: ConsumerRecord, key: str, value: str) -> None:
    assert decode(bytes.fromhex(key), bytes.fromhex(value)) == record


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_tombstones_have_only_a_key(record: ConsumerRecord, key: str, value: str) -> None:
    tombstone = decode(bytes.fromhex(key), None)
    assert tombstone is not None
    assert tombstone.value is None
    assert encode(tombstone) == (bytes.fromhex(key), None)


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_newer_versions_and_cuts_are_refused(record: ConsumerRecord, key: str, value: str) -> None:
    whole = bytes.fromhex(value)
    with pytest.raises(NewerRecordError, match="version 1"):
        decode(bytes.fromhex(key), b"\0\1" + whole[2:])
    for end in range(len(whole) - 1):  # the last byte says that no tagged fields follow
        with pytest.raises(DamagedRecordError):
            decode(bytes.fromhex(key), whole[:end])


def test_racks_of_partitions_are_read_over() -> None:
    value = f"0000 02 {UUID} 02 74 00000003 02 00000000 02 02 72 00 00 00"
    record = decode(bytes.fromhex("0004 0001 67"), bytes.fromhex(value))
    assert record == ConsumerGroupPartitionMetadataRecord("g", (TopicMetadata(TOPIC_ID, "t", 3),))


def test_epochs_of_assigned_partitions_are_read_over() -> None:
    """Kafka's later releases tag partitions with the epoch of their assignment (KIP-1251)."""
    topics = f"02 {UUID} 02 00000000 01 00 05 02 00000003"
    value = f"0000 00000005 00000004 00 {topics} 01 00"
    record = decode(bytes.fromhex("0008 0001 67 0001 6d"), bytes.fromhex(value))
    assert isinstance(record, ConsumerGroupCurrentMemberAssignmentRecord)
    assert record.value is not None
    assert record.value.assigned_partitions == (TopicIdPartitions(TOPIC_ID, (0,)),)
