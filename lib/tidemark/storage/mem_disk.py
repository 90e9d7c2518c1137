"""MemDisk: a disk in memory that forgets what was not synced, and fails when told to.

Every file has two images, what was written and what was synced; the tree has the names as they are
and a journal of the changes that no ``sync_directory`` (nor synced ``replace_whole``) covers yet.
``crash`` keeps what was synced and, as dice from outside decide, some of the rest: a prefix of the
journal (as a journalling file system does), and for each file a prefix of what was appended, whose
last bytes may be zeros.

A sync that fails may take the pages for written all the same (``drops_pages``), as Linux does: they
stay readable, no later sync writes them, and they are gone once the kernel needs their memory
(``evict``), the file system is unmounted (``remount``) or the power fails.
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
    """One file's bytes, whatever its names are."""

    __slots__ = ("dropped", "synced", "written")

    def __init__(self) -> None:
        self.written = bytearray()
        self.synced = b""
        self.dropped: list[tuple[int, int]] = []
        """(start, end) of bytes that count as synced and never were, in order."""

    def drop(self) -> None:
        """A sync has failed: what differs from the device counts as synced."""
        written, synced = self.written, self.synced
        pairs = enumerate(zip(written, synced, strict=False))
        start = next((at for at, (new, old) in pairs if new != old), min(len(written), len(synced)))
        self.dropped = [(start, len(written))] if start < len(written) else []

    def touched(self, start: int, end: int) -> None:
        """These bytes are written again: the next sync writes them."""
        if self.dropped:
            around = [part for one in self.dropped for part in _without(one, start, end)]
            self.dropped = [one for one in around if one[0] < one[1]]

    def stored(self) -> bytes:
        """What a sync that succeeds leaves on the device: a hole reads as zeros, and a dropped end
        is not there.
        """
        if not self.dropped:
            return bytes(self.written)
        content = self.without_dropped()
        start, end = self.dropped[-1]
        if end == len(content):
            del content[max(start, min(end, len(self.synced))) :]
        return bytes(content)

    def without_dropped(self) -> bytearray:
        """What is read once the dropped pages are gone from memory, while the file is in use."""
        content = bytearray(self.written)
        for start, end in self.dropped:
            content[start:end] = self.synced[start:end].ljust(end - start, b"\0")
        return content


