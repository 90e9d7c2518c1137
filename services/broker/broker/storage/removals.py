"""Removals: files and directories that left the logs, until they are removed.

The kernel needs up to a second for a file of a gigabyte, and a deleted topic may have thousands. So
a round is begun and finished on the loop, and run in a thread: unlink releases the GIL.
"""

from collections.abc import Sequence
from typing import Final

from tidemark.storage.disk import Disk, DiskError


class _Left:
    """One path that is to be removed once ``due_ms`` has come."""

    __slots__ = ("due_ms", "path")

    def __init__(self, path: str, due_ms: int) -> None:
        self.path = path
        self.due_ms = due_ms


class RemovalRound:
    """Paths that are removed together. ``run`` touches nothing but the disk."""

    __slots__ = ("_disk", "_is_stopped", "due", "error", "removed")

    def __init__(self, disk: Disk, due: Sequence[_Left]) -> None:
        self._disk = disk
        self._is_stopped = False
        self.due: Final = tuple((left, left.path) for left in due)
        """Paths that are due, each with its name when the round began."""
        self.removed = 0
        """Number of paths, from the first, that are gone."""
        self.error: DiskError | None = None

    def run(self) -> None:
        """Remove path by path. The first failure ends the round, and is kept until the finish."""
        try:
            for _, path in self.due:
                for name in self._disk.list(path):  # of a directory: one stops between its files
                    if self._is_stopped:
                        return
                    self._disk.remove(f"{path}/{name}")
                if self._is_stopped:
                    return
                self._disk.remove(path)
                self.removed += 1
        except DiskError as failure:
            self.error = failure

    def stop(self) -> None:
        """End the round early; idempotent. Another thread may run it."""
        self._is_stopped = True


class Removals:
    """Paths that one log directory has to remove. ``begin`` and ``finish`` are for the loop."""

    __slots__ = ("_disk", "_left", "_round")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._left: list[_Left] = []
        self._round: RemovalRound | None = None

    def add(self, path: str, due_ms: int) -> None:
        """Remove a renamed file or directory once ``due_ms`` has come."""
        self._left.append(_Left(path, due_ms))

    def renamed(self, old: str, new: str) -> None:
        """Note that a directory was renamed with all that is to be removed in it."""
        for left in self._left:
            if left.path.startswith(f"{old}/"):
                left.path = new + left.path.removeprefix(old)

    def begin(self, now_ms: int) -> RemovalRound | None:
        """Return the round that is due now, or None if none is or one is in progress."""
        if self._round is not None:
            return None
        due = [left for left in self._left if left.due_ms <= now_ms]
        self._round = RemovalRound(self._disk, due) if due else None
        return self._round

    def finish(self, finished: RemovalRound) -> None:
        """Forget what the round has removed, unless it got another path meanwhile. Raises its
        DiskError; after one that is no ExhaustedError the directory is out of service.
        """
        assert finished is self._round, "one round at a time"
        self._round = None
        gone = {left for left, path in finished.due[: finished.removed] if left.path == path}
        self._left = [left for left in self._left if left not in gone]
        if finished.error is not None:
            raise finished.error
