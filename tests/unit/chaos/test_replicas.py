"""Replicas are compared by their batches, wherever segments were rolled."""

from pathlib import Path

import pytest
from broker.storage.txn_index import AbortedTxn, encode_aborted
from chaos.history import Partition
from chaos.replicas import differences, misindexed, read_log, read_replicas
from tidemark.codec.control_record import EndTxnMarker, build_marker
from tidemark.codec.record_batch import TRANSACTIONAL_BIT, set_base_offset_and_epoch
from tidemark.codec.records import build_batch
from tidemark.model.ids import LeaderEpoch, Offset

P0 = Partition("orders", 0)


def batch(first: int, value: bytes = b"v") -> bytes:
    return build_batch([(1_000, None, value, ())], base_offset=first, leader_epoch=0)


def replica(directory: Path, *segments: list[bytes]) -> Path:
    directory.mkdir(parents=True)
    for number, batches in enumerate(segments):
        (directory / f"{number:020}.log").write_bytes(b"".join(batches))
    return directory


def test_other_segments_with_the_same_batches_are_the_same(tmp_path: Path) -> None:
    one = read_log(replica(tmp_path / "1", [batch(0), batch(1)], [batch(2)]))
    other = read_log(replica(tmp_path / "2", [batch(0)], [batch(1), batch(2)]))
    assert one == other
    assert (one.batches, one.end) == (3, 3)


def test_replicas_that_differ_are_told(tmp_path: Path) -> None:
    replica(tmp_path / "1" / "orders-0", [batch(0)])
    replica(tmp_path / "2" / "orders-0", [batch(0, b"w")])
    replica(tmp_path / "3" / "orders-0", [batch(0)])
    data = {number: tmp_path / str(number) for number in (1, 2, 3)}
    (line,) = differences(read_replicas(data, [P0]))
    assert line.startswith("orders-0: broker 1 1 batches to offset 1")


def test_a_replica_that_lacks_a_batch_is_told(tmp_path: Path) -> None:
    logs = [
        read_log(replica(tmp_path / "1", [batch(0), batch(1)])),
        read_log(replica(tmp_path / "2", [batch(0)])),
    ]
    assert len(differences({P0: dict(enumerate(logs, 1))})) == 1


def aborted(directory: Path, entries: list[AbortedTxn]) -> None:
    """A replica of one record in a transaction of producer 7, which was aborted, and its index."""
    ids = {"producer_id": 7, "producer_epoch": 0}
    records = build_batch(
        [(1_000, None, b"v", ())], base_sequence=0, attributes_extra=TRANSACTIONAL_BIT, **ids
    )
    marker = bytearray(build_marker(EndTxnMarker(False, 1), timestamp=1_000, **ids))
    set_base_offset_and_epoch(marker, 0, Offset(1), LeaderEpoch(0))
    replica(directory, [records, bytes(marker)])
    (directory / f"{0:020}.txnindex").write_bytes(encode_aborted(entries))


@pytest.mark.parametrize(
    ("entries", "lines"),
    [
        ([AbortedTxn(7, 0, 1, 2)], 0),
        ([], 1),
        ([AbortedTxn(6, 0, 1, 2)], 1),
        ([AbortedTxn(7, 0, 1, 2), AbortedTxn(7, 2, 3, 4)], 1),
    ],
)
def test_an_index_that_tells_other_aborted_transactions_than_the_log_is_told(
    tmp_path: Path, entries: list[AbortedTxn], lines: int
) -> None:
    aborted(tmp_path / "orders-0", entries)
    assert len(misindexed({1: tmp_path}, [P0])) == lines
