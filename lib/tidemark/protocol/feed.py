"""Rules of the metadata feed for a subscriber: a snapshot, then every delta in order, no gaps."""

from enum import Enum

from tidemark.model.metadata import START_OF_FEED, FeedPosition


class Verdict(Enum):
    """Action of a subscriber on an update."""

    APPLY = "apply"
    KNOWN = "known"  # a snapshot of the position already applied: nothing to do, deltas may follow
    OLDER_CONTROLLER = "older controller"  # end this subscription, look for another controller
    GAP = "gap"  # end this subscription and begin another


class FeedSubscriber:
    """One follower of the feed, across subscriptions. ``position`` only moves forward."""

    def __init__(self) -> None:
        self.position = START_OF_FEED
        self._snapshot_seen = False

    def subscribed(self) -> None:
        """Start a new subscription; its first update must be a snapshot."""
        self._snapshot_seen = False

    def judge(self, position: FeedPosition, *, is_snapshot: bool) -> Verdict:
        """Return the action on an update; after APPLY call ``applied`` once it is applied."""
        if is_snapshot:
            if position < self.position:
                return Verdict.OLDER_CONTROLLER
            self._snapshot_seen = True
            if position == self.position:
                return Verdict.KNOWN
        elif not self._snapshot_seen or not self._follows(position):
            return Verdict.GAP
        return Verdict.APPLY

    def applied(self, position: FeedPosition) -> None:
        """Take note that the whole update is applied. Without this call it is requested again."""
        assert position > self.position, f"{position} was applied after {self.position}"
        self.position = position

    def _follows(self, position: FeedPosition) -> bool:
        known = self.position
        return position == FeedPosition(known.controller_epoch, known.version + 1)
