"""State shared by logs: the fence, and the pool of open files."""

import pytest
from broker.storage.directory import LogDirectory
from broker.storage.segment import Segment
from broker.storage.segment_files import new_segment
from tidemark.storage.disk import DiskError, DiskFullError
from tidemark.storage.mem_disk import MemDisk


def shared_by(disk: MemDisk, open_files_max: int = 3) -> LogDirectory:
    return LogDirectory(disk, jitter=lambda _: 0, now_ms=0, open_files_max=open_files_max)


def segments(disk: MemDisk, count: int) -> list[Segment]:
    disk.make_directory("t-0")
    made = [new_segment(disk, "t-0", base, 0) for base in range(count)]
    for segment in made:
        segment.cool(disk)
    return made


def test_the_worse_fence_stays() -> None:
    shared = shared_by(MemDisk())
    shared.raise_if_fenced()
    for error in (DiskFullError("a", "full"), DiskError("b", "broken"), DiskFullError("c", "full")):
        shared.fence(error)
    with pytest.raises(DiskError, match="b: broken"):
        shared.raise_if_fenced()


def test_the_oldest_clean_segment_is_cooled() -> None:
    disk = MemDisk()
    shared, made = shared_by(disk), segments(disk, 6)
    made[0].dirty = True
    for segment in made:
        shared.warm(segment)
    assert made[0].file is not None, "unsynced bytes keep a file open"
    assert sum(segment.file is not None for segment in made) <= 3
    assert made[5].file is not None


def test_a_forgotten_segment_lets_go_of_its_file() -> None:
    disk = MemDisk()
    shared, (segment,) = shared_by(disk), segments(disk, 1)
    held = shared.warm(segment)
    shared.forget(segment)
    assert segment.file is None
    assert held.read_at(0, 1) == b""
