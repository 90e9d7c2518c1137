"""Connections: in order while they hold. Messages under way at a break arrive late or never.

client --- one -- two -- three ---> node         a break here
             late   late   lost                  and a new connection overtakes them
"""

from collections.abc import Callable
from typing import Protocol

from sim.dice import Dice

LATE_MS = 400


class Schedule(Protocol):
    """Queue of delayed actions."""

    @property
    def now(self) -> int:
        """Milliseconds on the clock."""

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Call ``action`` after a delay."""


class Connection:
    """Connection of one client to one life of the node."""

    def __init__(self, schedule: Schedule, dice: Dice, *, life: int) -> None:
        self.life = life
        self.is_broken = False
        self._schedule = schedule
        self._dice = dice
        self._arrives_at = {"request": 0, "answer": 0}
        self._lost_from: int | None = None
        self._late_ms = 0
        self._sent = 0

    def request(self, action: Callable[[], None]) -> None:
        """Deliver to the node, after all earlier requests."""
        self._sent += 1
        number = self._sent

        def arrive() -> None:
            if self._late_ms and not self._is_lost(number):
                self._schedule.after(self._late_ms, action)
            elif not self._is_lost(number):
                action()

        self._deliver("request", arrive)

    def answer(self, action: Callable[[], None]) -> None:
        """Deliver to the client, unless the connection breaks before."""
        self._deliver("answer", lambda: None if self.is_broken else action())

    def break_off(self) -> None:
        """Break: no response arrives any longer; of the last requests some are lost, the others
        late.
        """
        self.is_broken = True
        self._lost_from = self._dice.between(1, self._sent + 1)
        self._late_ms = self._dice.between(1, LATE_MS)

    def _is_lost(self, number: int) -> bool:
        return self._lost_from is not None and number >= self._lost_from

    def _deliver(self, way: str, action: Callable[[], None]) -> None:
        now = self._schedule.now
        at = max(now + self._dice.between(1, 20), self._arrives_at[way])
        self._arrives_at[way] = at
        self._schedule.after(at - now, action)
