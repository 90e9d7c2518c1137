"""Registered processes that have a session and no stream of the metadata feed, since when. Pure.

A stream that breaks is news by itself. A term begins without any stream, and would never miss that
of a process which reaches ZooKeeper and no controller.
"""

from collections.abc import Iterable

from tidemark.model.ids import BrokerEpoch, InstantMs


class Deaf:
    """Processes of one term, by the epoch of their registration."""

    def __init__(self, patience_ms: int) -> None:
        """``patience_ms`` is the time to find this controller; 0: as long as it takes."""
        self._patience_ms = patience_ms
        self._since: dict[BrokerEpoch, InstantMs] = {}

    def see(self, epochs: Iterable[BrokerEpoch], now: InstantMs) -> None:
        """Take all that have a session and no stream."""
        self._since = {epoch: self._since.get(epoch, now) for epoch in epochs}

    def take_due(self, now: InstantMs) -> frozenset[BrokerEpoch]:
        """Return those whose time is over. It begins again: a process may return without a stream
        before anybody has seen it gone.
        """
        due = frozenset(one for one, at in self._dues() if now >= at)
        self._since.update(dict.fromkeys(due, now))
        return due

    def next_deadline(self) -> InstantMs | None:
        """Return when the time of the first one is over; None: there is none."""
        return min((at for _, at in self._dues()), default=None)

    def _dues(self) -> list[tuple[BrokerEpoch, InstantMs]]:
        if not self._patience_ms:
            return []
        return [(one, InstantMs(at + self._patience_ms)) for one, at in self._since.items()]
