"""Aborted transactions: Kafka's 34 bytes, found by the offsets they span."""

import pytest
from broker.storage.txn_index import (
    ENTRY_BYTES,
    AbortedTxn,
    TxnIndex,
    aborted_between,
    decode_aborted,
    encode_aborted,
)
from tidemark.storage.mem_disk import MemDisk

ABORTED = [AbortedTxn(7, 10, 20, 10), AbortedTxn(8, 15, 30, 15)]


def test_entries_are_read_back_but_for_a_torn_last_one() -> None:
    content = encode_aborted(ABORTED)
    assert len(content) == 2 * ENTRY_BYTES == 68
    assert decode_aborted("t", content) == ABORTED
    assert decode_aborted("t", content[:-1]) == ABORTED[:1]


def test_what_follows_the_last_entry_in_order_is_ignored() -> None:
    content = encode_aborted(ABORTED)
    assert decode_aborted("t", content + bytes(2 * ENTRY_BYTES)) == ABORTED
    assert decode_aborted("t", content + content) == ABORTED
    assert decode_aborted("t", bytes(ENTRY_BYTES) + content) == []


def test_an_index_that_lost_its_end_goes_on_behind_its_entries() -> None:
    disk = MemDisk()
    disk.make_directory("orders-0")
    path = "orders-0/x.txnindex"
    disk.replace_whole(path, encode_aborted(ABORTED) + bytes(3 * ENTRY_BYTES))
    index = TxnIndex.load(disk, path)
    index.cut_to(disk, 30)
    later = AbortedTxn(9, 40, 50, 40)
    for txn in (ABORTED[1], later):
        index.add(txn)
    index.write(disk)
    assert TxnIndex.load(disk, path).aborted == index.aborted == [*ABORTED, later]


def test_a_newer_version_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="orders-0/x: version 1 is newer"):
        decode_aborted("orders-0/x", b"\x00\x01" + encode_aborted(ABORTED)[2:])


@pytest.mark.parametrize(
    ("start", "end", "producers"), [(0, 10, []), (0, 11, [7]), (20, 40, [7, 8]), (21, 40, [8])]
)
def test_those_that_reach_into_a_range_count(start: int, end: int, producers: list[int]) -> None:
    assert [txn.producer_id for txn in aborted_between(ABORTED, start, end)] == producers


def test_the_file_follows_what_is_added_and_cut() -> None:
    disk = MemDisk()
    disk.make_directory("orders-0")
    index = TxnIndex.load(disk, "orders-0/x.txnindex")
    for txn in (*ABORTED, ABORTED[1]):
        index.add(txn)
        index.write(disk)
    assert TxnIndex.load(disk, "orders-0/x.txnindex").aborted == ABORTED
    index.cut_to(disk, 30)
    assert TxnIndex.load(disk, "orders-0/x.txnindex").aborted == ABORTED[:1]
