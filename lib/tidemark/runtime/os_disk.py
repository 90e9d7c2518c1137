"""OsDisk: the real file system behind the Disk protocol. Only this module and the send queue use
file descriptors.

Every failed call becomes a DiskError that names the path. ENOSPC and EDQUOT become DiskFullError;
a lack of descriptors or memory becomes ExhaustedError. Nothing is retried: after a failed fsync
Linux may have dropped the dirty pages, so that a second call would succeed without writing them.
"""

import contextlib
import errno
import fcntl
import os
import resource
import shutil
from collections.abc import Sequence
from typing import Final

from tidemark.storage.disk import (
    NEVER_TRUNCATED,
    Buffer,
    DirectoryGoneError,
    DiskError,
    DiskFullError,
    ExhaustedError,
)

_IOV_MAX: Final = min(os.sysconf("SC_IOV_MAX"), 1024)
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})
_UNREADABLE: Final = frozenset(
    {errno.EIO, errno.EUCLEAN, errno.EBADMSG, errno.ENODATA, errno.EREMOTEIO, errno.ESTALE}
)
"""Errors of a sendfile whose file cannot be read; sockets do not raise them."""
_ROOM_DESCRIPTORS: Final = 16
"""Bound on the descriptors that a change of several steps has open at a time."""
_PROBE_STEP_BYTES: Final = 128 * 1024  # the kernel reads ahead so far by default
"""Largest distance of the pages that ``resident`` checks; the kernel reads ahead in larger steps.
"""
_FILE_MODE: Final = 0o644


def _disk_error(path: str, error: OSError) -> DiskError:
    kind: type[DiskError] = DiskError
    if error.errno in _FULL:
        kind = DiskFullError
    elif error.errno in _EXHAUSTED:
        kind = ExhaustedError
    return kind(path, error.strerror or str(error))


class DirectoryInUseError(DiskError):
    """Another process holds the directory."""


_CLOSE: Final = os.close
"""For files that end with the process, when modules are already empty."""


class OsFile:
    """One open descriptor; see tidemark.storage.disk.File for the contract.

    The descriptor lives as long as the object. A caller drops its reference instead of calling
    ``close`` while others may be reading (a queued slice, a sync in a thread); the last reference
    closes the descriptor. So its number is never reused while a reader has it.
    """

    __slots__ = ("_probe", "descriptor", "disk", "path", "size_bytes", "truncated_to")

    def __init__(self, descriptor: int, path: str, disk: "OsDisk") -> None:
        self.descriptor = descriptor
        self.path = path
        self.disk = disk
        self.size_bytes = os.fstat(descriptor).st_size
        self.truncated_to = NEVER_TRUNCATED
        self._probe: bytearray | None = None

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write with pwrite or pwritev, and continue after a short one. Buffers have itemsize 1."""
        try:
            if len(buffers) == 1:
                total = len(buffers[0])
                written = os.pwrite(self.descriptor, buffers[0], position)
            else:
                total = sum(map(len, buffers))
                written = os.pwritev(self.descriptor, buffers[:_IOV_MAX], position)
            if written != total:
                self._write_rest(position, buffers, written, total)
        except OSError as error:
            raise _disk_error(self.path, error) from error
        if position + total > self.size_bytes:
            self.size_bytes = position + total
        return total

    def _write_rest(
        self, position: int, buffers: Sequence[Buffer], written: int, total: int
    ) -> None:
        """Write the rest after the first ``written`` bytes. A write is short with many buffers or
        on a nearly full disk.
        """
        views = [memoryview(buffer) for buffer in buffers]
        first, skip = 0, written
        while written < total:
            while skip >= len(views[first]):
                skip -= len(views[first])
                first += 1
            head = views[first][skip:]
            step = os.pwritev(
                self.descriptor, [head, *views[first + 1 : first + _IOV_MAX]], position + written
            )
            if step == 0:
                raise OSError(errno.EIO, "a write made no progress")
            written += step
            skip += step

    def read_at(self, position: int, length: int) -> bytes:
        """Read with pread, and continue after a short one before the end of the file."""
        try:
            data = os.pread(self.descriptor, length, position)
            while len(data) < length and position + len(data) < self.size_bytes:
                more = os.pread(self.descriptor, length - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise _disk_error(self.path, error) from error
        return data

    def send_to(self, socket: int, position: int, length: int) -> int:
        """Call sendfile once, to the socket of that descriptor; return the bytes sent. Raises
        DiskError if the file cannot be read, OSError for the socket.
        """
        try:
            return os.sendfile(socket, self.descriptor, position, length)
        except OSError as error:
            if error.errno in _UNREADABLE:
                raise _disk_error(self.path, error) from error
            raise

    def sync(self) -> None:
        """Call fdatasync. It blocks and releases the GIL: call it in a thread."""
        try:
            os.fdatasync(self.descriptor)
        except OSError as error:
            raise DiskError(self.path, error.strerror or str(error)) from error

    def truncate(self, size_bytes: int) -> None:
        """Call ftruncate. Slices that reach beyond are void from now on (``truncated_to``)."""
        try:
            os.ftruncate(self.descriptor, size_bytes)
        except OSError as error:
            raise _disk_error(self.path, error) from error
        self.size_bytes = size_bytes
        self.truncated_to = min(self.truncated_to, size_bytes)

    def resident(self, position: int, length: int) -> bool:
        """True if a read of the range would probably not wait for the device (RWF_NOWAIT, Linux
        4.14).

        Checks one byte every 128 KB, and the last. True if the file system does not support it.
        """
        if not self.disk.probes:
            return True
        probe = self._probe
        if probe is None:
            probe = self._probe = bytearray(1)
        last = position + length - 1
        at = position
        try:
            while True:
                os.preadv(self.descriptor, (probe,), at, os.RWF_NOWAIT)
                if at >= last:
                    return True
                at = min(at + _PROBE_STEP_BYTES, last)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
                self.disk.probes = False
                return True
            raise _disk_error(self.path, error) from error

    def read_resident(self, position: int, length: int) -> bytearray | None:
        """Read a range whose pages are in memory. None if the read would wait for the device, fails
        or ends early; a caller that then sends the range meets the reason again. Reads in any case
        where the file system does not support RWF_NOWAIT.
        """
        data = bytearray(length)
        flags = os.RWF_NOWAIT if self.disk.probes else 0
        try:
            got = os.preadv(self.descriptor, (data,), position, flags)
        except OSError as error:
            if not flags or error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                return None
            self.disk.probes = False
            return self.read_resident(position, length)
        return data if got == length else None

    def close(self) -> None:
        """Close the descriptor; idempotent. Only for a file without other users."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        descriptor = getattr(self, "descriptor", -1)
        if descriptor >= 0:
            self.descriptor = -1
            with contextlib.suppress(OSError):
                _CLOSE(descriptor)


