"""Random choices of a run. One seed, one sequence of throws: the same seed gives the same run."""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """The only ``random.Random`` of a run."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self._random.random() < probability

    def between(self, low: int, high: int) -> int:
        """Return a number from ``low`` to ``high``, both included."""
        return low + self._below(high - low + 1)

    def pick(self, choices: Sequence[T]) -> T:
        """Return one of the choices, each equally likely."""
        return choices[self._below(len(choices))]

    def _below(self, end: int) -> int:
        """Return a number from 0 on, below ``end``: the one that ``randrange`` returns, which takes
        five times as long for its other forms.
        """
        assert end > 0, "there is something to draw from"
        throw, bits = self._random.getrandbits, end.bit_length()
        while (number := throw(bits)) >= end:
            pass
        return number

    def weighted(self, choices: Sequence[tuple[T, int]]) -> T:
        """Return one of the choices, given as (choice, weight)."""
        (found,) = self._random.choices(
            [choice for choice, _ in choices], [weight for _, weight in choices]
        )
        return found

    def throws(self, count: int) -> list[int]:
        """Return numbers for a component with random choices of its own (``MemDisk.crash``)."""
        return [self._random.getrandbits(30) for _ in range(count)]
