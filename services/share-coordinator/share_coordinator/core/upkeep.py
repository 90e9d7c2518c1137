"""Upkeep of the state topic: copies of old records, and deletion of the log's beginning; and the
interval at which leaders are notified of dead letters.

The log is deleted up to its oldest live record. One share-partition that is never written would
keep all records after it. So old records are written again, states as snapshots, once most
records after them are not needed. A shard without writes is left alone.
"""

from itertools import islice
from typing import Final

from tidemark.codec.share_records import ShareRecord, ShareUpdateRecord
from tidemark.model.ids import InstantMs, Offset
from tidemark.protocol.shard import Moment

from share_coordinator.core.live_offsets import LiveKey, LiveOffsets, key_of
from share_coordinator.core.settings import ShareSettings

LOG_PER_LIVE: Final = 2
"""Records that the log may have for each live one, before old ones are written again."""
LOG_RECORDS_MIN: Final = 1_000
"""Records of a log that is too short for it to be worth while."""
LETTERS_INTERVAL_MS: Final = 3_000
"""Interval at which leaders are notified of share-partitions with dead letters. Those that hold
them already do nothing.
"""
REWRITTEN_PER_WAKE: Final = 256
"""Records that one decision writes again; the rest is due at once."""


class Upkeep:
    """Intervals of both tasks, and the offsets of live records."""

    def __init__(self, settings: ShareSettings) -> None:
        self._cold_interval_ms = settings.share_coordinator_cold_partition_snapshot_interval_ms
        self._prune_interval_ms = settings.share_coordinator_state_topic_prune_interval_ms
        self._offsets = LiveOffsets()
        self._pruned_before = Offset(0)
        self._cold_at = InstantMs(0)
        self._prune_at = InstantMs(0)
        self._letters_at = InstantMs(0)
        self._rewriting: set[LiveKey] = set()
        """Written again, and not committed yet."""

    def located(self, record: ShareRecord, offset: Offset) -> None:
        """A record is in the log at this offset, and committed."""
        self._offsets.note(record, offset)
        if self._rewriting and not isinstance(record, ShareUpdateRecord):
            self._rewriting.discard(key_of(record))

    def start(self, now: Moment) -> None:
        """All of the log is replayed."""
        self._cold_at = InstantMs(now.instant + self._cold_interval_ms)
        self._prune_at = InstantMs(now.instant + self._prune_interval_ms)

    def next_deadline(self, *, has_letters: bool) -> InstantMs:
        """Instant at which the first of the intervals ends."""
        due = min(self._cold_at, self._prune_at)
        return min(due, self._letters_at) if has_letters else due

    def letters_are_due(self, now: Moment) -> bool:
        """Return True once for each interval: leaders are to be notified of dead letters now."""
        if now.instant < self._letters_at:
            return False
        self._letters_at = InstantMs(now.instant + LETTERS_INTERVAL_MS)
        return True

    def cold_keys(self, now: Moment) -> tuple[LiveKey, ...]:
        """Live records to write again now, if the interval ended."""
        if now.instant < self._cold_at:
            return ()
        spare = self._offsets.count * LOG_PER_LIVE + LOG_RECORDS_MIN
        old = self._offsets.older_than(Offset(self._offsets.end - spare))
        waiting = (key for key in old if key not in self._rewriting)
        found = tuple(islice(waiting, REWRITTEN_PER_WAKE))
        is_all = len(found) < REWRITTEN_PER_WAKE
        self._cold_at = InstantMs(now.instant + (self._cold_interval_ms if is_all else 0))
        self._rewriting.update(found)
        return found

    def prune_is_due(self, now: Moment) -> bool:
        """Return True once for each interval: ``prunable`` is to be called now."""
        if now.instant < self._prune_at:
            return False
        self._prune_at = InstantMs(now.instant + self._prune_interval_ms)
        return True

    def prunable(self) -> Offset | None:
        """The offset below which the log can be deleted, if more can be than the last time."""
        needed_from = self._offsets.needed_from()
        if needed_from <= self._pruned_before:
            return None
        self._pruned_before = needed_from
        return needed_from

    @property
    def records_live(self) -> int:
        """Number of live records, updates not counted."""
        return self._offsets.count

    @property
    def records_needed(self) -> int:
        """Number of offsets from the oldest live record on."""
        return self._offsets.end - self._offsets.needed_from()

    def check(self) -> None:
        """Assert every invariant."""
        self._offsets.check()
