"""OsDisk on a real file system: the same contract as MemDisk, and what only a kernel does."""

import contextlib
import errno
import os
from pathlib import Path
from typing import Any

import pytest
from tidemark.runtime.os_disk import OsDisk, OsFile, kernel_boot_id, raise_descriptor_limit
from tidemark.storage.disk import NEVER_TRUNCATED, DiskError, DiskFullError, ExhaustedError
from tidemark.storage.mem_disk import MemDisk
from unit.tidemark.runtime.exhausted import no_descriptor_left


@pytest.fixture(params=["os", "mem"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> OsDisk | MemDisk:
    return OsDisk(tmp_path / "root") if request.param == "os" else MemDisk()


def test_bytes_are_read_where_they_were_written(disk: OsDisk | MemDisk) -> None:
    disk.make_directory("a/b")
    file = disk.open("a/b/f", create=True)
    assert file.write_at(0, [b"12", bytearray(b"34"), memoryview(b"56")]) == 6
    assert file.write_at(6, [b"78"]) == 2
    assert file.size_bytes == disk.size_of("a/b/f") == 8
    assert (file.read_at(1, 3), file.read_at(6, 99), file.read_at(8, 1)) == (b"234", b"78", b"")
    file.sync()
    file.close()


def test_more_buffers_than_the_kernel_takes_at_once(disk: OsDisk | MemDisk) -> None:
    file = disk.open("f", create=True)
    buffers = [bytes([n % 256]) * (n % 3) for n in range(3_000)]
    assert file.write_at(0, buffers) == len(b"".join(buffers))
    assert file.read_at(0, 10_000) == b"".join(buffers)
    file.close()


def test_a_cut_voids_slices_of_that_handle_only(disk: OsDisk | MemDisk) -> None:
    file = disk.open("f", create=True)
    file.write_at(0, [b"123456"])
    file.truncate(4)
    file.truncate(5)
    assert (file.size_bytes, file.truncated_to) == (5, 4)
    again = disk.open("f")
    assert again.truncated_to == NEVER_TRUNCATED
    assert again.read_at(0, 9) == b"1234\0"
    file.close()
    again.close()


def test_names_are_moved_replaced_and_removed(disk: OsDisk | MemDisk) -> None:
    disk.make_directory("d")
    disk.replace_whole("d/1", b"one")
    disk.replace_whole("d/2", b"two", sync=False)
    disk.rename("d/1", "d/2")
    assert disk.read_whole("d/2") == b"one"
    assert disk.list("d") == ["2"]
    disk.rename("d", "e")
    disk.sync_directory("")
    assert (disk.exists("d"), disk.exists("e/2")) == (False, True)
    disk.remove("e")
    disk.remove("e")
    assert disk.list("") == []


@pytest.mark.parametrize("call", ["open", "read_whole", "size_of"])
def test_what_is_missing_is_said_to_be(disk: OsDisk | MemDisk, call: str) -> None:
    with pytest.raises(FileNotFoundError):
        getattr(disk, call)("nothing")


def test_a_renamed_and_removed_file_stays_readable(disk: OsDisk | MemDisk) -> None:
    file = disk.open("f", create=True)
    file.write_at(0, [b"here"])
    disk.rename("f", "f.deleted")
    disk.remove("f.deleted")
    assert file.read_at(0, 4) == b"here"
    file.close()


def test_no_space_is_an_error_of_its_own(tmp_path: Path) -> None:
    file = OsFile(os.open("/dev/full", os.O_RDWR), "full", OsDisk(tmp_path))
    with pytest.raises(DiskFullError, match="full: No space left on device"):
        file.write_at(0, [b"x"])
    file.close()
    file.close()


@pytest.mark.parametrize(
    ("number", "raised"),
    [
        (errno.EIO, DiskError),
        (errno.EUCLEAN, DiskError),
        (errno.EPIPE, BrokenPipeError),
        (errno.ETIMEDOUT, TimeoutError),
        (errno.EAGAIN, BlockingIOError),
    ],
)
def test_a_sendfile_fails_by_its_file_or_by_its_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, raised: type[Exception]
) -> None:
    def fail(*_: int) -> int:
        raise OSError(number, os.strerror(number))

    file = OsDisk(tmp_path).open("f", create=True)
    monkeypatch.setattr(os, "sendfile", fail)
    with pytest.raises(raised):
        file.send_to(0, 0, 1)


def test_other_failures_name_the_path(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    disk.make_directory("d")
    with pytest.raises(DiskError, match="d: Is a directory"):
        disk.open("d", create=True)
    with pytest.raises(DiskError, match="nothing: No such file"):
        disk.sync_directory("nothing")


def test_the_last_reference_closes_the_descriptor(tmp_path: Path) -> None:
    file = OsDisk(tmp_path).open("f", create=True)
    descriptor = file.descriptor
    held = [file]
    del file
    os.fstat(descriptor)
    held.clear()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_what_was_just_written_is_resident(tmp_path: Path) -> None:
    file = OsDisk(tmp_path).open("f", create=True)
    file.write_at(0, [bytes(200_000)])
    assert file.resident(0, 200_000)
    assert file.resident(199_999, 1)


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL])
def test_a_file_system_that_does_not_tell_what_is_resident_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    asked = []

    def preadv(descriptor: int, buffers: Any, position: int, flags: int = 0) -> int:
        if flags:
            asked.append(position)
            raise OSError(code, os.strerror(code))
        return os.readv(descriptor, buffers)

    monkeypatch.setattr(os, "preadv", preadv)
    disk = OsDisk(tmp_path)
    file, other = disk.open("f", create=True), disk.open("g", create=True)
    other.write_at(0, [b"content"])
    assert file.resident(3, 200_000)
    assert file.resident(4, 200_000)
    assert other.read_resident(0, 7) == bytearray(b"content")
    assert asked == [3]


def test_two_processes_may_not_hold_one_directory(tmp_path: Path) -> None:
    first, second = OsDisk(tmp_path), OsDisk(tmp_path)
    first.lock()
    with pytest.raises(DiskError, match="another process holds this log directory"):
        second.lock()
    first.unlock()
    second.lock()
    second.unlock()


def test_the_kernel_tells_its_boot_and_limits() -> None:
    assert kernel_boot_id() == kernel_boot_id()
    assert raise_descriptor_limit() >= 256
    assert OsDisk("/tmp").free_bytes() > 0


def test_without_a_descriptor_a_call_is_refused_and_the_disk_is_not_to_blame(
    tmp_path: Path,
) -> None:
    disk = OsDisk(tmp_path)
    disk.replace_whole("a", b"content")
    went_through = []
    for call in (
        lambda: disk.open("a"),
        lambda: disk.read_whole("a"),
        lambda: disk.replace_whole("a", b"other"),
        lambda: disk.list(""),
        lambda: disk.sync_directory(""),
        disk.expect_room,
    ):
        with no_descriptor_left(), contextlib.suppress(ExhaustedError):
            call()
            went_through.append(call)
    assert went_through == []
    disk.expect_room()
    assert disk.read_whole("a") == b"content"
