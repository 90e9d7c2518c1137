"""Future logs of one log directory: copies of logs that move here from other directories (KIP-113).

    <topic>-<partition>.<topic id>-future/    as the directory of a partition, and in it
        moved-from                            the ids of the directories that the log comes from

One rename puts a future log in the place of the log: that of its directory to the partition's name.
``moved-from`` comes along. A crash before the rename leaves the log in its old directory alone; a
crash after it leaves two, of which the one that ``moved-from`` names is void. So there is one valid
log at any moment, on whichever devices the directories are.
"""

import json
from collections.abc import Callable, Iterable
from typing import Final

from tidemark.model.ids import TopicId
from tidemark.model.topic_configs import TopicConfig
from tidemark.model.topics import TopicPartition
from tidemark.storage.disk import Disk, DiskError

from broker.storage.checkpoint import CheckpointError, NewerVersionError, check_version
from broker.storage.directory import LogDirectory
from broker.storage.directory_names import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    future_name,
    rename_away,
)
from broker.storage.flush import FlushRound
from broker.storage.log import Log
from broker.storage.log_making import make_files, make_log
from broker.storage.offset_checkpoints import OffsetCheckpoints

MOVED_FROM: Final = "moved-from"
_VERSION: Final = 0


class FutureLogs:
    """Future logs of one directory, and where its logs were moved from. Synchronous.

    The checkpoints of the directory have a future log under its partition, for a directory never
    has a log and a future log of the same one.
    """

    def __init__(
        self,
        shared: LogDirectory,
        offsets: OffsetCheckpoints,
        *,
        current: dict[TopicPartition, Log],
        logs: dict[TopicPartition, Log],
        note_failure: Callable[[DiskError], None],
    ) -> None:
        self._shared = shared
        self._offsets = offsets
        self._current = current
        self._note_failure = note_failure
        self.logs = logs
        """Future logs by partition."""
        self.moved_from: dict[TopicPartition, frozenset[str]] = {}
        """Ids of the directories in which a void log of a partition may be left."""
        self._rounds: dict[Log, FlushRound] = {}

    def create(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: TopicConfig,
        sources: Iterable[str],
        now_ms: int,
    ) -> Log:
        """Create an empty future log. ``sources``: ids of the directories that have, or may still
        have, a log of the partition. Raises DiskError.
        """
        assert topic_partition not in self._current, topic_partition
        assert topic_partition not in self.logs, topic_partition
        shared, disk = self._shared, self._shared.disk
        shared.raise_if_fenced()
        disk.expect_room()
        shared.now_ms = max(shared.now_ms, now_ms)
        name = future_name(topic_partition, topic_id)
        try:
            self._offsets.forget(topic_partition, shared.gaps_below)
            if disk.exists(name):
                self._remove_later(name)
            recovered = make_files(disk, name, topic_id, now_ms)
            _write_sources(disk, name, sources)
        except DiskError as error:
            shared.fence(error)
            raise
        log = make_log(shared, topic_partition, topic_id, config, recovered)
        self.found(log)
        log.files_changed()
        return log

    def found(self, log: Log) -> None:
        """Add a future log, as created or as recovered by a start."""
        log.is_future = True
        self.logs[log.topic_partition] = log

    def discard(self, topic_partition: TopicPartition) -> None:
        """Remove a future log, later its files. Raises DiskError."""
        self._remove_later(self.forget(topic_partition).directory)

    def forget(self, topic_partition: TopicPartition) -> Log:
        """Remove a future log, and leave its files alone: its directory is out of service."""
        log = self.logs.pop(topic_partition)
        self._rounds.pop(log, None)
        log.close(clean=False)
        return log

    def discard_files(self, directory: str) -> None:
        """Remove the files of a future log that the start found and does not trust. Raises
        DiskError.
        """
        self._remove_later(directory)

    def _remove_later(self, directory: str) -> None:
        name = rename_away(self._shared.disk, directory, "", DELETE_SUFFIX)
        self._shared.remove_later(name, self._shared.now_ms)

    # -- sync

    def begin_sync(self, log: Log) -> FlushRound:
        """Return a round that syncs one future log: run it in a thread, then ``finish_sync`` on the
        loop. Raises DiskError, LogDamagedError.
        """
        assert log not in self._rounds, log.topic_partition
        sync = log.begin_sync()
        path = f"{log.directory}/{MOVED_FROM}"
        extra = (self._shared.disk.open(path),) if self._shared.disk.exists(path) else ()
        begun = FlushRound(
            self._shared.disk,
            (sync._replace(files=(*sync.files, *extra)),),
            self._note_failure,
        )
        self._rounds[log] = begun
        return begun

    def finish_sync(self, log: Log) -> DiskError | None:
        """Finish the round of a future log. Return its error, with the directory fenced."""
        begun = self._rounds.pop(log, None)
        if begun is None:
            return None  # the future log was discarded meanwhile
        if begun.error is not None:
            begun.failed(self._shared)
            return begun.error
        log.unsynced.finish()
        return None

    # -- the change of places

    def promote(self, log: Log, high_watermark: int) -> Log:
        """Put the future log in the place of ``log``, all of whose records it has. Raises DiskError
        with the log in its place, and then the future log must be discarded.
        """
        topic_partition, shared, disk = log.topic_partition, self._shared, self._shared.disk
        future = self.logs[topic_partition]
        assert future.log_end == log.log_end, (future.log_end, log.log_end)
        shared.raise_if_fenced()
        disk.expect_room()
        name, marks = str(topic_partition), self._offsets.high_watermarks
        try:
            self._offsets.save_high_watermarks({**marks, topic_partition: high_watermark})
            if disk.exists(name):
                rename_away(disk, name, "", STRAY_SUFFIX)
            sources = _read_sources(disk, future.directory)
            future.adopt(log)
            disk.rename(future.directory, name)
        except DiskError as error:
            shared.fence(error)
            raise
        future.moved_to(name)
        future.is_future = False
        del self.logs[topic_partition]
        self._current[topic_partition] = future
        self.moved_from[topic_partition] = sources
        return future

    def load_sources(self, topic_partition: TopicPartition, directory: str) -> None:
        """Read where a log was moved from, at the start. Raises DiskError."""
        if sources := _read_sources(self._shared.disk, directory):
            self.moved_from[topic_partition] = sources

    def forget_sources(self, topic_partition: TopicPartition) -> None:
        """Note that no void log of a partition is left. Raises DiskError."""
        if self.moved_from.pop(topic_partition, None) is not None:
            self._shared.disk.remove(f"{topic_partition}/{MOVED_FROM}")

    # -- stop

    def finish_rounds(self) -> None:
        """Run and finish the rounds that were interrupted, before the logs are closed."""
        for log, begun in tuple(self._rounds.items()):
            begun.run()
            self.finish_sync(log)


def _write_sources(disk: Disk, directory: str, sources: Iterable[str]) -> None:
    content = json.dumps({"version": _VERSION, "directories": sorted(sources)}) + "\n"
    disk.replace_whole(f"{directory}/{MOVED_FROM}", content.encode(), sync=False)


def _read_sources(disk: Disk, directory: str) -> frozenset[str]:
    """Return the ids of directories; none if the log was not moved, or the file cannot be read: two
    logs of a partition are then compared. Raises NewerVersionError.
    """
    path = f"{directory}/{MOVED_FROM}"
    if not disk.exists(path):
        return frozenset()
    try:
        fields = json.loads(disk.read_whole(path))
        check_version(path, str(int(fields["version"])))
        return frozenset(str(one) for one in fields["directories"])
    except NewerVersionError:
        raise
    except (CheckpointError, ValueError, KeyError, TypeError):
        return frozenset()
