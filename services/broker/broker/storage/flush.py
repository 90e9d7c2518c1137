"""The unsynced part of a log, and the rounds that sync it.

A round is one fdatasync for each file written since the last: begun and finished on the loop, run
in a thread. One round covers every partition (group commit).
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemark.storage.disk import DirectoryGoneError, Disk, DiskError, ExhaustedError, File

from broker.storage.checkpoint import PARTITION_METADATA
from broker.storage.directory import LogDamagedError, LogDirectory
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
    """Segments that had unsynced bytes."""


class FlushRound:
    """One round. It holds its files open, and ``run`` touches nothing else: the loop may append."""

    __slots__ = ("_disk", "_note_failure", "_put_off", "_synced", "error", "syncs")

    def __init__(
        self,
        disk: Disk,
        syncs: tuple[LogSync, ...],
        note_failure: Callable[[DiskError], None] = lambda _: None,
    ) -> None:
        """Create a round; ``note_failure`` is called where a sync failed, possibly in a thread, so
        that the failure is recorded even if the process ends before the finish.
        """
        self._disk = disk
        self._note_failure = note_failure
        self.syncs = syncs
        self.error: DiskError | None = None
        self._put_off: list[LogSync] = []
        self._synced: list[LogSync] = []

    def run(self) -> None:
        """Sync file by file. The first failure stops the round; it is kept until the finish and
        never retried. Without a descriptor a log is left out, and the others go on.
        """
        try:
            synced_directories: set[str] = set()
            for sync in self.syncs:
                try:
                    self._sync(sync, synced_directories)
                    self._synced.append(sync)
                except ExhaustedError as exhausted:
                    self.error = exhausted
                    self._put_off.append(sync)
        except DiskError as failure:
            self._note_failure(failure)
            self.error = failure

    def _sync(self, sync: LogSync, synced_directories: set[str]) -> None:
        for file in sync.files:
            file.sync()
        for directory in sync.directories:
            if directory not in synced_directories:
                # The loop continues meanwhile, and may rename the directory of a deleted topic.
                with contextlib.suppress(DirectoryGoneError):
                    self._disk.sync_directory(directory)
                synced_directories.add(directory)

    def failed(self, shared: LogDirectory) -> list[LogSync]:
        """Fence the directory, on the loop. A sync that could not be started has not failed: the
        next round repeats it. Return the parts that were synced all the same.
        """
        assert self.error is not None
        shared.fence(self.error)
        if not isinstance(self.error, ExhaustedError):
            return []
        for sync in self._put_off:
            sync.log.sync_put_off(sync)
        return self._synced

    def run_or_raise(self) -> None:
        """Run the round and raise its error; for a shutdown, when nothing else runs."""
        self.run()
        if self.error is not None:
            raise self.error


def begin_syncs(logs: Sequence["Log"]) -> list[LogSync]:
    """Return the parts of all these logs in one round, or of none: a part that is begun and not
    run would pass for synced. Raises DiskError.
    """
    syncs: list[LogSync] = []
    try:
        for log in logs:
            with contextlib.suppress(LogDamagedError):  # kept in log.damage
                syncs.append(log.begin_sync())
    except DiskError:
        for sync in syncs:
            sync.log.sync_put_off(sync)
        raise
    return syncs


def is_due(log: "Log", *, only_group: bool, now_ms: int, interval_ms: int) -> bool:
    """True if a log with unsynced bytes belongs in the round that begins now.

    ``flush=group``: always. ``flush=os``: by flush.messages, flush.ms, the broker's interval, and
    after a segment was rolled.
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
        round in progress       |   its files, up to F  |  dirty again since

    A truncation below F removes its part from the round: bytes written there afterwards are not
    those that the round synced.
    """

    __slots__ = (
        "_flushing_end",
        "_segments",
        "directory_changed",
        "saved_end",
        "since_ms",
        "synced_end",
    )

    def __init__(self, synced_end: int, now_ms: int) -> None:
        self.synced_end = synced_end
        """Exclusive: every record below it is on disk."""
        self.saved_end = synced_end
        """``synced_end`` as last checkpointed: the recovery point of a start after a crash."""
        self.since_ms = now_ms
        """Wall time at which the oldest unsynced byte was written."""
        self.directory_changed = False
        """True if a file was created whose name is not on disk yet."""
        self._segments: list[Segment] = []
        self._flushing_end = _NO_ROUND

    def add(self, segment: Segment, now_ms: int) -> None:
        """Add a segment that has its first unsynced bytes."""
        segment.dirty = True
        if not self._segments:
            self.since_ms = now_ms
        self._segments.append(segment)

    def has_other_than(self, active: Segment) -> bool:
        """True if a segment waits for a sync that will not grow further."""
        return bool(self._segments) and self._segments[0] is not active

    def __bool__(self) -> bool:
        return bool(self._segments) or self.directory_changed

    def forget(self, segments: Sequence[Segment]) -> None:
        """Remove segments that leave the log."""
        for segment in segments:
            if segment.dirty:
                segment.dirty = False
                self._segments.remove(segment)

    def cut_to(self, end: int) -> None:
        """Truncate: bytes written from ``end`` on are not on disk."""
        self.synced_end = min(self.synced_end, end)
        self.saved_end = min(self.saved_end, end)
        self._flushing_end = min(self._flushing_end, end)

    def begin(
        self, shared: LogDirectory, active: Segment, log_end: int
    ) -> tuple[tuple[File, ...], tuple[str, ...], tuple[Segment, ...]]:
        """Return the files and directories to sync, and the segments whose bytes they hold. On a
        DiskError nothing changes.

        Index files of rolled segments are included, since recovery does not read them again. So are
        those of aborted transactions, which recovery trusts as far as the log is synced.
        """
        disk = shared.disk
        files = []
        for segment in self._segments:
            files.append(shared.warm_at_once(segment))
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
        """Keep what ``begin`` returned for the next round, after a round that was not run and did
        not fail.
        """
        self._flushing_end = _NO_ROUND
        self.directory_changed = self.directory_changed or bool(directories)
        again = [one for one in segments if not one.dirty]
        for segment in again:
            segment.dirty = True
        self._segments = again + self._segments

    def finish(self) -> int:
        """Finish a round that synced all that ``begin`` returned; return the new synced end."""
        self.synced_end = max(self.synced_end, self._flushing_end)
        self._flushing_end = _NO_ROUND
        return self.synced_end


def _existing(disk: Disk, stem: str, suffixes: Sequence[str]) -> list[File]:
    return [disk.open(stem + suffix) for suffix in suffixes if disk.exists(stem + suffix)]
