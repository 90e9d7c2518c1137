"""The metadata feed's rules for a subscriber: a snapshot, then every delta, in order and without a
gap.
"""

from enum import Enum

from tidemark.model.metadata import START_OF_FEED, FeedPosition


class Verdict(Enum):
    """What a subscriber does with an update."""

    APPLY = "apply"
    KNOWN = "known"  # a snapshot of what is applied already: nothing to do, deltas may follow
    OLDER_CONTROLLER = "older controller"  # end this subscription, look for another controller
    GAP = "gap"  # end this subscription and begin another


class FeedSubscriber:
    """One follower of the feed, across subscriptions. ``position`` only ever moves forward."""

    def __init__(self) -> None:
        self.position = START_OF_FEED
        self._snapshot_seen = False

    def subscribed(self) -> None:
        """A new subscription: its first update must be a snapshot."""
        self._snapshot_seen = False

    def judge(self, position: FeedPosition, *, is_snapshot: bool) -> Verdict:
        """What to do with an update; once one with APPLY is applied, call ``applied``."""
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
        """The update is applied whole; one that was not is asked for again."""
        assert position > self.position, f"{position} was applied after {self.position}"
        self.position = position

    def _follows(self, position: FeedPosition) -> bool:
        known = self.position
        return position == FeedPosition(known.controller_epoch, known.version + 1)
