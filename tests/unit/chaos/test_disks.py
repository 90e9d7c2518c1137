"""Damage takes what was promised: records that are synced, or known to be committed."""

from pathlib import Path

import pytest
from broker.storage.checkpoint import HIGH_WATERMARKS, RECOVERY_POINTS
from chaos.disks import cut_in_half
from tidemark.codec.records import build_batch

BATCH_BYTES = len(build_batch([(1_000, None, b"v", ())]))


def broker_data(directory: Path, *segments: int) -> Path:
    """Segments of so many batches of one record each."""
    (directory / "orders-0").mkdir()
    first = 0
    for count in segments:
        batches = [
            build_batch([(1_000, None, b"v", ())], base_offset=one)
            for one in range(first, first + count)
        ]
        (directory / "orders-0" / f"{first:020}.log").write_bytes(b"".join(batches))
        first += count
    return directory


@pytest.mark.parametrize(
    ("known", "name", "left"),
    [(10, 6, 2), (8, 6, 1), (6, 0, 3), (2, 0, 1)],
)
def test_half_of_what_is_known_is_cut_off(tmp_path: Path, known: int, name: int, left: int) -> None:
    data = broker_data(tmp_path, 6, 5)
    (data / RECOVERY_POINTS).write_text("0\n2\norders 0 1\norders 01 99\n")
    (data / HIGH_WATERMARKS).write_text(f"0\n1\norders 0 {known}\n")
    path = cut_in_half(data, "orders-0")
    assert path is not None
    assert (int(path.stem), path.stat().st_size) == (name, left * BATCH_BYTES)


def test_what_no_checkpoint_tells_of_stays(tmp_path: Path) -> None:
    assert cut_in_half(broker_data(tmp_path, 3), "orders-0") is None
