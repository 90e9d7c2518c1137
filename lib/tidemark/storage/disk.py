"""Disk: the file system as storage uses it. Real in runtime.os_disk, simulated in mem_disk.

Paths are relative to the disk's root, with '/' between parts. All calls are synchronous; the shell
decides which run in a thread. ``File.sync`` and ``File.read_at`` may be called from a thread while
the loop appends.
"""

from collections.abc import Sequence
from typing import Final, Protocol

Buffer = bytes | bytearray | memoryview

NEVER_TRUNCATED: Final = 2**63 - 1


class DiskError(Exception):
    """A call of the disk failed at ``path``. Fence the log directory (unless a subclass states
    otherwise); never retry a failed sync.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[type["DiskError"], tuple[str, str]]:
        # Worker processes raise it too, and their errors are pickled.
        return type(self), (self.path, self.reason)


class DiskFullError(DiskError):
    """No space is left, or a quota is reached; the failed write must be undone."""


class ExhaustedError(DiskError):
    """The process or the machine has no descriptor or memory left for the call, which did nothing.

    The disk has not failed: refuse the request, and never fence the log directory for it.
    """


class DirectoryGoneError(DiskError):
    """The directory to be synced does not exist."""


class File(Protocol):
    """One open file. It stays readable after a rename or removal, until closed."""

    @property
    def disk(self) -> "Disk":
        """The disk that opened the file."""

    @property
    def path(self) -> str:
        """Path relative to the disk's root when the file was opened."""

    @property
    def size_bytes(self) -> int:
        """Size of the file in bytes, synced or not."""

    @property
    def truncated_to(self) -> int:
        """Smallest size to which this handle was truncated, or NEVER_TRUNCATED.

        A slice that reaches beyond is void: other bytes may be there by now. The log opens a new
        handle after a truncation.
        """

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write all buffers, one after the other; return the number of bytes written.

        Raises DiskFullError or DiskError; bytes beyond ``position`` are then undefined until the
        file is truncated.
        """

    def read_at(self, position: int, length: int) -> bytes:
        """Return up to ``length`` bytes; fewer only at the end of the file."""

    def sync(self) -> None:
        """Make written bytes durable. Raises DiskError; the state of unsynced bytes is unknown
        then.
        """

    def truncate(self, size_bytes: int) -> None:
        """Cut the file to ``size_bytes``."""

    def close(self) -> None:
        """Close the handle; idempotent."""


class Disk(Protocol):
    """One directory tree on one device."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. Raises FileNotFoundError unless ``create``."""

    def exists(self, path: str) -> bool:
        """True if there is a file or directory at ``path``."""

    def size_of(self, path: str) -> int:
        """Return the size of a file in bytes, without opening it. Raises FileNotFoundError."""

    def list(self, directory: str) -> list[str]:
        """Return the names (not paths) in a directory, sorted; [] if it does not exist."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, unless it exists."""

    def rename(self, old: str, new: str) -> None:
        """Move a file or directory atomically; an existing file at ``new`` is replaced."""

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with its content, if it exists."""

    def read_whole(self, path: str) -> bytes:
        """Return the content of a small file. Raises FileNotFoundError."""

    def replace_whole(self, path: str, content: bytes, *, sync: bool = True) -> None:
        """Write a small file so that a crash leaves the old or the new content, never a mix."""

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in a directory durable. Raises DirectoryGoneError,
        DiskError.
        """

    def expect_room(self) -> None:
        """Raise ExhaustedError unless the files of a change of several steps can be opened now."""

    def free_bytes(self) -> int:
        """Return the space left on the device for this process."""
