"""Group ids that are being reserved, and the heartbeats that are parked until then.

An id is of one type of group: classic, consumer or share. The group coordinator, which has the
other types, keeps it; a share group exists only after that.
"""

from typing import Final, NamedTuple

from share_coordinator.core.requests import ShareGroupHeartbeat

PARKED_MAX: Final = 10_000
"""Heartbeats of one shard that are parked until an id is reserved."""


class Parked(NamedTuple):
    """A heartbeat that is judged once its group's id is reserved."""

    request_id: int
    request: ShareGroupHeartbeat


class Reservations:
    """May be lost: clients repeat their heartbeats."""

    def __init__(self) -> None:
        self._parked: dict[str, list[Parked]] = {}
        self._count = 0

    @property
    def is_full(self) -> bool:
        """True if no further heartbeat may be parked."""
        return self._count >= PARKED_MAX

    def park(self, request_id: int, request: ShareGroupHeartbeat) -> bool:
        """Keep a heartbeat; True: its id is not being reserved yet."""
        assert not self.is_full, "more heartbeats are parked than may be"
        is_first = request.group_id not in self._parked
        self._parked.setdefault(request.group_id, []).append(Parked(request_id, request))
        self._count += 1
        return is_first

    def take(self, group_id: str) -> list[Parked]:
        """All that are parked for this id, in order; they are no longer."""
        taken = self._parked.pop(group_id, [])
        self._count -= len(taken)
        return taken
