"""Start offset of a share-partition whose group has none yet (``share.auto.offset.reset``)."""

from tidemark.kafka.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import Offset
from tidemark.model.share_group_configs import ResetTo
from tidemark.runtime.clock import Clock

from broker.core.list_offsets import FoundOffset, at_mark
from broker.shell.partitions.offset_lookup import OffsetLookup
from broker.shell.share.held import HeldShare

_MARKS = {ResetTo.EARLIEST: EARLIEST_TIMESTAMP, ResetTo.LATEST: LATEST_TIMESTAMP}


class StartOffsets:
    """Finds start offsets as ListOffsets does."""

    def __init__(self, lookup: OffsetLookup, clock: Clock) -> None:
        self._lookup = lookup
        self._clock = clock

    async def start_of(self, held: HeldShare) -> Offset | ErrorCode:
        """Return the offset at which a group begins to read; an error may pass."""
        reset, committed_only = held.config.auto_offset_reset, held.is_committed_only
        if reset.to is ResetTo.BY_DURATION:
            found: FoundOffset | None = await self._lookup.at_time(
                held.hosted,
                max(0, self._clock.wall_ms() - reset.duration_ms),
                lane=held,
                read_committed=committed_only,
            )
            if found is not None and not found.error_code and found.offset < 0:
                found = self._at_mark(held, LATEST_TIMESTAMP)  # all records are older
        else:
            found = self._at_mark(held, _MARKS[reset.to])
        assert found is not None, "both marks are known to every leader"
        return found.error_code or Offset(found.offset)

    @staticmethod
    def _at_mark(held: HeldShare, timestamp: int) -> FoundOffset | None:
        partition = held.hosted.partition
        return at_mark(partition, timestamp, read_committed=held.is_committed_only)
