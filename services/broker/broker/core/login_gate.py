"""LoginGate: bounds the failed logins of an address, so that a flood of guesses does not take the
processor that clients need who are in.

A login costs milliseconds: a TLS handshake and the keys of a password. Each address may have
``burst`` logins that are under way or have failed, and pays off ``rate_s`` failures a second. More
of its logins wait for their turn; those that succeed make room at once. The newest goes first: the
older ones have less time left, and a client that comes once is not kept back by those that come
again and again.
"""

from collections import OrderedDict
from typing import Final, Generic, TypeVar

from tidemark.model.ids import InstantMs

ADDRESSES_MAX: Final = 10_000
"""Addresses whose failures are remembered; the oldest are forgotten first."""
WAITING_MAX: Final = 64
"""Logins of all addresses that wait; one that would be more is refused. Each has a descriptor, from
the spare ones of a broker.
"""

ClientT = TypeVar("ClientT")


class _Address(Generic[ClientT]):
    __slots__ = ("at", "failures", "under_way", "waiting")

    def __init__(self, at: InstantMs) -> None:
        self.failures = 0.0
        """Failed logins that are not paid off yet."""
        self.at = at
        """Time at which ``failures`` was computed."""
        self.under_way = 0
        self.waiting: list[ClientT] = []


class LoginGate(Generic[ClientT]):
    """Logins of all addresses. ``ClientT`` is whatever stands for a login that waits."""

    def __init__(self, *, burst: int, rate_s: float) -> None:
        """``rate_s``: failed logins a second that an address pays off."""
        assert burst >= 1
        assert rate_s > 0
        self._burst = burst
        self._rate_s = rate_s
        self._addresses: OrderedDict[str, _Address[ClientT]] = OrderedDict()
        self._waiting_at: dict[str, _Address[ClientT]] = {}
        self.waiting = 0
        """Number of logins that wait."""

    @property
    def is_full(self) -> bool:
        """True if no other login may wait."""
        return self.waiting >= WAITING_MAX

    def begin(self, address: str, now: InstantMs) -> bool:
        """Begin a login, unless it has to wait."""
        found = self._addresses.get(address)
        if found is None:
            found = self._addresses[address] = _Address(now)
            self._forget()
        if not self._may_begin(found, now):
            return False
        found.under_way += 1
        return True

    def wait(self, address: str, client: ClientT) -> None:
        """Let a login wait that may not begin. It must not be full."""
        found = self._waiting_at[address] = self._addresses[address]
        found.waiting.append(client)
        self.waiting += 1

    def leave(self, address: str, client: ClientT) -> bool:
        """Forget a login that waits. Returns False if it does not wait."""
        found = self._waiting_at.get(address)
        if found is None or client not in found.waiting:
            return False
        found.waiting.remove(client)
        self._no_longer_wait(address, 1)
        return True

    def end(self, address: str, now: InstantMs, *, failed: bool) -> None:
        """End a login that has begun."""
        found = self._addresses.get(address)
        if found is None:  # forgotten
            return
        found.under_way = max(0, found.under_way - 1)
        self._pay_off(found, now)
        if failed:
            found.failures = min(found.failures + 1, float(self._burst))
            self._addresses.move_to_end(address)
        elif self._is_clean(found):
            del self._addresses[address]

    def due(self, now: InstantMs) -> list[ClientT]:
        """Begin logins that waited for their turn, and return them."""
        begun = []
        for address, found in tuple(self._waiting_at.items()):
            before = len(found.waiting)
            while found.waiting and self._may_begin(found, now):
                begun.append(found.waiting.pop())
                found.under_way += 1
            self._no_longer_wait(address, before - len(found.waiting))
        return begun

    def due_in_ms(self, now: InstantMs) -> int | None:
        """Return the time until a login that waits may begin if none ends; None without one."""
        times = [self._wait_ms(found, now) for found in self._waiting_at.values()]
        return min((one for one in times if one is not None), default=None)

    def _no_longer_wait(self, address: str, count: int) -> None:
        self.waiting -= count
        if not self._waiting_at[address].waiting:
            del self._waiting_at[address]

    def _may_begin(self, found: _Address[ClientT], now: InstantMs) -> bool:
        self._pay_off(found, now)
        return found.failures + found.under_way <= self._burst - 1

    def _wait_ms(self, found: _Address[ClientT], now: InstantMs) -> int | None:
        """Return the time until enough failures are paid off; None if an end is waited for."""
        room = self._burst - 1 - found.under_way
        if room < 0:
            return None
        self._pay_off(found, now)
        return max(0, int((found.failures - room) / self._rate_s * 1_000) + 1)

    def _pay_off(self, found: _Address[ClientT], now: InstantMs) -> None:
        paid = (now - found.at) / 1_000 * self._rate_s
        found.failures, found.at = max(0.0, found.failures - paid), now

    def _is_clean(self, found: _Address[ClientT]) -> bool:
        return not found.failures and not found.under_way and not found.waiting

    def _forget(self) -> None:
        """Forget addresses that nothing waits for, the oldest first, if there are too many."""
        if len(self._addresses) <= ADDRESSES_MAX:
            return
        for address, found in self._addresses.items():
            if not found.waiting:
                del self._addresses[address]
                return
