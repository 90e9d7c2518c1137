"""What the watcher's looks add up to: elections, controller changes, expiries, gaps. Pure."""

import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from chaos.history import Partition

GAP_S: Final = 1.0


class Elections:
    """Leaders that came to office, by raises of the leader epoch that some broker has shown."""

    def __init__(self) -> None:
        self._epochs: dict[Partition, int] = {}
        self.count = 0

    def see(self, partition: Partition, leader_id: int, leader_epoch: int) -> bool:
        """One partition of one look; whether this is a leader that was not seen before.

        Looks may come late and out of order: brokers do not learn of a change together.
        """
        if leader_id < 0:
            return False
        known = self._epochs.get(partition)
        self._epochs[partition] = max(leader_epoch, known if known is not None else leader_epoch)
        is_new = known is not None and leader_epoch > known
        self.count += is_new
        return is_new


class Epochs:
    """Raises of the controller epoch."""

    def __init__(self) -> None:
        self._first: int | None = None
        self._last = 0

    def see(self, controller_epoch: int) -> bool:
        """One look; whether it was raised since the one before."""
        was, self._last = self._last, max(self._last, controller_epoch)
        if self._first is None:
            self._first = controller_epoch
            return False
        return self._last > was

    @property
    def changes(self) -> int:
        """Since the first look."""
        return 0 if self._first is None else self._last - self._first


class Sessions:
    """Sessions that ended under a living process: its live znode came back with another owner."""

    def __init__(self) -> None:
        self._owners: dict[str, set[int]] = {}

    def see(self, incarnation: str, owner: int) -> bool:
        """One live znode of one look; whether its session is a new one."""
        owners = self._owners.setdefault(incarnation, set())
        is_new = bool(owners) and owner not in owners
        owners.add(owner)
        return is_new

    @property
    def expired(self) -> int:
        """How many ended."""
        return sum(len(owners) - 1 for owners in self._owners.values())


class Owners:
    """Shards that came to another txn-coordinator; being without one counts as nothing."""

    def __init__(self) -> None:
        self._owners: dict[int, int] = {}
        self.moves = 0

    def see(self, shard: int, coordinator_id: int) -> bool:
        """One shard of one look; whether it has moved since the one before."""
        if coordinator_id < 0:
            return False
        is_new = self._owners.get(shard, coordinator_id) != coordinator_id
        self._owners[shard] = coordinator_id
        self.moves += is_new
        return is_new


class Window(NamedTuple):
    """A time without an acknowledgement in one partition; seconds since the load began."""

    partition: Partition
    began_s: float
    length_s: float


def windows(
    partition: Partition, acknowledged_s: Sequence[float], end_s: float, least_s: float = GAP_S
) -> list[Window]:
    """The gaps longer than ``least_s`` between 0, the times of acknowledgement, and ``end_s``."""
    times = [0.0, *sorted(acknowledged_s), end_s]
    return [
        Window(partition, before, after - before)
        for before, after in pairwise(times)
        if after - before > least_s
    ]


class Stall(NamedTuple):
    """A time in which nothing came to its end; seconds since the load began."""

    began_s: float
    length_s: float


def longest_stall(ended_s: Sequence[float], end_s: float) -> Stall:
    """The longest gap between 0, the times at which something ended, and ``end_s``."""
    times = [0.0, *sorted(one for one in ended_s if one < end_s), end_s]
    length_s, began_s = max((after - before, before) for before, after in pairwise(times))
    return Stall(began_s, length_s)


class Unavailability(NamedTuple):
    """All windows in three figures. Seconds."""

    longest_s: float
    p50_s: float
    times: int

    @classmethod
    def of(cls, gaps: Sequence[Window]) -> "Unavailability":
        """Zeros when there are none."""
        lengths = [gap.length_s for gap in gaps]
        if not lengths:
            return cls(0.0, 0.0, 0)
        return cls(max(lengths), statistics.median(lengths), len(lengths))
