"""How far one follower is, as its leader knows it from the follower's fetches."""

from typing import NamedTuple

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


class ReplicaProgress:
    """One follower, under one leader epoch. Ends are -1 until its first fetch."""

    __slots__ = (
        "_leader_end_then",
        "broker_epoch",
        "caught_up_at",
        "fetched_at",
        "log_end",
        "synced_end",
    )

    def __init__(self, now: InstantMs) -> None:
        """A new leader gives every follower one lag time to show itself."""
        self.broker_epoch = BrokerEpoch(-1)
        self.log_end = -1
        self.synced_end = -1
        self.fetched_at = now
        self.caught_up_at = now
        self._leader_end_then = -1

    def fetched(self, fetch: FollowerFetch, leader_end: int, now: InstantMs) -> None:
        """A fetch arrived. The follower is caught up as of now, or (Kafka's rule) as of the fetch
        before, when it has all that there was then.
        """
        if fetch.log_end >= leader_end:
            self.caught_up_at = now
        elif fetch.log_end >= self._leader_end_then >= 0:
            self.caught_up_at = max(self.caught_up_at, self.fetched_at)
        self.fetched_at = now
        self._leader_end_then = leader_end
        self.log_end = fetch.log_end
        self.synced_end = min(fetch.synced_end, fetch.log_end)
        self.broker_epoch = max(self.broker_epoch, fetch.broker_epoch)

    def counted_end(self, *, synced: bool) -> int:
        """How far it counts: with flush=group only what is on its disk."""
        return self.synced_end if synced else self.log_end

    def lags(self, now: InstantMs, lag_ms: int) -> bool:
        """Whether it was not caught up for longer than ``lag_ms``, silent or slow."""
        return now - self.caught_up_at > lag_ms

    def excuse(self, pause_ms: int, now: InstantMs) -> None:
        """The leader itself stood still for so long, up to ``now``."""
        self.caught_up_at = min(now, InstantMs(self.caught_up_at + pause_ms))
        self.fetched_at = min(now, InstantMs(self.fetched_at + pause_ms))
