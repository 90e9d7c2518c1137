"""MemDisk: a disk in memory that loses unsynced data in a crash, and fails on request.

Every file has two images, the written and the synced content. The tree has the current names and a
journal of the changes that no ``sync_directory`` (or synced ``replace_whole``) covers yet.
``crash`` keeps everything synced and, as decided by dice from outside, some of the rest: a prefix
of the journal (as in a journalling file system), and for each file a prefix of the appended bytes,
the last of which may be zeros.

A failed sync may mark the pages as clean (``drops_pages``), as Linux does: they stay readable, no
later sync writes them, and they are lost once the kernel needs their memory (``evict``), the file
system is unmounted (``remount``) or the power fails.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from tidemark.storage.disk import (
    NEVER_TRUNCATED,
    Buffer,
    DirectoryGoneError,
    DiskError,
    DiskFullError,
    ExhaustedError,
)

_UNBOUNDED: Final = 2**62
_TORN_BYTES: Final = 512


_IO_ERROR: Final = "Input/output error"


class _Inode:
    """Bytes of one file, independent of its names."""

    __slots__ = ("dropped", "synced", "written")

    def __init__(self) -> None:
        self.written = bytearray()
        self.synced = b""
        self.dropped: list[tuple[int, int]] = []
        """Ranges (start, end) of bytes that count as synced but are not, in order."""

    def drop(self) -> None:
        """Mark all bytes that differ from the device as synced, after a failed sync."""
        written, synced = self.written, self.synced
        pairs = enumerate(zip(written, synced, strict=False))
        start = next((at for at, (new, old) in pairs if new != old), min(len(written), len(synced)))
        self.dropped = [(start, len(written))] if start < len(written) else []

    def touched(self, start: int, end: int) -> None:
        """Take note that these bytes are written again: the next sync covers them."""
        if self.dropped:
            around = [part for one in self.dropped for part in _without(one, start, end)]
            self.dropped = [one for one in around if one[0] < one[1]]

    def stored(self) -> bytes:
        """Return the content of the device after a successful sync: a hole reads as zeros, and a
        dropped end is missing.
        """
        if not self.dropped:
            return bytes(self.written)
        content = self.without_dropped()
        start, end = self.dropped[-1]
        if end == len(content):
            del content[max(start, min(end, len(self.synced))) :]
        return bytes(content)

    def without_dropped(self) -> bytearray:
        """Return the readable content once the dropped pages are evicted while the file is open."""
        content = bytearray(self.written)
        for start, end in self.dropped:
            content[start:end] = self.synced[start:end].ljust(end - start, b"\0")
        return content


_Tree = dict[str, _Inode | None]
"""Paths with their files; None for a directory."""


class MemFile:
    """One open file; see tidemark.storage.disk.File for the contract."""

    __slots__ = ("_inode", "_life", "disk", "path", "truncated_to")

    def __init__(self, disk: "MemDisk", inode: _Inode, path: str) -> None:
        self.disk = disk
        self._inode = inode
        self._life = disk.life
        self.path = path
        self.truncated_to = NEVER_TRUNCATED

    @property
    def size_bytes(self) -> int:
        """Size of the file in bytes, synced or not."""
        return len(self._inode.written)

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write as much as fits; raise DiskFullError if that is not all."""
        self._check()
        content = b"".join(buffers)
        written = self._inode.written
        fails = self.disk.fails(self.path, "write")
        room = self.disk.room_for(max(position + len(content) - len(written), 0))
        fits = len(content) // 2 if fails else len(content) - room
        if position > len(written):
            written.extend(bytes(position - len(written)))
        written[position : position + fits] = content[:fits]
        self._inode.touched(position, position + fits)
        if fails:
            self.disk.check(self.path, "write")
        if room:
            raise DiskFullError(self.path, "No space left on device")
        return len(content)

    def read_at(self, position: int, length: int) -> bytes:
        """Return up to ``length`` bytes; fewer only at the end of the file."""
        self._check("read")
        return bytes(self._inode.written[position : position + length])

    def sync(self) -> None:
        """Make the written content durable."""
        if self.disk.fails(self.path, "sync") and self.disk.drops_pages:
            self._inode.drop()
        self._check("sync")
        self._inode.synced = self._inode.stored()

    def truncate(self, size_bytes: int) -> None:
        """Cut or extend with zeros."""
        self._check("write")
        written = self._inode.written
        self._inode.touched(size_bytes, _UNBOUNDED)
        del written[size_bytes:]
        written.extend(bytes(size_bytes - len(written)))
        self.truncated_to = min(self.truncated_to, size_bytes)

    def close(self) -> None:
        """Do nothing: there is no descriptor."""

    def _check(self, call: str = "") -> None:
        if self._life != self.disk.life:
            raise DiskError(self.path, "opened before the crash")
        self.disk.check(self.path, call)


