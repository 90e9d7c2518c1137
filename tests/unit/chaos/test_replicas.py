"""Replicas are compared by their batches, wherever segments were rolled."""

from pathlib import Path

from chaos.history import Partition
from chaos.replicas import differences, read_log, read_replicas
from tidemark.codec.records import build_batch

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
