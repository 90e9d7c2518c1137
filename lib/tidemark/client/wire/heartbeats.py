"""Heartbeats of a member of a group, in a task of its session; for consumer and share groups."""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from tidemark.client.errors import ClientError, error_for
from tidemark.client.wire.coordinator import Coordinator
from tidemark.client.wire.session import Session
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.backoff import Backoff
from tidemark.runtime.clock import Clock

log: Final = logging.getLogger("tidemark.client.wire.heartbeats")

Fields = Mapping[str, Any]


class GroupMember(Protocol):
    """Membership as a state machine."""

    @property
    def is_joined(self) -> bool:
        """True if heartbeats are sent."""
        ...

    def due_at(self) -> float | None:
        """Return the time of the next heartbeat; None while none is to be sent."""
        ...

    def heartbeat(self) -> Fields:
        """Return the fields of the heartbeat that is due."""
        ...

    def go_away(self) -> Fields | None:
        """Leave because of a missing ``poll``."""
        ...

    def passes(self, error_code: int) -> bool:
        """True if the heartbeat is retried after this error."""
        ...

    def on_unanswered(self, retry_at: float) -> None:
        """Retry after a missing answer or a retriable error."""
        ...

    def fail(self, problem: ClientError) -> None:
        """Fail the membership with an error that retries cannot fix."""
        ...


class Heartbeats:
    """Sends the heartbeats of one member while its session runs.

    A member whose user does not poll for ``max_poll_interval_ms`` leaves. ``changed`` is set when
    the member's state may have changed.
    """

    def __init__(
        self,
        session: Session,
        coordinator: Coordinator,
        clock: Clock,
        api_key: ApiKey,
        *,
        member: GroupMember,
        on_answer: Callable[[Struct], None],
        changed: asyncio.Event,
        backoff: Backoff,
        max_poll_interval_ms: int,
    ) -> None:
        self.polled_at = 0
        """Time of the user's last poll."""
        self._session = session
        self._coordinator = coordinator
        self._clock = clock
        self._api_key = api_key
        self._member = member
        self._on_answer = on_answer
        self._changed = changed
        self._backoff = backoff
        self._max_poll_interval_ms = max_poll_interval_ms
        self._woken = asyncio.Event()
        self._started = False

    @property
    def is_started(self) -> bool:
        """True once the task runs."""
        return self._started

    def start(self, name: str) -> None:
        """Start the task; requires a running session."""
        assert not self._started, "started twice"
        self._started = True
        self._session.spawn(self._beat(), name=name)

    def wake(self) -> None:
        """Look at the member again: a heartbeat may be due."""
        self._woken.set()

    async def leave(self, fields: Fields | None) -> None:
        """Try once to leave; otherwise the coordinator notices at the session's end."""
        if fields is None:
            return
        try:
            await self._coordinator.ask(self._api_key, fields)
        except ClientError as problem:
            log.info("leaving group %s not acknowledged: %s", self._coordinator.key, problem)

    async def _beat(self) -> None:
        failures = 0
        while True:
            self._woken.clear()
            now = self._clock.now_ms()
            member = self._member
            idle_until = self.polled_at + self._max_poll_interval_ms
            if member.is_joined and now >= idle_until:
                await self.leave(member.go_away())
                self._changed.set()
                continue
            due = member.due_at()
            if due is not None and due <= now:
                failures = await self._beat_once(failures)
                continue
            until = idle_until if due is None else min(due, idle_until)
            await self._sleep(until - now if member.is_joined else None)

    async def _beat_once(self, failures: int) -> int:
        """Send one heartbeat and return the number of failures in a row."""
        member = self._member
        fields = member.heartbeat()
        try:
            answer = await self._coordinator.ask(self._api_key, fields)
        except ClientError as problem:
            return self._on_no_answer(problem, failures)
        finally:
            self._changed.set()
        if member.passes(answer.error_code):
            what = f"a heartbeat to group {self._coordinator.key!r} failed"
            refusal = error_for(answer.error_code, what, detail=answer.error_message)
            self._coordinator.note(refusal)
            return self._on_no_answer(refusal, failures)
        self._on_answer(answer)
        return 0

    def _on_no_answer(self, problem: ClientError, failures: int) -> int:
        if not problem.retriable:
            self._member.fail(problem)
            return 0
        delay_ms = self._backoff.delay_ms(failures + 1, random.random())
        self._member.on_unanswered(self._clock.now_ms() + delay_ms)
        return failures + 1

    async def _sleep(self, allowed_ms: float | None) -> None:
        try:
            async with asyncio.timeout(None if allowed_ms is None else allowed_ms / 1_000):
                await self._woken.wait()
        except TimeoutError:
            return
