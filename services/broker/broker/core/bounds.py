"""LogBounds: the offsets that divide the log of one replica, and its leader epochs.

    log start              high watermark              log end
        |--- committed ---------|--- not yet committed ---|
        |--- on disk ----------------------|
                                      synced end

A log differs from its leader's from the end of the last epoch that both have: a leader finds that
offset for a follower (``judge_end``), a follower for itself (``truncation_for``).
"""

from typing import Final, NamedTuple

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_OFFSET, Offset

from broker.core.leader_epochs import LeaderEpochs

NO_LAST_EPOCH: Final = -1
"""Leader epoch of the last record of a log without records."""


class LogState(NamedTuple):
    """Bounds of a log when its partition starts, as recovered from disk."""

    log_start: int
    log_end: int
    synced_end: int
    high_watermark: int
    """From the checkpoint; -1 if there is none."""


class FollowerRead(NamedTuple):
    """Decision about a follower's fetch. Without error and divergence, it may read from its end to
    the leader's.
    """

    error_code: ErrorCode
    diverging: tuple[int, int] | None
    """(leader epoch, end): where the logs last agree, as far as the leader can say."""


_GOES_ON: Final = FollowerRead(ErrorCode.NONE, None)


class LogBounds:
    """Bounds of one replica's log. Invariant: log_start <= high_watermark <= log_end, and
    synced_end <= log_end.

    Fields, not methods, are what the hot path reads and moves.
    """

    __slots__ = ("_epochs", "high_watermark", "log_end", "log_start", "synced_end")

    def __init__(self, state: LogState, epochs: LeaderEpochs) -> None:
        """``epochs``: the log's own, which change with it."""
        self._epochs = epochs
        self.log_start = Offset(state.log_start)
        """First offset that a reader may ask for. Retention and DeleteRecords move it."""
        self.log_end = Offset(state.log_end)
        """Exclusive: the offset that the next record gets."""
        self.synced_end = min(state.synced_end, state.log_end)
        """Exclusive: every record below it is on disk."""
        self.high_watermark = max(min(state.high_watermark, state.log_end), state.log_start)
        """Exclusive: every record below it is committed."""

    def synced(self, end: int) -> None:
        """Note that everything below ``end`` is on disk."""
        self.synced_end = max(self.synced_end, min(end, self.log_end))

    def start_moved(self, log_start: int) -> None:
        """Note that retention or DeleteRecords removed the records below ``log_start``."""
        assert self.log_start <= log_start <= self.log_end, (log_start, str(self))
        self.log_start = Offset(log_start)
        self.high_watermark = max(self.high_watermark, log_start)

    def follow(self, high_watermark: int) -> bool:
        """Take over the leader's high watermark as far as the records are here. Return True if the
        high watermark moved.
        """
        end = min(high_watermark, self.log_end)
        if end <= self.high_watermark:
            return False
        self.high_watermark = end
        return True

    def truncated(self, log_end: int, synced_end: int) -> None:
        """Note that the log was cut at ``log_end``."""
        assert log_end <= self.log_end, (log_end, str(self))
        self.log_end = Offset(log_end)
        self.log_start = min(self.log_start, self.log_end)
        self.synced_end = min(synced_end, log_end)
        self.high_watermark = min(self.high_watermark, log_end)

    def started_at(self, offset: int) -> None:
        """Note that the log was emptied and begins at ``offset``."""
        self.log_start = self.log_end = Offset(offset)
        self.synced_end = self.high_watermark = offset

    def starts_within(self, first: int, last: int) -> bool:
        """Return True if the log is empty and begins inside of the batch with these offsets: the
        leader deleted records up to the middle of it, and has the whole batch.
        """
        return self.log_start == self.log_end and first < self.log_end <= last

    # -- leader epochs

    @property
    def last_epoch(self) -> int:
        """Leader epoch of the last record; NO_LAST_EPOCH if there is none."""
        epochs, log_end = self._epochs, self.log_end
        if log_end == self.log_start:
            return NO_LAST_EPOCH
        return epochs.latest if log_end > epochs.latest_start else epochs.epoch_of(log_end - 1)

    def judge_end(self, follower_epoch: int, follower_end: int) -> FollowerRead:
        """Decide, as leader, whether a log that ends at ``follower_end``, with a last record of
        ``follower_epoch``, may go on there (KIP-595).
        """
        if follower_epoch == self._epochs.latest and (
            self.log_start <= follower_end <= self.log_end
        ):
            return _GOES_ON  # nearly always
        if follower_epoch != NO_LAST_EPOCH:
            epoch, end = self._epochs.end_offset_for(follower_epoch, self.log_end)
            if end == NO_OFFSET:
                return FollowerRead(ErrorCode.UNKNOWN_LEADER_EPOCH, None)
            if epoch < follower_epoch or end < follower_end:
                return FollowerRead(ErrorCode.NONE, (epoch, end))
        if not self.log_start <= follower_end <= self.log_end:
            return FollowerRead(ErrorCode.OFFSET_OUT_OF_RANGE, None)
        return _GOES_ON

    def truncation_for(self, leader_epoch: int, end: int) -> int:
        """Return the offset to truncate to, as follower, if the leader's log agrees with this one
        up to ``end`` of ``leader_epoch`` at most.
        """
        _, known_end = self._epochs.end_offset_for(leader_epoch, self.log_end)
        own_end = int(known_end)
        if known_end == NO_OFFSET:
            own_end = self.log_end if leader_epoch >= 0 else self.log_start
        return max(self.log_start, min(own_end, end, self.log_end))

    def check(self) -> None:
        """Assert the invariant."""
        assert self.log_start <= self.high_watermark, str(self)
        assert self.high_watermark <= self.log_end, str(self)
        assert self.synced_end <= self.log_end, str(self)

    def __str__(self) -> str:
        """``0/_42/_45``; an underscore marks exclusive bounds."""
        return f"{self.log_start}/_{self.high_watermark}/_{self.log_end}"
