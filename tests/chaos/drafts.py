"""What a transaction is to be, before it is: drawn from dice, and nothing else."""

import random
from collections.abc import Sequence
from typing import Final, NamedTuple

from chaos.history import Partition
from chaos.values import Name, write_value

_COMMITTED_SHARE: Final = 0.8
_VALUES: Final = (3, 8)
_OPEN_SHARE: Final = 0.3
_OPEN_S: Final = (0.02, 0.3)
_IMPATIENT_SHARE: Final = 0.06
_PATIENCE_S: Final = (0.001, 0.1)


class Draft(NamedTuple):
    """``placed``: the partition of each value. ``open_s``: how long its values are in the log
    before it ends; None: it ends as soon as it can. ``patience_s``: how long its producer waits for
    the answer to its commit before it is gone; None: as long as it takes.
    """

    placed: tuple[Partition, ...]
    commits: bool
    open_s: float | None
    patience_s: float | None


def draw_draft(dice: random.Random, partitions: Sequence[Partition]) -> Draft:
    """Several values, each topic having one at least; most commit, and some never hear of it."""
    by_topic: dict[str, list[Partition]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition)
    placed = [dice.choice(of_topic) for of_topic in by_topic.values()]
    placed += dice.choices(list(partitions), k=dice.randint(*_VALUES) - len(placed))
    dice.shuffle(placed)
    commits = dice.random() < _COMMITTED_SHARE
    open_s = dice.uniform(*_OPEN_S) if dice.random() < _OPEN_SHARE else None
    is_impatient = commits and dice.random() < _IMPATIENT_SHARE
    patience_s = dice.uniform(*_PATIENCE_S) if is_impatient else None
    return Draft(tuple(placed), commits, open_s, patience_s)


def value_of(producer: str, number: int, sequence: int) -> bytes:
    """One value of a transaction."""
    return write_value(Name(producer, str(number), sequence))
