"""LoginTurns: connections that wait until their address may log in."""

import asyncio

from tidemark.runtime.clock import Clock

from broker.core.login_gate import LoginGate
from broker.shell.counters import LoginCounters

Waiting = asyncio.Future[None]


class NoTurnError(Exception):
    """The login may not begin in time, or too many wait already."""


class LoginTurn:
    """A login that has begun. It is ended once; later ends change nothing."""

    __slots__ = ("_turns", "address")

    def __init__(self, turns: "LoginTurns", address: str) -> None:
        self._turns: LoginTurns | None = turns
        self.address = address

    def end(self, *, failed: bool) -> None:
        """Note the outcome; the next login of the address may begin."""
        turns, self._turns = self._turns, None
        if turns is not None:
            turns.ended(self.address, failed=failed)


class LoginTurns:
    """Turns of all listeners of a broker. They share the failures of an address."""

    def __init__(self, gate: LoginGate[Waiting], clock: Clock) -> None:
        self._gate = gate
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None

    async def take(self, address: str, wait_max_ms: int, counts: LoginCounters) -> LoginTurn:
        """Return a turn for a login of ``address``. Raises NoTurnError."""
        if self._gate.begin(address, self._clock.now_ms()):
            return LoginTurn(self, address)
        if self._gate.is_full:
            counts.turned_away += 1
            raise NoTurnError("too many logins wait")
        counts.delayed += 1
        waiting: Waiting = asyncio.get_running_loop().create_future()
        self._gate.wait(address, waiting)
        self._arm()
        try:
            async with asyncio.timeout(wait_max_ms / 1_000):
                await waiting
        except TimeoutError:
            self._give_up(address, waiting)
            counts.turned_away += 1
            raise NoTurnError("its address has failed too often") from None
        except asyncio.CancelledError:
            self._give_up(address, waiting)
            raise
        return LoginTurn(self, address)

    def _give_up(self, address: str, waiting: Waiting) -> None:
        if not self._gate.leave(address, waiting):  # it was its turn just now
            self.ended(address, failed=False)

    def ended(self, address: str, *, failed: bool) -> None:
        """Note the end of a login that had a turn."""
        self._gate.end(address, self._clock.now_ms(), failed=failed)
        if self._gate.waiting:
            self._wake()

    def _wake(self) -> None:
        for waiting in self._gate.due(self._clock.now_ms()):
            if waiting.done():  # given up, and not forgotten yet
                continue
            waiting.set_result(None)
        self._arm()

    def _arm(self) -> None:
        """Set the timer to the time at which the next login may begin."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_in_ms = self._gate.due_in_ms(self._clock.now_ms())
        if due_in_ms is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(due_in_ms / 1_000, self._wake)
