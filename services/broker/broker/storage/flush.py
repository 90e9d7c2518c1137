"""What of a log is not on disk yet, and the rounds that bring it there.

A round is one fdatasync for each file written since the last: begun and finished on the loop, run
in a thread. One round covers every partition (group commit).
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemark.storage.disk import DirectoryGoneError, Disk, DiskError, ExhaustedError, File

from broker.storage.checkpoint import PARTITION_METADATA
from broker.storage.directory import LogDirectory
from broker.storage.segment import INDEX, TIME_INDEX, TXN_INDEX, Segment

if TYPE_CHECKING:
    from broker.storage.log import Log

_NO_ROUND: Final = -1


class LogSync(NamedTuple):
    """One log's part of a round."""

    log: "Log"
    files: tuple[File, ...]
    directories: tuple[str, ...]
    segments: tuple[Segment, ...]
    """Those that had unsynced bytes."""


class FlushRound:
    """Holds its files open; ``run`` touches nothing else, so that the loop may append meanwhile."""

    __slots__ = ("_disk", "_note_failure", "error", "syncs")

    def __init__(
        self,
        disk: Disk,
        syncs: tuple[LogSync, ...],
        note_failure: Callable[[DiskError], None] = lambda _: None,
    ) -> None:
        """``note_failure`` is called where the sync failed, be it in a thread: what it dropped must
        not be forgotten if the process ends before the finish.
        """
        self._disk = disk
        self._note_failure = note_failure
        self.syncs = syncs
        self.error: DiskError | None = None

    def run(self) -> None:
        """Sync file by file; stops at the first failure, which is kept, told at the finish, never
        retried.
        """
        try:
            synced_directories: set[str] = set()
            for sync in self.syncs:
                for file in sync.files:
                    file.sync()
                for directory in sync.directories:
                    if directory not in synced_directories:
                        synced_directories.add(directory)
                        # The loop goes on meanwhile, and renames the directory of a deleted topic.
                        with contextlib.suppress(DirectoryGoneError):
                            self._disk.sync_directory(directory)
        except ExhaustedError as error:
            self.error = error
        except DiskError as error:
            self._note_failure(error)
            self.error = error

    def failed(self, shared: LogDirectory) -> None:
        """Fence, on the loop. A sync that could not even be asked for is no failed one: the next
        round does it.
        """
        assert self.error is not None
        shared.fence(self.error)
        if isinstance(self.error, ExhaustedError):
            for sync in self.syncs:
                sync.log.sync_put_off(sync)

    def run_or_raise(self) -> None:
        """For a stop, when nothing else runs."""
        self.run()
        if self.error is not None:
            raise self.error


def is_due(log: "Log", *, only_group: bool, now_ms: int, interval_ms: int) -> bool:
    """Whether a log with unsynced bytes belongs into the round that begins now.

    ``flush=group``: always. ``flush=os``: by flush.messages, flush.ms, the broker's interval, and
    when a segment was rolled.
    """
    config = log.config
    if config.flush == "group":
        return True
    if only_group:
        return False
    return (
        log.log_end - log.recovery_point >= config.flush_messages
        or now_ms - log.unsynced.since_ms >= min(config.flush_ms, interval_ms)
        or log.has_unsynced_rolled
    )


class UnsyncedBytes:
    """The part of one log that no sync covers yet.

        synced_end              S
        records    -------------|-----------------------|-----------> log end
        round under way         |   its files, up to F  |  dirty again since

    A truncation below F takes its part out of the round: what is written there afterwards is not
    what the round synced.
    """

    __slots__ = ("_flushing_end", "_segments", "directory_changed", "since_ms", "synced_end")

    def __init__(self, synced_end: int, now_ms: int) -> None:
        self.synced_end = synced_end
        """Exclusive: every record below it is on disk."""
        self.since_ms = now_ms
        """When the oldest unsynced byte was written, wall time."""
        self.directory_changed = False
        """A file was made: its name is not on disk yet."""
        self._segments: list[Segment] = []
        self._flushing_end = _NO_ROUND

    def add(self, segment: Segment, now_ms: int) -> None:
        """A segment without unsynced bytes gets some."""
        segment.dirty = True
        if not self._segments:
            self.since_ms = now_ms
        self._segments.append(segment)

    def has_other_than(self, active: Segment) -> bool:
        """Whether a segment waits that will not grow any more."""
        return bool(self._segments) and self._segments[0] is not active

    def __bool__(self) -> bool:
        return bool(self._segments) or self.directory_changed

    def forget(self, segments: Sequence[Segment]) -> None:
        """These leave the log."""
        for segment in segments:
            if segment.dirty:
                segment.dirty = False
                self._segments.remove(segment)

    def cut_to(self, end: int) -> None:
        """The log was truncated: what will be written from ``end`` on is on disk nowhere."""
        self.synced_end = min(self.synced_end, end)
        self._flushing_end = min(self._flushing_end, end)

    def begin(
        self, shared: LogDirectory, active: Segment, log_end: int
    ) -> tuple[tuple[File, ...], tuple[str, ...], tuple[Segment, ...]]:
        """Files and directories to sync for all that is there now, and whose bytes those are.
        Raises DiskError, undone.

        Index files of rolled segments come along: they are not looked at again by recovery; so do
        those of aborted transactions, which recovery believes as far as the log is synced.
        """
        disk = shared.disk
        files = []
        for segment in self._segments:
            files.append(shared.warm(segment))
            segment.write_indexes(disk)
            if segment.txns.has_file:
                files += _existing(disk, segment.stem, (TXN_INDEX,))
            if segment is not active:
                files += _existing(disk, segment.stem, (INDEX, TIME_INDEX))
        directories: tuple[str, ...] = ()
        if self.directory_changed:
            files += _existing(disk, f"{active.directory}/", (PARTITION_METADATA,))
            directories = (active.directory, "")
        self.directory_changed = False
        dirty = tuple(self._segments)
        for segment in dirty:
            segment.dirty = False
        self._segments = []
        self._flushing_end = log_end
        return tuple(files), directories, dirty

    def put_off(self, segments: Sequence[Segment], directories: Sequence[str]) -> None:
        """What ``begin`` named was not synced, and nothing failed: it stays to be done."""
        self._flushing_end = _NO_ROUND
        self.directory_changed = self.directory_changed or bool(directories)
        again = [one for one in segments if not one.dirty]
        for segment in again:
            segment.dirty = True
        self._segments = again + self._segments

    def finish(self) -> int:
        """All that ``begin`` named is on disk; the synced end that makes."""
        self.synced_end = max(self.synced_end, self._flushing_end)
        self._flushing_end = _NO_ROUND
        return self.synced_end


def _existing(disk: Disk, stem: str, suffixes: Sequence[str]) -> list[File]:
    return [disk.open(stem + suffix) for suffix in suffixes if disk.exists(stem + suffix)]
