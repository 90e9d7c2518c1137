"""Views of share-partitions that change nothing: windows for browsing, counts for lag.

A share-partition that no member reads from this broker is looked at in the state that the
share-coordinator has. It is not loaded for that: loading gives a group its first start offset.
"""

from collections.abc import Callable
from typing import NamedTuple

from tidemark.codec.record_batch import HEADER_BYTES, BatchHeader, read_header
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import Offset
from tidemark.model.share_state import (
    UNKNOWN_START,
    ReadState,
    SharePartitionKey,
    StateRead,
)
from tidemark.runtime.clock import Clock
from tidemark.storage.disk import DiskError

from broker.core.share.acknowledgement import Answer
from broker.core.share.answers import client_error
from broker.core.share.inspection import ShareCounts, counts
from broker.core.share.recovery import recovered_window
from broker.core.share.sessions import PartitionKey
from broker.core.share.settings import ShareSettings
from broker.core.share.states import Phase
from broker.core.share.window import Window
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.share.held import log_epochs, readable_end
from broker.shell.share.share_partitions import SharePartitions
from broker.shell.share.state import ShareState
from broker.storage.directory import LogDamagedError
from broker.storage.log import OffsetOutOfRangeError

NO_AGE = -1


class WindowView(NamedTuple):
    """Window of a share-partition, and the end of what its group may read."""

    window: Window
    hosted: HostedPartition
    readable_end: Offset
    has_start: bool
    """False: the group has no start offset yet; the window is empty."""
    letter_problem: str | None = None
    """Reason for which its dead letters cannot be copied, if it is held here."""


class ShareInspector:
    """Looks at share-partitions of this broker."""

    def __init__(
        self,
        shares: SharePartitions,
        state: ShareState,
        clock: Clock,
        *,
        has_groups: Callable[[], bool],
        timeout_s: float,
    ) -> None:
        """``has_groups`` returns False before the first share group: no coordinator has a state."""
        self._shares = shares
        self._has_groups = has_groups
        self._state = state
        self._clock = clock
        self._timeout_s = timeout_s

    async def views(
        self, group_id: str, keys: list[PartitionKey]
    ) -> dict[PartitionKey, WindowView | Answer]:
        """Return windows of one group's share-partitions; an error where there is none here. They
        must not be changed, and hold until the caller waits for something.
        """
        found: dict[PartitionKey, WindowView | Answer] = {}
        unread: dict[PartitionKey, ReadState] = {}
        for key in keys:
            hosted = self._shares.led(key)
            if isinstance(hosted, ErrorCode):
                found[key] = Answer(hosted)
            else:
                share_key = SharePartitionKey(group_id, *key)
                epoch = hosted.partition.leader_epoch
                unread[key] = ReadState(share_key, epoch, log_epochs(hosted))
        elsewhere = [read for key, read in unread.items() if not self._is_held(group_id, key)]
        reads: dict[SharePartitionKey, StateRead] = {}
        if elsewhere and not self._has_groups():
            absent = Answer(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no share group {group_id}")
            found |= dict.fromkeys(unread, absent)
            return found
        if elsewhere:
            answers = await self._state.read(group_id, elsewhere, self._timeout_s)
            reads = {one.key: one for one in answers}
        for key, read in unread.items():
            found[key] = self._view(group_id, key, reads.get(read.key))
        return found

    def _is_held(self, group_id: str, key: PartitionKey) -> bool:
        held = self._shares.get(group_id, key)
        return held is not None and held.is_led and held.share.phase is Phase.ACTIVE

    def _view(
        self, group_id: str, key: PartitionKey, read: StateRead | None
    ) -> WindowView | Answer:
        hosted = self._shares.led(key)
        if isinstance(hosted, ErrorCode):
            return Answer(hosted)
        config = self._shares.config_of(group_id)
        end = Offset(readable_end(hosted, config))
        held = self._shares.get(group_id, key)
        if held is not None and self._is_held(group_id, key):
            problem = held.letters.problem
            words = None if problem is None else problem.message
            return WindowView(held.share.window, hosted, end, True, words)  # noqa: FBT003
        if read is None:
            return Answer(ErrorCode.LEADER_NOT_AVAILABLE, "the share-partition is being loaded")
        if read.error_code is not ErrorCode.NONE:
            return Answer(client_error(read.error_code), read.error_message)
        isolated_from = ShareSettings.of(config).isolated_from
        if read.start_offset == UNKNOWN_START:
            return WindowView(Window(end, isolated_from), hosted, end, has_start=False)
        start = max(read.start_offset, Offset(hosted.partition.bounds.log_start))
        window = recovered_window(start, (*read.batches, *read.pending), isolated_from)
        if isinstance(window, str):
            return Answer(ErrorCode.UNKNOWN_SERVER_ERROR, window)
        return WindowView(window, hosted, end, has_start=True)

    def counts(self, view: WindowView) -> ShareCounts:
        """Return the counts of a window."""
        return counts(view.window, view.readable_end)

    def oldest_age_ms(self, view: WindowView) -> int:
        """Return the age of the oldest record whose delivery is not complete, by the timestamp of
        its batch; ``NO_AGE`` if there is none.
        """
        start, hosted = view.window.start, view.hosted
        if not view.has_start or start >= view.readable_end:
            return NO_AGE
        header = self._header_at(hosted, start, view.readable_end)
        if header is None:
            return NO_AGE
        return max(0, self._clock.wall_ms() - _timestamp_of(header))

    @staticmethod
    def _header_at(hosted: HostedPartition, offset: Offset, end: Offset) -> BatchHeader | None:
        try:
            found = hosted.log.read(offset, 1, end=end)
            with hosted.log.health.guarded(offset):
                for one in found.slices:
                    return read_header(one.file.read_at(one.position, HEADER_BYTES))
        except (DiskError, LogDamagedError, OffsetOutOfRangeError):
            return None
        return None


def _timestamp_of(header: BatchHeader) -> int:
    """Return the timestamp of a batch's records: that of the first one where the header has it."""
    # Elsewhere the base is a delete horizon, the time of a producer, or that of no record.
    has_first = not header.has_delete_horizon and header.record_count > 0
    if has_first and not header.is_log_append_time:
        return header.base_timestamp
    return header.max_timestamp
