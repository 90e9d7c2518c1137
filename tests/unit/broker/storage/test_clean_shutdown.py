"""The clean-shutdown marker: read once; an unreadable one counts as none, a newer one is
refused.
"""

import pytest
from broker.storage import checkpoint
from tidemark.storage.mem_disk import MemDisk


def marked(content: bytes) -> MemDisk:
    disk = MemDisk()
    disk.replace_whole(checkpoint.CLEAN_SHUTDOWN, content)
    return disk


def test_it_is_taken_once() -> None:
    disk = MemDisk()
    checkpoint.write_clean_shutdown(disk, 7)
    assert checkpoint.take_clean_shutdown(disk) == checkpoint.CleanShutdown(7)
    assert checkpoint.take_clean_shutdown(disk) is None


@pytest.mark.parametrize("content", [b"", b"\0\0\0", b"[]", b'{"version": 0}', b'{"version": -1}'])
def test_one_that_cannot_be_read_is_as_good_as_none(content: bytes) -> None:
    disk = marked(content)
    assert checkpoint.take_clean_shutdown(disk) is None
    assert not disk.exists(checkpoint.CLEAN_SHUTDOWN)


def test_a_newer_one_is_refused_and_stays() -> None:
    disk = marked(b'{"version": 1, "what": "else"}')
    with pytest.raises(checkpoint.NewerVersionError, match="clean-shutdown: version 1 is newer"):
        checkpoint.take_clean_shutdown(disk)
    assert disk.exists(checkpoint.CLEAN_SHUTDOWN)
