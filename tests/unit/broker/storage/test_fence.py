"""The fence of a log directory keeps the message of an error, and not the file."""

import gc
import weakref

from broker.storage.directory import LogDirectory
from tidemark.storage.disk import DiskFullError
from tidemark.storage.mem_disk import MemDisk


class OpenFile:
    """A file whose space is free only when no handle is open."""

    def write(self) -> None:
        try:
            raise OSError("no space")
        except OSError as error:
            raise DiskFullError("t-0/0.log", "no space") from error


def test_a_fence_lets_go_of_the_file_that_could_not_be_written() -> None:
    shared = LogDirectory(MemDisk(), jitter=lambda _: 0, now_ms=0)
    file = OpenFile()
    known = weakref.ref(file)
    try:
        file.write()
    except DiskFullError as error:
        shared.fence(error)
    del file
    gc.collect()
    assert known() is None
    assert str(shared.fence_error) == "t-0/0.log: no space"
