"""Extent of a world with share groups: most are short, with faults in close succession; some are
long. A short world costs a third of a long one, and most bugs need no more than a second of work.
"""

import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

from sim.dice import Dice

EXTENT_DICE: Final = 7_000_033
LONG: Final = 0.07
"""Share of the seeds with a long world."""
LONG_MS: Final = 3_000
SHORT_MS: Final = (500, 800, 1_200)
"""Times under faults, of which a short world draws one."""
LONG_PACES_MS: Final = (150, 300, 600)
SHORT_PACES_MS: Final = (60, 120, 250)
"""Mean times between faults, of which a seed draws one."""
UNFINISHED_MAX: Final = (20, 50, 120)
"""Numbers of unfinished records, of which a short world draws one: producers wait while there are
more.
"""
ONE_LEADER: Final = 0.6
"""Share of the short worlds in which one broker leads all partitions at first: its followers fetch
them together, with fewer requests than from three leaders.
"""


class Extent(NamedTuple):
    """How long a world is, and how much happens in it."""

    length_ms: int
    """Time under faults."""
    is_long: bool
    """True if the healed cluster must stay in order for longer than any lag could go unnoticed."""
    fault_paces_ms: Sequence[int]
    unfinished_max: int
    has_one_leader: bool


def draw_extent(seed: int, length_ms: int) -> Extent:
    """Return the extent of a seed. ``length_ms`` 0: drawn; a world of ``LONG_MS`` is a long one."""
    dice = Dice(EXTENT_DICE + seed)
    is_long_drawn, short_ms = dice.chance(LONG), dice.pick(SHORT_MS)
    length_ms = length_ms or (LONG_MS if is_long_drawn else short_ms)
    is_long = length_ms >= LONG_MS
    return Extent(
        length_ms,
        is_long,
        LONG_PACES_MS if is_long else SHORT_PACES_MS,
        dice.pick(UNFINISHED_MAX) if not is_long else sys.maxsize,
        dice.chance(ONE_LEADER) and not is_long,
    )
