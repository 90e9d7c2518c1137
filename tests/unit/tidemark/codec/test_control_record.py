"""Markers that end a transaction: Kafka's layout, round trip, malformed ones."""

import pytest
from tidemark.codec.control_record import (
    EndTxnMarker,
    OwnerRecord,
    build_marker,
    build_owner,
    read_control,
)
from tidemark.codec.record_batch import CONTROL_BIT, read_header
from tidemark.codec.records import RecordsError, build_batch, read_records


@pytest.mark.parametrize("commits", [True, False])
def test_a_marker_comes_back(commits: bool) -> None:
    marker = EndTxnMarker(commits, 12)
    batch = build_marker(marker, producer_id=7, producer_epoch=2, timestamp=1_000)
    header = read_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, -1)
    assert read_control(batch, header) == marker


def test_a_change_of_owner_comes_back() -> None:
    batch = build_owner(OwnerRecord(9), timestamp=1_000)
    header = read_header(batch)
    assert (header.is_control, header.is_transactional, header.producer_id) == (True, False, -1)
    assert read_control(batch, header) == OwnerRecord(9)


def test_layout_is_kafkas() -> None:
    batch = build_marker(EndTxnMarker(True, 5), producer_id=7, producer_epoch=2, timestamp=0)
    (record,) = read_records(batch, read_header(batch))
    assert record.key == bytes.fromhex("00000001")
    assert record.value == bytes.fromhex("000000000005")


def test_other_control_records_are_not_markers() -> None:
    batch = build_batch([(0, b"\x00\x00\x00\x02", b"", ())], attributes_extra=CONTROL_BIT)
    assert read_control(batch, read_header(batch)) is None


@pytest.mark.parametrize(
    ("key", "value"), [(None, b""), (b"\x00", b""), (b"\x00\x00\x00\x01", b"\x00")]
)
def test_malformed_markers_are_refused(key: bytes | None, value: bytes) -> None:
    batch = build_batch([(0, key, value, ())], attributes_extra=CONTROL_BIT)
    with pytest.raises(RecordsError):
        read_control(batch, read_header(batch))
