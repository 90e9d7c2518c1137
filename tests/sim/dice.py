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
        return self._random.randint(low, high)

    def pick(self, choices: Sequence[T]) -> T:
        """Return one of the choices, each equally likely."""
        return choices[self._random.randrange(len(choices))]

    def weighted(self, choices: Sequence[tuple[T, int]]) -> T:
        """Return one of the choices, given as (choice, weight)."""
        (found,) = self._random.choices(
            [choice for choice, _ in choices], [weight for _, weight in choices]
        )
        return found

    def throws(self, count: int) -> list[int]:
        """Return numbers for a component with random choices of its own (``MemDisk.crash``)."""
        return [self._random.getrandbits(30) for _ in range(count)]
