"""Progress of one follower, as its leader derives it from the follower's fetches."""

from typing import NamedTuple, Protocol

from tidemark.model.ids import BrokerEpoch, BrokerId, InstantMs


class FollowerFetch(NamedTuple):
    """State of a follower in its fetch. Ends are exclusive offsets."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    """-1: not given."""
    log_end: int
    synced_end: int
    """-1: not given."""
    last_fetched_epoch: int
    """Leader epoch of its last record; -1 without records."""
    log_start: int = 0
    """First offset that it has."""


class StandingFetch(Protocol):
    """A fetch that holds without being sent again: every fetch of its session repeats it, for as
    long as the partition does not change.
    """

    @property
    def fetched_at(self) -> InstantMs:
        """Time of the last repetition; constant from the first append on."""


class ReplicaProgress:
    """One follower in one leader epoch. Ends are -1 until its first fetch."""

    __slots__ = (
        "_caught_up_at",
        "_fetched_at",
        "_leader_end_then",
        "_standing",
        "broker_epoch",
        "log_end",
        "log_start",
        "sent_from",
        "synced_end",
    )

    def __init__(self, now: InstantMs) -> None:
        """Create the progress of a follower; a new leader gives it one lag time for its first
        fetch.
        """
        self.broker_epoch = BrokerEpoch(-1)
        self.log_end = -1
        self.log_start = -1
        self.synced_end = -1
        self.sent_from = -1
        """Offset of the last bytes sent to it; it fetches from there again if it cannot use
        them.
        """
        self._fetched_at = now
        self._caught_up_at = now
        self._leader_end_then = -1
        self._standing: StandingFetch | None = None

    def fetched(self, fetch: FollowerFetch, leader_end: int, now: InstantMs) -> None:
        """Apply a fetch. The follower is caught up as of now; or (Kafka's rule) as of the previous
        fetch, if it has all records of that time.
        """
        if self._standing is not None:
            self._end_standing(self._standing)
        _, broker_epoch, log_end, synced_end, _, log_start = fetch
        if log_end >= leader_end:
            self._caught_up_at = now
        elif log_end >= self._leader_end_then >= 0:
            self._caught_up_at = max(self._caught_up_at, self._fetched_at)
        self._fetched_at = now
        self._leader_end_then = leader_end
        self.log_end = log_end
        self.log_start = log_start
        self.synced_end = synced_end if synced_end < log_end else log_end
        if broker_epoch > self.broker_epoch:
            self.broker_epoch = broker_epoch

    def stands(self, fetch: StandingFetch, leader_end: int) -> bool:
        """Let the last fetch be repeated without being sent. While the leader has no records beyond
        those that the follower had by it, each repetition shows the follower caught up. False,
        without a change, if the leader has more.
        """
        if self.log_end < leader_end:
            return False
        self._standing = fetch
        return True

    def _end_standing(self, fetch: StandingFetch) -> None:
        self._caught_up_at = max(self._caught_up_at, fetch.fetched_at)
        self._fetched_at = max(self._fetched_at, fetch.fetched_at)
        self._standing = None

    @property
    def caught_up_at(self) -> InstantMs:
        """Last time at which it is certain to have had all records."""
        if self._standing is None:
            return self._caught_up_at
        return max(self._caught_up_at, self._standing.fetched_at)

    def counted_end(self, *, synced: bool) -> int:
        """Return the end that counts: with flush=group only records on its disk."""
        return self.synced_end if synced else self.log_end

    def lags(self, now: InstantMs, lag_ms: int) -> bool:
        """True if it was not caught up for longer than ``lag_ms``, silent or slow."""
        return now - self.caught_up_at > lag_ms

    def extend(self, pause_ms: int, now: InstantMs) -> None:
        """Allow for a pause of the leader that ended at ``now``: it took no fetches meanwhile."""
        fetched_at = self._fetched_at
        if self._standing is not None:
            fetched_at = max(fetched_at, self._standing.fetched_at)
        self._caught_up_at = min(now, InstantMs(self.caught_up_at + pause_ms))
        self._fetched_at = min(now, InstantMs(fetched_at + pause_ms))
