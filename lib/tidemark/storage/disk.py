"""Disk: all that storage may ask of a file system. Real in runtime.os_disk, simulated in mem_disk.

Paths are relative to the disk's root, with '/' between parts. Everything is synchronous; the shell
decides what runs in a thread. ``File.sync`` and ``File.read_at`` may be called from a thread while
the loop appends.
"""

from collections.abc import Sequence
from typing import Final, Protocol

Buffer = bytes | bytearray | memoryview

NEVER_TRUNCATED: Final = 2**63 - 1


class DiskError(Exception):
    """A call on the disk failed at ``path``. Fence the log directory (unless it is a subclass that
    says otherwise); never retry a failed sync.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[type["DiskError"], tuple[str, str]]:
        # Worker processes raise it too, and their errors come home pickled.
        return type(self), (self.path, self.reason)


class DiskFullError(DiskError):
    """No space is left (or a quota is reached); the write in question is to be undone."""


class ExhaustedError(DiskError):
    """The process or the machine has no descriptor or memory left for the call, which did nothing.

    The disk is not to blame: refuse the request in hand, and never fence for it.
    """


class DirectoryGoneError(DiskError):
    """The directory to be synced is not there (any more)."""


class File(Protocol):
    """One open file. Stays readable after it was renamed or removed, until closed."""

    @property
    def disk(self) -> "Disk":
        """The disk that opened it."""

    @property
    def path(self) -> str:
        """Relative to the disk's root, as it was when opened."""

    @property
    def size_bytes(self) -> int:
        """Bytes written so far, synced or not."""

    @property
    def truncated_to(self) -> int:
        """The smallest size this handle was ever cut to, else NEVER_TRUNCATED.

        A slice that reaches beyond is void: other bytes may stand there by now. The log opens a
        new handle after a cut.
        """

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write all buffers, one behind the other; returns the bytes written.

        Raises DiskFullError or DiskError; bytes beyond ``position`` are then undefined until
        truncated.
        """

    def read_at(self, position: int, length: int) -> bytes:
        """Up to ``length`` bytes; fewer only at the end of the file."""

    def sync(self) -> None:
        """fdatasync. Raises DiskError: after it, nothing about unsynced bytes is known."""

    def truncate(self, size_bytes: int) -> None:
        """Cut the file to ``size_bytes``."""

    def close(self) -> None:
        """Give the handle back; idempotent."""


class Disk(Protocol):
    """One directory tree on one device."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. Raises FileNotFoundError unless ``create``."""

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""

    def size_of(self, path: str) -> int:
        """Bytes of a file, without opening it. Raises FileNotFoundError."""

    def list(self, directory: str) -> list[str]:
        """Names (not paths) in a directory, sorted; [] if there is none."""

    def make_directory(self, path: str) -> None:
        """With its parents; silent if it exists."""

    def rename(self, old: str, new: str) -> None:
        """Move a file or directory atomically; an existing file at ``new`` is replaced."""

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with all in it; silent if it is gone."""

    def read_whole(self, path: str) -> bytes:
        """A small file's content. Raises FileNotFoundError."""

    def replace_whole(self, path: str, content: bytes, *, sync: bool = True) -> None:
        """Write a small file so that a crash leaves the old or the new content, never a mix."""

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in a directory durable. Raises DirectoryGoneError,
        DiskError.
        """

    def expect_room(self) -> None:
        """Raise ExhaustedError unless the files of a change of several steps can be opened now."""

    def free_bytes(self) -> int:
        """Space left on the device for us."""
