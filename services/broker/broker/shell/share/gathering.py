"""Gathering: share-partitions whose changes wait for the next write of their group."""

from collections.abc import Container, Iterable

from tidemark.model.ids import InstantMs

from broker.core.share.write_gate import LINGER_MS, WriteGate
from broker.shell.share.held import HeldShare


class Gathering:
    """The gate of each group that writes, and what waits before it."""

    def __init__(self) -> None:
        self._gates: dict[str, WriteGate] = {}
        self._held_back: dict[str, dict[HeldShare, None]] = {}

    def __len__(self) -> int:
        return len(self._gates)

    def acknowledged(self, group_id: str, request: object, now: InstantMs) -> None:
        """Note a request that waits for a write of its group."""
        gate = self._gates.get(group_id)
        if gate is None:
            gate = self._gates[group_id] = WriteGate()
        gate.acknowledged(request, now)

    def is_open(self, group_id: str, now: InstantMs) -> bool:
        """Return True if a write of the group may begin."""
        gate = self._gates.get(group_id)
        return gate is None or gate.may_begin(now)

    def hold_back(self, group_id: str, changed: Iterable[HeldShare], now: InstantMs) -> None:
        """Keep share-partitions with something to write for the next write of their group."""
        for held in changed:
            if held.share.is_write_due(now):
                self._held_back.setdefault(group_id, {})[held] = None

    def take_held_back(self, group_id: str) -> Iterable[HeldShare]:
        """Return the share-partitions of a group that were held back, and go on now."""
        return self._held_back.pop(group_id, ())

    def began(self, group_id: str, now: InstantMs) -> None:
        """Note that a write of a group has begun."""
        self._gates.setdefault(group_id, WriteGate()).began(now)

    def ended(self, group_id: str, now: InstantMs) -> list[HeldShare]:
        """Note its end. Return what was held back meanwhile, as far as it is to be touched: one
        share-partition is enough to wait for the next write, which takes all others along.
        """
        self._gates[group_id].ended(now)
        return list(self._held_back.get(group_id, ()))[:1]

    def deadline(self, held: HeldShare, due: InstantMs | None, now: InstantMs) -> InstantMs | None:
        """Return the deadline of a share-partition, whose own one is ``due``. While it is held back
        a write that is due is no reason to look again. One of its group waits for all until the
        next write may begin.
        """
        held_back = self._held_back.get(held.group_id)
        if held_back is None or held not in held_back:
            return due
        if held is next(iter(held_back)):
            opens = self._gates[held.group_id].next_deadline()
            if opens is not None:
                return opens
        return None if due is None else max(due, InstantMs(now + LINGER_MS))

    def forget_idle(self, now: InstantMs, groups: Container[str]) -> None:
        """Drop the gates of groups that write no longer. ``groups`` have share-partitions here: of
        others nobody waits, although a gate may count requests whose share-partitions were dropped.
        """
        for group_id, gate in tuple(self._gates.items()):
            is_under_way = gate.next_deadline() is None
            is_over = gate.is_idle(now) or (group_id not in groups and not is_under_way)
            if is_over and group_id not in self._held_back:
                del self._gates[group_id]
