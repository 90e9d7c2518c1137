"""Producer snapshots: read back as written, refused when damaged; the latest usable one counts."""

import struct

import pytest
from broker.core.producers import (
    ProducedBatch,
    ProducerEntry,
    ProducerState,
    ProducerTable,
)
from broker.storage.checkpoint import CheckpointError, NewerVersionError
from broker.storage.producer_snapshot import (
    KEPT,
    ProducerSnapshots,
    decode_snapshot,
    encode_snapshot,
)
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from tidemark.storage.mem_disk import MemDisk

INT32 = st.integers(0, 2**31 - 1)
INT64 = st.integers(-1, 2**63 - 1)
BATCHES = st.lists(st.builds(ProducedBatch, INT32, INT32, INT64, INT64, INT64), max_size=5)
ENTRIES = st.lists(
    st.builds(
        ProducerEntry, INT64, st.integers(0, 2**15 - 1), INT32, INT64, INT64, BATCHES.map(tuple)
    ),
    max_size=4,
)
ENTRY = ProducerEntry(7, 1, -1, -1, 5, (ProducedBatch(0, 4, 10, 14, 99),))


STATES = st.builds(
    ProducerState,
    ENTRIES.map(tuple),
    st.integers(-1, 2**31 - 1),
    st.lists(st.tuples(INT64, INT64), max_size=3).map(tuple),
)


@given(STATES)
def test_a_state_is_read_back(state: ProducerState) -> None:
    assert decode_snapshot("s", encode_snapshot(state)) == state


@pytest.mark.feature("L02")
def test_open_and_unreplicated_transactions_survive() -> None:
    table, restored = table_of(ENTRY._replace(current_txn_first_offset=10)), ProducerTable()
    restored.restore(decode_snapshot("s", encode_snapshot(table.state())))
    assert restored.txns.last_stable(50) == 10


def test_a_snapshot_of_version_1_has_no_transactions() -> None:
    body = encode_snapshot(ProducerState((ENTRY,)))[6:-8]
    content = struct.pack(">hI", 1, crc32c(body)) + body
    assert decode_snapshot("s", content) == ProducerState((ENTRY,))


@given(st.integers(0, 10**6))
def test_any_flipped_bit_is_noticed(place: int) -> None:
    content = bytearray(encode_snapshot(ProducerState((ENTRY,))))
    content[place // 8 % len(content)] ^= 1 << place % 8
    with pytest.raises((CheckpointError, NewerVersionError)):
        decode_snapshot("s", bytes(content))


def table_of(entry: ProducerEntry) -> ProducerTable:
    table = ProducerTable()
    table.restore(ProducerState((entry,)))
    return table


def test_the_latest_usable_snapshot_counts() -> None:
    disk, table = MemDisk(), ProducerTable()
    snapshots = ProducerSnapshots(disk, "orders-0", ())
    for offset in (10, 20, 30):
        state = ProducerState((ENTRY._replace(updated_at=offset),))
        snapshots.write(state, offset, recoverable=offset)
    disk.flip_bit("orders-0/00000000000000000020.snapshot", 12)
    assert snapshots.load_latest(table, 29) == 10
    assert table.entries()[0].updated_at == 10
    assert snapshots.load_latest(table, 9) is None
    assert len(table) == 0


def test_only_the_latest_few_are_kept() -> None:
    disk = MemDisk()
    disk.make_directory("orders-0")
    snapshots = ProducerSnapshots(disk, "orders-0", ())
    for offset in range(KEPT + 2):
        snapshots.write(ProducerState(()), offset, recoverable=offset)
    assert len(disk.list("orders-0")) == KEPT
    snapshots.cut_to(KEPT)
    assert snapshots.offsets == [2, 3]


def test_the_latest_that_a_start_trusts_is_kept_too() -> None:
    disk = MemDisk()
    disk.make_directory("orders-0")
    snapshots = ProducerSnapshots(disk, "orders-0", ())
    for offset in range(10, 100, 10):
        snapshots.write(ProducerState(()), offset, recoverable=25)
    assert snapshots.offsets == [20, 70, 80, 90]
    snapshots.write(ProducerState(()), 50, recoverable=55)
    assert snapshots.offsets == [50, 70, 80, 90]
    assert snapshots.has_within(60, 70)
    assert not snapshots.has_within(51, 69)