class MemDisk:
    """Directory tree in memory. See tidemark.storage.disk.Disk for the contract."""

    def __init__(self, capacity_bytes: int = _UNBOUNDED) -> None:
        self.capacity_bytes = capacity_bytes
        """Capacity of the disk. Lower it to fill the disk, raise it to make room."""
        self.syncs_fail = False
        """True while every sync raises DiskError, as on a broken device."""
        self.writes_fail = False
        """True while every change raises DiskError; a write to a file writes half of its bytes."""
        self.reads_fail = False
        self.fails_under = ""
        """Prefix of the paths that fail; '' for all paths."""
        self.failures = 0
        """Number of failed calls so far."""
        self.drops_pages = False
        """True if a failed sync marks the bytes as clean; otherwise a later sync writes them."""
        self.exhausted = False
        """True while no file can be opened, as without a free descriptor."""
        self.life = 0
        """Counter raised by every crash: handles of an earlier life are invalid."""
        self._tree: _Tree = {"": None}
        self._synced_tree: _Tree = {"": None}
        self._journal: list[tuple[str, str, _Inode | None]] = []

    # -- the contract

    def open(self, path: str, *, create: bool = False) -> MemFile:
        """Open for reading and writing. Raises FileNotFoundError unless ``create``."""
        self._check_room(path)
        inode = self._tree.get(path)
        if inode is None:
            if not create or path in self._tree or _parent(path) not in self._tree:
                raise FileNotFoundError(path)
            self.check(path, "write")
            inode = _Inode()
            self._change("link", path, inode)
        return MemFile(self, inode, path)

    def exists(self, path: str) -> bool:
        """True if there is a file or directory at ``path``."""
        return path in self._tree

    def size_of(self, path: str) -> int:
        """Return the size of a file in bytes. Raises FileNotFoundError."""
        return len(self._file(path).written)

    def list(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted; [] if it does not exist."""
        self._check_room(directory)
        start = f"{directory}/" if directory else ""
        return sorted(
            path[len(start) :]
            for path in tuple(self._tree)  # a thread may remove some meanwhile
            if path and path.startswith(start) and "/" not in path[len(start) :]
        )

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, unless it exists."""
        if path not in self._tree:
            self.make_directory(_parent(path))
            self.check(path, "write")
            self._change("link", path, None)

    def rename(self, old: str, new: str) -> None:
        """Move a file or directory; an existing file at ``new`` is replaced."""
        if old not in self._tree:
            raise FileNotFoundError(old)
        self.check(old, "write")
        self._change(old, new, None, rename=True)

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with its content, if it exists."""
        if path in self._tree:
            self.check(path, "write")
            self._change("unlink", path, None)

    def read_whole(self, path: str) -> bytes:
        """Return the content of a small file. Raises FileNotFoundError."""
        self._check_room(path)
        inode = self._file(path)
        self.check(path, "read")
        return bytes(inode.written)

    def replace_whole(self, path: str, content: bytes, *, sync: bool = True) -> None:
        """Replace the content as a whole; with ``sync`` it is durable on return."""
        self._check_room(path)
        inode = _Inode()
        self.check(path, "write")
        if self.room_for(len(content)):
            raise DiskFullError(path, "No space left on device")
        if sync:
            self.check(path, "sync")
        # As ext4 does (auto_da_alloc), the bytes are on disk before the rename is.
        inode.written, inode.synced = bytearray(content), content
        self._change("link", path, inode)
        if sync:
            self.sync_directory(_parent(path))

    def sync_directory(self, path: str) -> None:
        """Commit the journal: all names, as one transaction."""
        self._check_room(path)
        self.check(path, "sync")
        if path and not self.exists(path):
            raise DirectoryGoneError(path, "No such file or directory")
        self._commit_names()

    def expect_room(self) -> None:
        """Raise ExhaustedError unless files can be opened."""
        self._check_room("")

    def free_bytes(self) -> int:
        """Return the space left."""
        return max(self.capacity_bytes - self._used_bytes(), 0)

    @property
    def is_bounded(self) -> bool:
        """True if the disk can be full."""
        return self.capacity_bytes < _UNBOUNDED

    def leave(self, room_bytes: int) -> None:
        """Bound the capacity to what is used now and so many bytes."""
        self.capacity_bytes = self._used_bytes() + room_bytes

    def unbound(self) -> None:
        """Let the disk never be full."""
        self.capacity_bytes = _UNBOUNDED

    # -- faults

    def _check_room(self, path: str) -> None:
        if self.exhausted:
            raise ExhaustedError(path, "Too many open files")

    def room_for(self, growth_bytes: int) -> int:
        """Return how many of ``growth_bytes`` do not fit."""
        if self.capacity_bytes == _UNBOUNDED:
            return 0
        return max(growth_bytes - self.free_bytes(), 0)

    def crash(self, dice: Iterable[int] = ()) -> None:
        """Simulate a power failure: keep synced data, and of the rest as much as the dice decide.

        Each die is taken modulo the number of outcomes, so any non-negative integers will do; 0
        when the dice are used up.
        """
        rolls = iter(dice)
        kept = _roll(rolls, len(self._journal) + 1)
        tree = dict(self._synced_tree)
        for kind, path, inode in self._journal[:kept]:
            _apply(tree, kind, path, inode)
        for inode in _inodes(tree):
            inode.written = bytearray(inode.stored())
            inode.dropped = []
            inode.written = bytearray(_after_crash(inode, rolls))
            inode.synced = bytes(inode.written)
        self._tree, self._synced_tree = tree, dict(tree)
        self._journal.clear()
        self.life += 1
        self.repair()

    def kill(self) -> None:
        """Simulate the end of the process: written data stays, handles become invalid."""
        self.life += 1

    def fails(self, path: str, call: str) -> bool:
        """True if a ``call`` (write, read or sync) on the path raises DiskError now."""
        return path.startswith(self.fails_under) and (
            (self.syncs_fail and call == "sync")
            or (self.writes_fail and call == "write")
            or (self.reads_fail and call == "read")
        )

    def check(self, path: str, call: str) -> None:
        """Raise DiskError if the call fails now."""
        if self.fails(path, call):
            self.failures += 1
            raise DiskError(path, _IO_ERROR)

    @property
    def is_failing(self) -> bool:
        """True if some calls raise DiskError now."""
        return self.syncs_fail or self.writes_fail or self.reads_fail

    def repair(self) -> None:
        """Let all calls succeed from now on. Bytes dropped by a failed sync remain dropped."""
        self.syncs_fail = self.writes_fail = self.reads_fail = False
        self.fails_under = ""

    def evict(self) -> None:
        """Evict the pages that a failed sync dropped: they are read from the device from now on."""
        for inode in _inodes(self._tree):
            inode.written = inode.without_dropped()
            inode.dropped = []

    def remount(self) -> None:
        """Unmount and mount, in one boot: everything is synced, except for bytes that a failed sync
        dropped; those are lost.
        """
        for inode in _inodes(self._tree):
            inode.synced = inode.stored()
            inode.written, inode.dropped = bytearray(inode.synced), []
        self._commit_names()
        self.life += 1

    def cut_file(self, path: str, size_bytes: int) -> None:
        """Damage a file: cut both images to ``size_bytes``."""
        inode = self._file(path)
        del inode.written[size_bytes:]
        inode.touched(size_bytes, _UNBOUNDED)
        inode.synced = inode.synced[:size_bytes]

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Damage a file: flip one bit in both images."""
        self.overwrite(path, position, bytes((self._file(path).written[position] ^ 1 << bit,)))

    def overwrite(self, path: str, position: int, content: bytes) -> None:
        """Damage a file: overwrite bytes in both images, as far as they have any there."""
        inode = self._file(path)
        for image in (inode.written, synced := bytearray(inode.synced)):
            end = min(position + len(content), len(image))
            image[position:end] = content[: max(end - position, 0)]
        inode.synced = bytes(synced)

    # -- internals

    def _file(self, path: str) -> _Inode:
        inode = self._tree.get(path)
        if inode is None:
            raise FileNotFoundError(path)
        return inode

    def _used_bytes(self) -> int:
        return sum(len(one.written) for one in _inodes(self._tree))

    def _commit_names(self) -> None:
        self._synced_tree = dict(self._tree)
        self._journal.clear()

    def _change(self, kind: str, path: str, inode: _Inode | None, *, rename: bool = False) -> None:
        change = (f"rename {kind}" if rename else kind, path, inode)
        _apply(self._tree, *change)
        self._journal.append(change)


def _inodes(tree: _Tree) -> list[_Inode]:
    """Return each file once, whatever its names are."""
    return list({id(one): one for one in tree.values() if one is not None}.values())


def _without(span: tuple[int, int], start: int, end: int) -> tuple[tuple[int, int], ...]:
    """Return the parts of a span before ``start`` and from ``end`` on; either may be empty."""
    return (span[0], min(span[1], start)), (max(span[0], end), span[1])


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _apply(tree: _Tree, kind: str, path: str, inode: _Inode | None) -> None:
    """Apply one change of names: link, unlink, or rename of the path after the word."""
    if kind == "link":
        tree[path] = inode
        return
    old = path if kind == "unlink" else kind.removeprefix("rename ")
    moved = [name for name in tree if name == old or name.startswith(f"{old}/")]
    for name in moved:
        one = tree.pop(name)
        if kind != "unlink":
            tree[path + name[len(old) :]] = one


def _roll(rolls: Iterator[int], outcomes: int) -> int:
    return next(rolls, 0) % outcomes


def _after_crash(inode: _Inode, rolls: Iterator[int]) -> bytes:
    """Return the synced bytes and a prefix of the appended ones, the last of them perhaps zeros."""
    written, synced = bytes(inode.written), inode.synced
    if not written.startswith(synced):
        return written if _roll(rolls, 2) else synced
    tail = written[len(synced) :]
    if not tail:
        return synced
    # The size of a file often survives where its last bytes do not: every second time, all of it.
    kept = min(_roll(rolls, 2 * len(tail) + 1), len(tail))
    torn = min(_roll(rolls, _TORN_BYTES + 1), kept)
    return synced + tail[: kept - torn] + bytes(torn)
