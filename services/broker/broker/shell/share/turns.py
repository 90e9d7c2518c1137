"""Turns: what follows from the requests of one turn of the event loop, done once at its end.

Requests change share-partitions and ``touch`` them. At the end of the turn the changes are written,
one call for each group, unless they are gathered for a later one; fetches that wait are looked at
again; the one timer is set to the first deadline of all share-partitions.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from tidemark.model.ids import InstantMs
from tidemark.model.share_state import ReadState, WriteState
from tidemark.runtime.clock import Clock

from broker.core.parked import WAIT_MS_MAX, Parked
from broker.core.share.deadlines import Deadlines, earlier
from broker.core.share.fetch_queue import FetchQueue
from broker.core.share.states import Phase
from broker.shell.share.gathering import Gathering
from broker.shell.share.held import HeldShare, log_epochs
from broker.shell.share.persister import Persister


class WaitingFetch(Protocol):
    """A ShareFetch request that waits for records."""

    def __hash__(self) -> int:
        """Return the hash of its identity."""

    @property
    def member_id(self) -> str:
        """Member of the request."""

    def look_again(self) -> None:
        """Answer, if there are records now."""


class Turns:
    """Share-partitions that changed, and those with a deadline."""

    def __init__(
        self, clock: Clock, parked: Parked, copy_letters: Callable[[HeldShare], None]
    ) -> None:
        """``copy_letters`` begins to copy the dead letters of a share-partition."""
        self.queue: FetchQueue[WaitingFetch] = FetchQueue()
        self.gathering = Gathering()
        self._clock = clock
        self._parked = parked
        self._copy_letters = copy_letters
        self._persister: Persister | None = None
        self._touched: dict[HeldShare, None] = {}
        self._is_due = False
        self._deadlines: Deadlines[HeldShare] = Deadlines()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = InstantMs(0)

    def write_with(self, persister: Persister) -> None:
        """Set the persister, which is built after this object."""
        self._persister = persister

    def touch(self, held: HeldShare) -> None:
        """Note a change, for the end of the turn."""
        self._touched[held] = None
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._end)

    def write_ended(self, group_id: str) -> None:
        """Go on with what was held back while a write of the group was under way."""
        for held in self.gathering.ended(group_id, self._clock.now_ms()):
            self.touch(held)

    def resume(self) -> None:
        """Do what had to wait for the persister."""
        for held in tuple(self._touched):
            self.touch(held)

    def stop(self) -> None:
        """Set no timer from here on."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- waiting fetches

    def park(self, fetch: WaitingFetch, waits_for: list[HeldShare]) -> None:
        """Let a fetch wait for these share-partitions."""
        self.queue.park(fetch, waits_for)
        for held in waits_for:
            self._watch(held)

    def leave(self, fetch: WaitingFetch) -> None:
        """End the wait of a fetch. Idempotent."""
        for held in self.queue.leave(fetch):
            assert isinstance(held, HeldShare), "fetches wait for share-partitions"
            self._unwatch(held)

    def _watch(self, held: HeldShare) -> None:
        """Look again once the partition gains readable records, or changes its role. Without room
        for another wait its fetches are answered at their deadlines.
        """
        if held.watch is None:

            def moved(_: bool) -> None:  # noqa: FBT001 - a look is due either way
                held.watch = None
                self.wake(held)

            held.watch = self._parked.park_fetch(
                [held.hosted],
                bytes_missing=1,
                now=self._clock.now_ms(),
                wait_ms=WAIT_MS_MAX,
                wake=moved,
            )

    def _unwatch(self, held: HeldShare) -> None:
        if held.watch is not None:
            self._parked.cancel(held.watch)
            held.watch = None

    def wake(self, held: HeldShare) -> None:
        """Look at the fetches of a share-partition at the end of the turn."""
        held.is_woken = True
        self.touch(held)

    # -- the end of a turn

    def _end(self) -> None:
        self._is_due = False
        persister = self._persister
        if persister is None or not persister.is_running:
            return  # ``resume`` follows
        now, gathering = self._clock.now_ms(), self.gathering
        touched, self._touched = self._touched, {}
        for group_id, batch in self._due_writes(touched, now).items():
            gathering.began(group_id, now)
            persister.write(group_id, batch)
        for group_id, reads in self._due_loads(touched, now).items():
            persister.load(group_id, reads)
        for held in touched:
            has_letters = not held.letters.is_idle
            if has_letters and not held.is_dropped and held.letters.is_due(now):
                self._copy_letters(held)
            if held.share.take_wakeup() or held.is_woken:
                held.is_woken = False
                self._look_again(held, now)
            self._set_deadline(held, now)
        self._arm()

    def _due_writes(
        self, touched: Iterable[HeldShare], now: InstantMs
    ) -> dict[str, list[tuple[HeldShare, WriteState]]]:
        """Begin the writes of groups that may write now; hold back the others."""
        groups: dict[str, list[HeldShare]] = {}
        for held in touched:
            groups.setdefault(held.group_id, []).append(held)
        writes: dict[str, list[tuple[HeldShare, WriteState]]] = {}
        for group_id, changed in groups.items():
            if not self.gathering.is_open(group_id, now):
                self.gathering.hold_back(group_id, changed, now)
                continue
            begun: list[tuple[HeldShare, WriteState]] = []
            for held in (*self.gathering.take_held_back(group_id), *changed):
                write = held.share.next_write(now)
                if write is not None:
                    begun.append((held, write))
            if begun:
                writes[group_id] = begun
        return writes

    def _due_loads(
        self, touched: Iterable[HeldShare], now: InstantMs
    ) -> dict[str, list[tuple[HeldShare, ReadState]]]:
        loads: dict[str, list[tuple[HeldShare, ReadState]]] = {}
        for held in touched:
            if held.share.phase is Phase.EMPTY and self._is_load_due(held, now):
                held.is_wanted = False
                read = held.share.begin_load(log_epochs(held.hosted))
                loads.setdefault(held.group_id, []).append((held, read))
        return loads

    def _is_load_due(self, held: HeldShare, now: InstantMs) -> bool:
        is_wanted = held.is_wanted or self.queue.has(held)
        return is_wanted and not held.is_dropped and held.loading.is_due(held.share.phase, now)

    def _look_again(self, held: HeldShare, now: InstantMs) -> None:
        """Let fetches that wait take what there is, in the order of their arrival."""
        if not self.queue.has(held):
            return
        for fetch in self.queue.waiting(held):
            if held.may_have_records(fetch.member_id, now):
                fetch.look_again()
            elif not held.share.settings.is_key_ordered:
                break  # nothing for one member is nothing for all
        if self.queue.has(held):
            self._watch(held)

    def _set_deadline(self, held: HeldShare, now: InstantMs) -> None:
        """Look at a share-partition again by its deadline. One that was dropped may be the first of
        those that wait for a write.
        """
        due = None
        if held.is_dropped:
            self._deadlines.forget(held)
        else:
            due = held.share.next_deadline()
            if not held.letters.is_idle:
                due = earlier(due, held.letters.next_deadline())
            if held.share.phase is Phase.EMPTY and self.queue.has(held):
                due = earlier(due, held.loading.next_deadline(held.share.phase))
        due = self.gathering.deadline(held, due, now)
        if due is not None:
            self._deadlines.look_by(held, due)

    def _arm(self) -> None:
        """Set the timer to the first deadline, unless it is due before that."""
        due = self._deadlines.next()
        if due is None:
            return
        if self._timer is not None:
            if self._timer_at <= due:
                return
            self._timer.cancel()
        wait_s = max(0, due - self._clock.now_ms()) / 1_000
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._expire)
        self._timer_at = due

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.now_ms()
        for held in self._deadlines.take_due(now):
            held.share.tick(now)
            self.touch(held)
        self._arm()
