"""Balancing of loads over brokers with as few moves as possible. Pure.

Every item (a partition) has chosen brokers; a swap exchanges one of an item's brokers for another,
if the caller allows it. Minimized are, in this order:

    1. the sum of squared loads: no swap, and no chain of swaps, makes two brokers more even;
    2. the sum of the chosen brokers' costs: the difference from the earlier assignment.

This is a minimum-cost flow with convex costs from brokers to one sink, solved by cancelling
negative cycles, which the algorithm of Bellman and Ford finds. A cycle may visit one item twice. If
its swaps contradict each other, it splits into two cycles, one of which is negative.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

SWAPS_KEPT: Final = 1_000
"""Bound on the swaps between two brokers that one pass over all items keeps."""


class Swap(NamedTuple):
    """Exchange of one item's broker ``drop`` for ``put``."""

    item: int
    drop: int
    put: int


class Rules(Protocol):
    """The caller's rules for items and brokers."""

    def may_swap(self, item: int, chosen: Sequence[int], drop: int, put: int) -> bool:
        """True if ``put``, which is not chosen, may replace ``drop``, which is."""

    def cost(self, item: int, broker: int) -> int:
        """Return the cost of a broker for an item; small, and 0 for an earlier broker."""

    def kind(self, item: int) -> str:
        """Return the kind (a topic) of an item; equal swaps are chosen to balance each kind."""


