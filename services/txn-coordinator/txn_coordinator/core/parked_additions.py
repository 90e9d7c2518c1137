"""ParkedAdditions: additions to a transaction that wait for the end of the one before.

A producer goes on as soon as the outcome of its transaction is decided, while markers are still
being written. Its next addition waits for them here. It is then answered together with the
completion, in one append; Kafka's coordinator refuses it, and brokers and clients repeat it.
"""

from typing import NamedTuple

from tidemark.model.ids import InstantMs

from txn_coordinator.core.deadlines import Deadlines
from txn_coordinator.core.requests import AddOffsets, AddPartitions


class Parked(NamedTuple):
    """One request that waits."""

    request_id: int
    request: AddPartitions | AddOffsets


class ParkedAdditions:
    """Requests by transactional id. Those of one id leave together, by the deadline of the first.

    The runtime bounds their number: each is an unanswered request.
    """

    __slots__ = ("_by_id", "_deadlines")

    def __init__(self) -> None:
        self._by_id: dict[str, list[Parked]] = {}
        self._deadlines = Deadlines()

    def ids(self) -> set[str]:
        """Return the transactional ids whose requests wait."""
        return set(self._by_id)

    def park(self, parked: Parked, due: InstantMs) -> None:
        """Let a request wait until ``due`` at most."""
        transactional_id = parked.request.transactional_id
        waiting = self._by_id.setdefault(transactional_id, [])
        if not waiting:
            self._deadlines.put(transactional_id, due)
        waiting.append(parked)

    def take(self, transactional_id: str) -> list[Parked]:
        """Remove and return the requests of an id, in the order in which they came."""
        self._deadlines.discard(transactional_id)
        return self._by_id.pop(transactional_id, [])

    def take_due(self, now: InstantMs, ids_max: int) -> list[Parked]:
        """Remove and return the requests of at most ``ids_max`` ids that are due."""
        due = self._deadlines.pop_due(now, ids_max)
        return [parked for key in due for parked in self._by_id.pop(key)]

    def first_due(self) -> InstantMs | None:
        """Return the first deadline, if a request waits."""
        return self._deadlines.first()
