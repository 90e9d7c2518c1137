"""How far one follower is, as its leader knows it from the follower's fetches."""

from typing import NamedTuple, Protocol

from tidemark.model.ids import BrokerEpoch, BrokerId, InstantMs


class FollowerFetch(NamedTuple):
    """What a follower's fetch says of it. Ends are exclusive offsets."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    """-1: not told."""
    log_end: int
    synced_end: int
    """-1: not told."""
    last_fetched_epoch: int
    """Of its last record; -1: it has none."""


class StandingFetch(Protocol):
    """A fetch that need not be told again: every fetch of its session repeats it, for as long as
    nothing happens to the partition.
    """

    @property
    def fetched_at(self) -> InstantMs:
        """When it was last repeated. Stands still from the first append on."""


class ReplicaProgress:
    """One follower, under one leader epoch. Ends are -1 until its first fetch."""

    __slots__ = (
        "_caught_up_at",
        "_fetched_at",
        "_leader_end_then",
        "_standing",
        "broker_epoch",
        "log_end",
        "sent_from",
        "synced_end",
    )

    def __init__(self, now: InstantMs) -> None:
        """A new leader gives every follower one lag time to show itself."""
        self.broker_epoch = BrokerEpoch(-1)
        self.log_end = -1
        self.synced_end = -1
        self.sent_from = -1
        """The offset that it last got bytes from: it asks for that again if it cannot use them."""
        self._fetched_at = now
        self._caught_up_at = now
        self._leader_end_then = -1
        self._standing: StandingFetch | None = None

    def fetched(self, fetch: FollowerFetch, leader_end: int, now: InstantMs) -> None:
        """A fetch arrived. The follower is caught up as of now, or (Kafka's rule) as of the fetch
        before, when it has all that there was then.
        """
        if self._standing is not None:
            self._end_standing(self._standing)
        if fetch.log_end >= leader_end:
            self._caught_up_at = now
        elif fetch.log_end >= self._leader_end_then >= 0:
            self._caught_up_at = max(self._caught_up_at, self._fetched_at)
        self._fetched_at = now
        self._leader_end_then = leader_end
        self.log_end = fetch.log_end
        self.synced_end = min(fetch.synced_end, fetch.log_end)
        self.broker_epoch = max(self.broker_epoch, fetch.broker_epoch)

    def stands(self, fetch: StandingFetch, leader_end: int) -> bool:
        """Let the fetch that last arrived be repeated untold: while the leader has no more than the
        follower had by it, each repetition is one with which the follower is caught up. False, and
        nothing changed, when the leader has more.
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
        """When it last was known to have all that there was."""
        if self._standing is None:
            return self._caught_up_at
        return max(self._caught_up_at, self._standing.fetched_at)

    def counted_end(self, *, synced: bool) -> int:
        """How far it counts: with flush=group only what is on its disk."""
        return self.synced_end if synced else self.log_end

    def lags(self, now: InstantMs, lag_ms: int) -> bool:
        """Whether it was not caught up for longer than ``lag_ms``, silent or slow."""
        return now - self.caught_up_at > lag_ms

    def excuse(self, pause_ms: int, now: InstantMs) -> None:
        """The leader itself stood still for so long, up to ``now``."""
        fetched_at = self._fetched_at
        if self._standing is not None:
            fetched_at = max(fetched_at, self._standing.fetched_at)
        self._caught_up_at = min(now, InstantMs(self.caught_up_at + pause_ms))
        self._fetched_at = min(now, InstantMs(fetched_at + pause_ms))
