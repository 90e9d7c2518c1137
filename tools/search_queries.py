"""Log of search queries, generated from a seed: repeatable input for demonstrations.

A line is ``time <tab> server <tab> user <tab> query``. Users repeat queries, sometimes within the
same second at the same server, so that whole lines repeat. A reader must distinguish such a
repetition from a record that was delivered twice.
"""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

KEY_FIELD: Final = 3
"""Number of the field with the user, counted from 1."""

_START: Final = datetime(2026, 3, 1, tzinfo=UTC)
_USERS_PER_RECORD: Final = 0.02
_SERVERS: Final = 50
_SAME_AGAIN: Final = 0.35
_WITHIN_THE_SECOND: Final = 0.3
_SECONDS_BETWEEN_MAX: Final = 2

_VERBS: Final = (
    "buy",
    "repair",
    "find",
    "rent",
    "clean",
    "compare",
    "sell",
    "draw",
    "cook",
    "learn",
)
_THINGS: Final = (
    "an iron", "a samovar", "winter boots", "a violin", "a canoe", "the night train", "a telescope",
    "wild mushrooms", "a lighthouse", "chess openings", "tide tables", "a bicycle pump",
    "sourdough", "an old map", "a stamp album", "sea glass",
)  # fmt: skip
_PLACES: Final = (
    "",
    " near me",
    " at night",
    " cheaply",
    " by the sea",
    " in Tula",
    " for beginners",
)


def search_queries(count: int, *, seed: int) -> Iterator[str]:
    """Yield ``count`` lines without line ends; the same for the same seed on every machine."""
    dice = random.Random(seed)
    users = max(1, int(count * _USERS_PER_RECORD))
    last_asked: dict[int, tuple[int, str]] = {}
    moment = _START
    made = 0
    while made < count:
        moment += timedelta(seconds=dice.randint(0, _SECONDS_BETWEEN_MAX))
        # A few users send many queries, most send few.
        user = int(users * dice.random() ** 2)
        if user in last_asked and dice.random() < _SAME_AGAIN:
            server, query = last_asked[user]
        else:
            server, query = dice.randrange(_SERVERS), _query(dice)
        last_asked[user] = (server, query)
        line = f"{moment:%Y-%m-%dT%H:%M:%SZ}\tsearch-{server:02d}\tuser-{user:06d}\t{query}"
        repeats = 2 if dice.random() < _SAME_AGAIN * _WITHIN_THE_SECOND else 1
        for _ in range(min(repeats, count - made)):
            yield line
            made += 1


def _query(dice: random.Random) -> str:
    return f"where to {dice.choice(_VERBS)} {dice.choice(_THINGS)}{dice.choice(_PLACES)}"