class OsDisk:
    """One directory of a real file system, created if missing. See tidemark.storage.disk.Disk for
    the contract.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = os.path.abspath(root)
        self.probes = True
        """True unless its file system does not tell whether pages are in memory (tmpfs)."""
        self._lock = -1
        self.make_directory("")

    def _at(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def lock(self) -> None:
        """Lock the directory against other processes while this one lives. Raises
        DirectoryInUseError if another process holds it.
        """
        path = self._at(".lock")
        try:
            self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.unlock()
            raise DirectoryInUseError(path, "another process holds this log directory") from None
        except OSError as error:
            self.unlock()
            raise _disk_error(path, error) from error

    def unlock(self) -> None:
        """Release the lock; idempotent."""
        descriptor, self._lock = self._lock, -1
        if descriptor >= 0:
            os.close(descriptor)

    def open(self, path: str, *, create: bool = False) -> OsFile:
        """Open for reading and writing. Raises FileNotFoundError unless ``create``."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            return OsFile(os.open(self._at(path), flags, _FILE_MODE), path, self)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _disk_error(path, error) from error

    def exists(self, path: str) -> bool:
        """True if there is a file or directory at ``path``."""
        return os.path.lexists(self._at(path))

    def size_of(self, path: str) -> int:
        """Return the size of a file in bytes, without opening it. Raises FileNotFoundError."""
        try:
            return os.stat(self._at(path)).st_size
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _disk_error(path, error) from error

    def list(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted; [] if it does not exist."""
        try:
            return sorted(os.listdir(self._at(directory)))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _disk_error(directory, error) from error

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, unless it exists."""
        try:
            os.makedirs(self._at(path), exist_ok=True)
        except OSError as error:
            raise _disk_error(path, error) from error

    def rename(self, old: str, new: str) -> None:
        """Move a file or directory atomically; an existing file at ``new`` is replaced."""
        try:
            os.rename(self._at(old), self._at(new))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _disk_error(old, error) from error

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with its content, if it exists."""
        full = self._at(path)
        try:
            if os.path.isdir(full) and not os.path.islink(full):
                shutil.rmtree(full)
            else:
                os.unlink(full)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _disk_error(path, error) from error

    def read_whole(self, path: str) -> bytes:
        """Return the content of a small file. Raises FileNotFoundError."""
        try:
            with open(self._at(path), "rb") as file:
                return file.read()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _disk_error(path, error) from error

    def replace_whole(self, path: str, content: bytes, *, sync: bool = True) -> None:
        """Write a temporary file and rename it over ``path``. With ``sync`` durable on return."""
        full = self._at(path)
        try:
            with open(full + ".tmp", "wb", buffering=0) as file:
                view = memoryview(content)
                while view:
                    view = view[file.write(view) or 0 :]
                if sync:
                    _fsync(file.fileno(), path)
            os.replace(full + ".tmp", full)
        except OSError as error:
            raise _disk_error(path, error) from error
        if sync:
            self.sync_directory(os.path.dirname(path))

    def sync_directory(self, path: str) -> None:
        """Call fsync on the directory itself."""
        try:
            descriptor = os.open(self._at(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                _fsync(descriptor, path)
            finally:
                os.close(descriptor)
        except FileNotFoundError as gone:
            raise DirectoryGoneError(path, gone.strerror or str(gone)) from gone
        except OSError as error:
            raise _disk_error(path, error) from error

    def expect_room(self) -> None:
        """Raise ExhaustedError unless the files of a change of several steps can be opened now."""
        held: list[int] = []
        try:
            while len(held) < _ROOM_DESCRIPTORS:
                held.append(os.open(self.root, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            raise _disk_error("", error) from error
        finally:
            for descriptor in held:
                os.close(descriptor)

    def free_bytes(self) -> int:
        """Return the space left for an ordinary user."""
        try:
            space = os.statvfs(self.root)
        except OSError as error:
            raise _disk_error("", error) from error
        return space.f_bavail * space.f_frsize


def _fsync(descriptor: int, path: str) -> None:
    """Sync one descriptor. Raises DiskError for every failure, exhaustion included: the state of
    unsynced bytes is unknown then.
    """
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise DiskError(path, error.strerror or str(error)) from error


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one; return the limit in force. Every log with
    unsynced data needs a descriptor.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def kernel_boot_id() -> str:
    """Return the id of this boot, '' if unknown. If the disk's stamp has the same id, the page
    cache has survived.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
