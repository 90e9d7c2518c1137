"""DirectoryMove: decisions about the move of a replica between log directories (KIP-113). Pure.

The *future log* is a copy of the log in the other directory. It takes the log's place when it
has everything that the log has:

    COPYING   batches are copied, at the rate of the throttle
    CLOSING   the copy had reached the log's end. It is synced, and meanwhile records count as
              synced only if both logs have them on disk. The rest is copied without a pause

The log goes on meanwhile: it is appended to, cut where its leader's log differs, and starts later.
The future log follows by what they have in common, so nothing that left the log comes back.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_EPOCH, NO_OFFSET

from broker.core.leader_epochs import LeaderEpochs

NEVER_CUT: Final = 2**63 - 1
SYNC_EVERY_BYTES: Final = 64 * 1024 * 1024
"""Bytes of a copy that may wait for a sync: the kernel writes them back at an even rate."""
CLOSING_CHUNKS_MAX: Final = 4
"""Chunks that may be copied without a pause, while nothing else runs, before the places change."""


class Place(Enum):
    """Location of the replica that a request names, for its broker."""

    HERE = auto()
    FAILED = auto()
    """Its log directory is out of service."""
    NOT_YET = auto()
    """The topic has the partition, and this broker has no replica of it."""
    UNKNOWN = auto()
    """The metadata have no such partition."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A replica, and the directory that a request wants it in."""

    place: Place
    name_fits: bool
    """True if the name of a future log is not too long for a directory."""
    is_listed: bool
    """True if log.dirs has the directory."""
    is_online: bool
    all_online: bool = True
    """False if any directory is out of service: the partition may have a future log there."""
    is_current: bool = False
    """True if the log is in the directory already."""
    is_future: bool = False
    """True if a future log is in the directory already."""
    moves: bool = False
    """True if there is a future log, wherever it is."""


class Verdict(NamedTuple):
    """Answer to a request, and what follows from it."""

    error_code: ErrorCode
    cancels: bool = False
    """The move that goes on is given up."""
    begins: bool = False
    remembers: bool = False
    """A log of this partition is to be created in that directory."""


def judge(wanted: Wanted) -> Verdict:
    """Decide about one replica of a request as Kafka does. A request that names another directory
    than the move that goes on replaces it, even if it then fails.
    """
    if not wanted.name_fits:
        return Verdict(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if not wanted.is_listed:
        return Verdict(ErrorCode.LOG_DIR_NOT_FOUND)
    if not wanted.is_online or wanted.place is Place.FAILED:
        return Verdict(ErrorCode.KAFKA_STORAGE_ERROR)
    if wanted.place is Place.NOT_YET:
        return Verdict(ErrorCode.REPLICA_NOT_AVAILABLE, remembers=True)
    if wanted.place is Place.UNKNOWN:
        return Verdict(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, remembers=True)
    cancels = wanted.moves and not wanted.is_future
    if wanted.is_current or wanted.is_future:
        return Verdict(ErrorCode.NONE, cancels=cancels)
    if not wanted.all_online:
        return Verdict(ErrorCode.KAFKA_STORAGE_ERROR, cancels=cancels)
    return Verdict(ErrorCode.NONE, cancels=cancels, begins=True)


class LogView(NamedTuple):
    """The log that is copied, as it is now."""

    log_start: int
    log_end: int
    synced_end: int
    """Records below it count as synced (``flush=group``)."""
    cut_to: int = NEVER_CUT
    """Lowest end to which it was cut since the future log was last compared with it."""


class FutureView(NamedTuple):
    """The future log, as it is now."""

    log_start: int
    log_end: int
    synced_end: int


class Phase(Enum):
    """Phase of a move."""

    COPYING = auto()
    CLOSING = auto()


@dataclass(frozen=True, slots=True)
class Cut:
    """Cut the future log: from ``end`` on, the log has other records or none."""

    end: int


@dataclass(frozen=True, slots=True)
class Restart:
    """Empty the future log: everything that it has was removed from the log."""

    start: int


@dataclass(frozen=True, slots=True)
class Advance:
    """Let the future log start where the log starts."""

    start: int


@dataclass(frozen=True, slots=True)
class Copy:
    """Append to the future log what the log has from ``offset`` on, up to a chunk."""

    offset: int
    at_once: bool
    """Without a pause: it is little, and in memory."""


@dataclass(frozen=True, slots=True)
class Sync:
    """Sync the future log."""


@dataclass(frozen=True, slots=True)
class Swap:
    """Put the future log in the log's place."""


Step = Cut | Restart | Advance | Copy | Sync | Swap


class DirectoryMove:
    """Progress of one move. ``next_step`` decides by the present state of both logs, so a step that
    failed is decided on again.
    """

    __slots__ = ("_chunks_left", "_is_sync_due", "_unsynced_bytes", "phase")

    def __init__(self) -> None:
        self.phase = Phase.COPYING
        self._unsynced_bytes = 0
        self._is_sync_due = False
        self._chunks_left = 0

    def next_step(self, log: LogView, future: FutureView) -> Step:
        """Return what is to be done now. A swap is only valid while the log does not change."""
        common = min(log.cut_to, log.log_end)
        if future.log_end > common:
            return Cut(common)
        if future.log_end < log.log_start:
            return Restart(log.log_start)
        if future.log_start < log.log_start:
            return Advance(log.log_start)
        if self._unsynced_bytes >= SYNC_EVERY_BYTES:
            return Sync()
        if future.log_end < log.log_end:
            return self._copy(future)
        if self.phase is Phase.COPYING:
            self.phase, self._is_sync_due = Phase.CLOSING, True
        if self._is_sync_due or future.synced_end < log.synced_end:
            self._chunks_left = CLOSING_CHUNKS_MAX
            return Sync()
        return Swap()

    def _copy(self, future: FutureView) -> Copy:
        if self.phase is Phase.CLOSING:
            if self._chunks_left == 0:
                self.phase = Phase.COPYING
            self._chunks_left -= 1
        return Copy(future.log_end, self.phase is Phase.CLOSING)

    def copied(self, size_bytes: int) -> None:
        """Note that so many bytes were appended to the future log."""
        self._unsynced_bytes += size_bytes

    def synced(self) -> None:
        """Note that the future log was synced."""
        self._unsynced_bytes, self._is_sync_due = 0, False

    def put_off(self) -> None:
        """Note that the move has to wait: it closes later, and no record waits for the copy."""
        self.phase = Phase.COPYING

    def counted_end(self, synced_end: int, future_synced_end: int) -> int:
        """Return the end below which records count as synced, given those of both logs. While the
        move closes, a record must survive a power failure whichever log is the partition's then.
        """
        if self.phase is Phase.CLOSING:
            return min(synced_end, future_synced_end)
        return synced_end


def common_end(log: LeaderEpochs, log_end: int, future: LeaderEpochs, future_end: int) -> int:
    """Return the end (exclusive) of what a future log has in common with the log, after a start:
    the log may have been cut, and have got other records, since the last comparison. A record is
    known by its offset and leader epoch.
    """
    end = future_end
    epoch = future.epoch_of(end - 1) if end else NO_EPOCH
    while epoch != NO_EPOCH:
        known, known_end = log.end_offset_for(epoch, log_end)
        if known == epoch:
            return min(end, known_end)
        _, begins = future.end_offset_for(epoch - 1, end)
        if known_end != NO_OFFSET:
            begins = min(begins, known_end)
        end = min(end, max(begins, 0))
        epoch = future.epoch_of(end - 1) if end else NO_EPOCH
    return min(end, log_end)
