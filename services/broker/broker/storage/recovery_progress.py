"""Progress of the recovery of logs at a start, which may take hours after a crash."""

from collections.abc import Iterable, Iterator
from typing import Final

from broker.storage.directory_names import future_of, partition_of

_UNKNOWN: Final = -1


class DirectoryProgress:
    """Logs of one directory that are still to be recovered. One thread recovers, others read."""

    def __init__(self) -> None:
        self.total = _UNKNOWN
        """Number of logs; -1 until the directory is looked at."""
        self.begun = 0
        self.current = ""
        """Log that is being recovered."""
        self.is_over = False

    @property
    def remaining(self) -> int:
        """Number of logs that are not recovered yet, the one in work included; 0 before the
        directory is looked at, and when it is over.
        """
        return 0 if self.is_over else max(0, self.total - max(0, self.begun - 1))

    def look(self, names: Iterable[str]) -> None:
        """Count the logs among the names in the directory."""
        self.total = sum(
            partition_of(name) is not None or future_of(name) is not None for name in names
        )

    def begin(self, log: str) -> None:
        """Note that a log is being recovered; the one before is finished."""
        self.begun += 1
        self.current = log

    def finish(self) -> None:
        """Note that nothing is left."""
        self.is_over = True


class RecoveryProgress:
    """Progress of all directories, in the order in which they are loaded."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.by_path: dict[str, DirectoryProgress] = {path: DirectoryProgress() for path in paths}

    def of(self, path: str) -> DirectoryProgress:
        """Return the progress of one directory."""
        return self.by_path.setdefault(path, DirectoryProgress())

    def leave_out(self, paths: Iterable[str]) -> None:
        """Note that directories are not loaded."""
        for path in paths:
            self.of(path).finish()

    def words(self) -> str:
        """Return what is left, in one line."""
        parts = list(self._parts())
        return f"recovering logs: {'; '.join(parts)}" if parts else "log directories are open"

    def _parts(self) -> Iterator[str]:
        for path, one in self.by_path.items():
            if one.is_over:
                continue
            if one.total == _UNKNOWN:
                yield f"{path} is not looked at yet"
            else:
                now = f", {one.current} now" if one.current else ""
                yield f"{one.remaining} of {one.total} left in {path}{now}"