_Tree = dict[str, _Inode | None]
"""Path to file, or to None for a directory."""


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
        """Bytes written so far, synced or not."""
        return len(self._inode.written)

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Writes what fits; raises DiskFullError when that is not all."""
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
        """Up to ``length`` bytes; fewer only at the end of the file."""
        self._check("read")
        return bytes(self._inode.written[position : position + length])

    def sync(self) -> None:
        """What is written becomes what a crash leaves."""
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
        """Nothing to give back."""

    def _check(self, call: str = "") -> None:
        if self._life != self.disk.life:
            raise DiskError(self.path, "opened before the crash")
        self.disk.check(self.path, call)


class MemDisk:
    """A directory tree in memory. See tidemark.storage.disk.Disk for the contract."""

    def __init__(self, capacity_bytes: int = _UNBOUNDED) -> None:
        self.capacity_bytes = capacity_bytes
        """Set it lower to fill the disk, higher to make room."""
        self.syncs_fail = False
        """From now on every sync raises DiskError, as a broken device does."""
        self.writes_fail = False
        """From now on every change does; of a file's bytes half are written all the same."""
        self.reads_fail = False
        self.fails_under = ""
        """Only paths that begin so fail; '': all."""
        self.failures = 0
        """Calls that have failed so far."""
        self.drops_pages = False
        """A sync that fails takes the bytes for written; else a later one writes them."""
        self.exhausted = False
        """From now on no file can be opened, as when the process has no descriptor left."""
        self.life = 0
        """Raised by every crash: handles of an earlier life are dead."""
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
        """Whether a file or directory is there."""
        return path in self._tree

    def size_of(self, path: str) -> int:
        """Bytes of a file. Raises FileNotFoundError."""
        return len(self._file(path).written)

    def list(self, directory: str) -> list[str]:
        """Names in a directory, sorted; [] if there is none."""
        self._check_room(directory)
        start = f"{directory}/" if directory else ""
        return sorted(
            path[len(start) :]
            for path in self._tree
            if path and path.startswith(start) and "/" not in path[len(start) :]
        )

    def make_directory(self, path: str) -> None:
        """With its parents; silent if it exists."""
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
        """Remove a file, or a directory with all in it; silent if it is gone."""
        if path in self._tree:
            self.check(path, "write")
            self._change("unlink", path, None)

    def read_whole(self, path: str) -> bytes:
        """A small file's content. Raises FileNotFoundError."""
        self._check_room(path)
        inode = self._file(path)
        self.check(path, "read")
        return bytes(inode.written)

    def replace_whole(self, path: str, content: bytes, *, sync: bool = True) -> None:
        """The new content appears whole; with ``sync`` it is durable on return."""
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
        """Space left."""
        return max(self.capacity_bytes - self._used_bytes(), 0)

    # -- faults

    def _check_room(self, path: str) -> None:
        if self.exhausted:
            raise ExhaustedError(path, "Too many open files")

    def room_for(self, growth_bytes: int) -> int:
        """How many of ``growth_bytes`` do not fit."""
        if self.capacity_bytes == _UNBOUNDED:
            return 0
        return max(growth_bytes - self.free_bytes(), 0)

    def crash(self, dice: Iterable[int] = ()) -> None:
        """The power fails: keep what was synced, and of the rest what the dice say (0 when out).

        Each die is used modulo the number of outcomes, so that any non-negative ints do.
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
        """The process dies, the kernel lives on: all that was written is there, handles are not."""
        self.life += 1

    def fails(self, path: str, call: str) -> bool:
        """Whether a ``call`` (write, read or sync) on the path raises DiskError now."""
        return path.startswith(self.fails_under) and (
            (self.syncs_fail and call == "sync")
            or (self.writes_fail and call == "write")
            or (self.reads_fail and call == "read")
        )

    def check(self, path: str, call: str) -> None:
        """Raises DiskError when the call fails."""
        if self.fails(path, call):
            self.failures += 1
            raise DiskError(path, _IO_ERROR)

    @property
    def is_failing(self) -> bool:
        """Whether some calls raise DiskError now."""
        return self.syncs_fail or self.writes_fail or self.reads_fail

    def repair(self) -> None:
        """Nothing fails from now on. What a failed sync dropped is not on the device for that."""
        self.syncs_fail = self.writes_fail = self.reads_fail = False
        self.fails_under = ""

    def evict(self) -> None:
        """The kernel needs memory: pages that a failed sync dropped are read from the device."""
        for inode in _inodes(self._tree):
            inode.written = inode.without_dropped()
            inode.dropped = []

    def remount(self) -> None:
        """Unmount and mount, in one boot: all is synced but what a failed sync dropped, and that is
        gone.
        """
        for inode in _inodes(self._tree):
            inode.synced = inode.stored()
            inode.written, inode.dropped = bytearray(inode.synced), []
        self._commit_names()
        self.life += 1

    def cut_file(self, path: str, size_bytes: int) -> None:
        """Damage: what is behind is gone from both images."""
        inode = self._file(path)
        del inode.written[size_bytes:]
        inode.touched(size_bytes, _UNBOUNDED)
        inode.synced = inode.synced[:size_bytes]

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Damage one bit of a file, in both images."""
        self.overwrite(path, position, bytes((self._file(path).written[position] ^ 1 << bit,)))

    def overwrite(self, path: str, position: int, content: bytes) -> None:
        """Damage: other bytes in a file, in both images as far as they have any there."""
        inode = self._file(path)
        for image in (inode.written, synced := bytearray(inode.synced)):
            end = min(position + len(content), len(image))
            image[position:end] = content[: max(end - position, 0)]
        inode.synced = bytes(synced)

    # -- inside

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
    """Each once, whatever its names are."""
    return list({id(one): one for one in tree.values() if one is not None}.values())


def _without(span: tuple[int, int], start: int, end: int) -> tuple[tuple[int, int], ...]:
    """What is left of a span before ``start`` and from ``end`` on; either may be empty."""
    return (span[0], min(span[1], start)), (max(span[0], end), span[1])


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _apply(tree: _Tree, kind: str, path: str, inode: _Inode | None) -> None:
    """One change of names: link, unlink, or rename of the path after the word."""
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
    """Synced bytes, then a prefix of what was appended to them, the last of it perhaps zeros."""
    written, synced = bytes(inode.written), inode.synced
    if not written.startswith(synced):
        return written if _roll(rolls, 2) else synced
    tail = written[len(synced) :]
    if not tail:
        return synced
    # A file's size is often kept where its last bytes are not: every second time, all of it.
    kept = min(_roll(rolls, 2 * len(tail) + 1), len(tail))
    torn = min(_roll(rolls, _TORN_BYTES + 1), kept)
    return synced + tail[: kept - torn] + bytes(torn)
