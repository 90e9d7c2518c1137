"""State of share-partitions: Kafka's bytes, written out by hand from its schemas (4.3)."""

from dataclasses import replace
from typing import Any

import pytest
from tidemark.codec.coordinator_fields import DamagedRecordError, NewerRecordError
from tidemark.codec.share_records import (
    ShareSnapshotRecord,
    ShareSnapshotValue,
    ShareStateRecord,
    ShareUpdateRecord,
    ShareUpdateValue,
    decode,
    encode,
)
from tidemark.model.ids import LeaderEpoch, Offset, TopicId
from tidemark.model.share_state import (
    UNKNOWN_START,
    DeliveryState,
    SharePartitionKey,
    StateBatch,
    StateEpoch,
)

UUID = "000102030405060708090a0b0c0d0e0f"
KEY = SharePartitionKey("g", TopicId(bytes(range(16))), 3)
ACKNOWLEDGED = StateBatch(Offset(10), Offset(12), DeliveryState.ACKNOWLEDGED, 1)
ARCHIVING = StateBatch(Offset(13), Offset(13), DeliveryState.ARCHIVING, 5)
BATCHES_BYTES = (
    "03 000000000000000a 000000000000000c 02 0001 00 000000000000000d 000000000000000d 03 0005 00"
)

GOLDEN: list[tuple[ShareStateRecord, str, str]] = [
    (
        ShareSnapshotRecord(
            KEY,
            ShareSnapshotValue(
                snapshot_epoch=1,
                state_epoch=StateEpoch(2),
                leader_epoch=LeaderEpoch(3),
                start_offset=Offset(10),
                delivery_complete_count=3,
                create_timestamp=1_000,
                write_timestamp=2_000,
                batches=(ACKNOWLEDGED, ARCHIVING),
            ),
        ),
        f"0000 0001 67 {UUID} 00000003",
        "0000 00000001 00000002 00000003 000000000000000a 00000000000003e8 00000000000007d0"
        f" {BATCHES_BYTES} 01 00 04 00000003",
    ),
    (
        ShareSnapshotRecord(
            KEY,
            ShareSnapshotValue(
                snapshot_epoch=0,
                state_epoch=StateEpoch(0),
                leader_epoch=LeaderEpoch(0),
                start_offset=UNKNOWN_START,
                create_timestamp=1_000,
                write_timestamp=1_000,
            ),
        ),
        f"0000 0001 67 {UUID} 00000003",
        "0000 00000000 00000000 00000000 ffffffffffffffff 00000000000003e8 00000000000003e8 01 00",
    ),
    (
        ShareUpdateRecord(
            KEY,
            ShareUpdateValue(
                snapshot_epoch=1,
                leader_epoch=LeaderEpoch(3),
                start_offset=UNKNOWN_START,
                delivery_complete_count=4,
                batches=(ACKNOWLEDGED, ARCHIVING),
            ),
        ),
        f"0001 0001 67 {UUID} 00000003",
        f"0000 00000001 00000003 ffffffffffffffff {BATCHES_BYTES} 01 00 04 00000004",
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_records_are_written_in_kafkas_bytes(
    record: ShareStateRecord, key: str, value: str
) -> None:
    assert encode(record) == (bytes.fromhex(key), bytes.fromhex(value))


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_records_are_read(record: ShareStateRecord, key: str, value: str) -> None:
    assert decode(bytes.fromhex(key), bytes.fromhex(value)) == record


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_tombstones_have_only_a_key(record: ShareStateRecord, key: str, value: str) -> None:
    tombstone = decode(bytes.fromhex(key), None)
    assert tombstone is not None
    assert tombstone.value is None
    assert encode(tombstone) == (bytes.fromhex(key), None)


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_newer_versions_and_cuts_are_refused(
    record: ShareStateRecord, key: str, value: str
) -> None:
    whole = bytes.fromhex(value)
    with pytest.raises(NewerRecordError, match="version 1"):
        decode(bytes.fromhex(key), b"\0\1" + whole[2:])
    for end in range(len(whole) - 1):
        with pytest.raises(DamagedRecordError):
            decode(bytes.fromhex(key), whole[:end])


@pytest.mark.parametrize("state", ["01", "05", "ff"])
def test_an_acquired_record_is_never_in_the_log(state: str) -> None:
    key, value = GOLDEN[2][1], GOLDEN[2][2].replace("c 02 0001", f"c {state} 0001")
    with pytest.raises(DamagedRecordError, match="offsets 10 to 12 in delivery state"):
        decode(bytes.fromhex(key), bytes.fromhex(value))


@pytest.mark.parametrize("number", [0, 2])
def test_the_epoch_of_the_log_is_a_tag_that_kafka_leaves_out(number: int) -> None:
    record: Any = GOLDEN[number][0]
    plain = GOLDEN[number][2]
    ours = replace(record, value=replace(record.value, log_epoch=LeaderEpoch(7)))
    key, value = encode(ours)
    assert decode(key, value) == ours
    assert value is not None
    tagged = bytes.fromhex("e907 04 00000007")
    before = bytes.fromhex(plain)
    assert value == before[:-7] + b"\2" + before[-6:] + tagged
    with pytest.raises(DamagedRecordError, match="tag 1001 of 2 bytes"):
        decode(key, value[:-5] + bytes.fromhex("02 0007"))


def test_a_count_of_another_size_is_no_count() -> None:
    key, value = GOLDEN[2][1], GOLDEN[2][2].replace("00 04 00000004", "00 02 0004")
    with pytest.raises(DamagedRecordError, match="2 bytes"):
        decode(bytes.fromhex(key), bytes.fromhex(value))