class Balance:
    """Current choice of brokers. ``chosen`` is changed in place."""

    def __init__(self, brokers: Iterable[int], chosen: list[list[int]], rules: Rules) -> None:
        self.chosen = chosen
        self._brokers = sorted(brokers)
        self._rules = rules
        self._loads: Counter[int] = Counter(dict.fromkeys(self._brokers, 0))
        self._of_kind: Counter[tuple[str, int]] = Counter()
        for item, its_own in enumerate(chosen):
            for broker in its_own:
                self._count(item, broker, 1)

    def improve(self) -> None:
        """Make swaps until none improves the balance."""
        while self._cancel_cycles():
            pass

    # -- changes

    def _count(self, item: int, broker: int, one: int) -> None:
        self._loads[broker] += one
        self._of_kind[self._rules.kind(item), broker] += one

    def _make(self, swap: Swap) -> None:
        assert self._may(swap), swap
        its_own = self.chosen[swap.item]
        its_own[its_own.index(swap.drop)] = swap.put
        self._count(swap.item, swap.drop, -1)
        self._count(swap.item, swap.put, 1)

    def _may(self, swap: Swap) -> bool:
        its_own = self.chosen[swap.item]
        return (
            swap.drop in its_own
            and swap.put not in its_own
            and self._rules.may_swap(swap.item, its_own, swap.drop, swap.put)
        )

    def _price(self, swap: Swap) -> int:
        return self._rules.cost(swap.item, swap.put) - self._rules.cost(swap.item, swap.drop)

    # -- cycles

    def _cancel_cycles(self) -> bool:
        """Make the swaps of negative cycles while they are of untouched items: a pass over all
        items takes long. Return True if there was any.
        """
        found, touched = self._cheapest_swaps(), set[int]()
        while True:
            swaps = {pair: each[-1] for pair, each in found.items()}
            cycle = self._direct(swaps) or self._negative_cycle(swaps)
            if not cycle:
                return bool(touched)
            for swap in self._consistent(cycle):
                self._make(swap)
                touched.add(swap.item)
            for pair in swaps:
                each = found[pair]
                while each and each[-1].item in touched:
                    each.pop()
                if not each:
                    del found[pair]

    def _direct(self, swaps: Mapping[tuple[int, int], Swap]) -> list[Swap]:
        """Return the swap from the fullest to the emptiest broker: cheap, and mostly sufficient."""
        best = min(
            swaps,
            key=lambda pair: (self._loads[pair[1]] - self._loads[pair[0]], pair),
            default=None,
        )
        if best is None or self._loads[best[0]] - self._loads[best[1]] < 2:
            return []
        return [swaps[best]]

    def _cheapest_swaps(self) -> dict[tuple[int, int], list[Swap]]:
        """Return the swaps between each two brokers, cheapest last; among equal ones, those of the
        kind that gains most last.
        """
        found: dict[tuple[int, int], list[tuple[int, int, Swap]]] = defaultdict(list)
        before: Counter[tuple[int, int, int, str]] = Counter()
        for item, its_own in enumerate(self.chosen):
            kind = self._rules.kind(item)
            for drop in its_own:
                for put in self._brokers:
                    swap = Swap(item, drop, put)
                    if not self._may(swap):
                        continue
                    price = self._price(swap)
                    gain = self._of_kind[kind, drop] - self._of_kind[kind, put]
                    # Each swap made before it reduces the difference by two.
                    gain -= 2 * before[drop, put, price, kind]
                    before[drop, put, price, kind] += 1
                    found[drop, put].append((price, -gain, swap))
        return {
            pair: [swap for _, _, swap in reversed(nsmallest(SWAPS_KEPT, each))]
            for pair, each in found.items()
        }

    def _value(self, cycle: Sequence[Swap]) -> tuple[int, int]:
        """Return the change by a closed walk or a chain of swaps; below (0, 0) is better."""
        change: Counter[int] = Counter()
        for swap in cycle:
            change[swap.drop] -= 1
            change[swap.put] += 1
        squares = sum(
            (self._loads[broker] + by) ** 2 - self._loads[broker] ** 2
            for broker, by in change.items()
        )
        return squares, sum(map(self._price, cycle))

    def _negative_cycle(self, swaps: Mapping[tuple[int, int], Swap]) -> list[Swap]:
        """Return swaps that together are an improvement; [] if there are none."""
        weight = 2 * sum(abs(self._price(swap)) for swap in swaps.values()) + 1
        sink = max(self._brokers, default=0) + 1
        arcs = [(drop, put, self._price(swap)) for (drop, put), swap in swaps.items()]
        for broker in self._brokers:
            load = self._loads[broker]
            arcs.append((broker, sink, weight * (2 * load + 1)))
            if load:
                arcs.append((sink, broker, -weight * (2 * load - 1)))
        around = _negative_walk([*self._brokers, sink], arcs)
        return [swaps[pair] for pair in around if sink not in pair]

    def _consistent(self, cycle: list[Swap]) -> list[Swap]:
        """Return the swaps if they can be made one after another, otherwise the better part."""
        for second, swap in enumerate(cycle):
            earlier = [at for at in range(second) if cycle[at].item == swap.item]
            if not earlier or self._allowed_after([cycle[at] for at in earlier], swap):
                continue
            for first in earlier:
                other = cycle[first]
                shortcut = Swap(swap.item, other.drop, swap.put)
                rest = Swap(swap.item, swap.drop, other.put)
                if self._may(shortcut) and self._may(rest):
                    outer = [*cycle[:first], shortcut, *cycle[second + 1 :]]
                    inner = [rest, *cycle[first + 1 : second]]
                    return self._consistent(min(outer, inner, key=self._value))
            raise AssertionError(f"rules without a shortcut: {cycle}")
        assert self._value(cycle) < (0, 0), "one part of a negative cycle is negative"
        return cycle

    def _allowed_after(self, earlier: Sequence[Swap], swap: Swap) -> bool:
        """True if the swap is still allowed after the earlier ones of the same item."""
        its_own = self.chosen[swap.item]
        puts = {one.drop: one.put for one in earlier}
        after = [puts.get(broker, broker) for broker in its_own]
        return self._rules.may_swap(swap.item, after, swap.drop, swap.put)


def _negative_walk(
    points: Sequence[int], arcs: Sequence[tuple[int, int, int]]
) -> list[tuple[int, int]]:
    """Return the arcs of a cycle with negative total cost (Bellman, Ford); [] if there is none."""
    distance = dict.fromkeys(points, 0)
    before: dict[int, int] = {}
    last = None
    for _ in points:
        last = None
        for start, end, cost in arcs:
            if distance[start] + cost < distance[end]:
                distance[end] = distance[start] + cost
                before[end] = last = start
        if last is None:
            return []
    assert last is not None, "something was still to gain after the last round"
    point = last
    for _ in points:
        point = before[point]
    walk = [point]
    while (point := before[point]) != walk[0]:
        walk.append(point)
    walk = [walk[0], *reversed(walk)]
    return list(pairwise(walk))
