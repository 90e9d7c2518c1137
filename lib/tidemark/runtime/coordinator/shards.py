"""Shards that the metadata assigns to this replica, each loaded and served while it is assigned.

For each shard: acquire a new owner epoch from the controller, take over the log (which fences the
last owner), replay it, serve. When an append fails, or a later owner has written, the state is
dropped and everything begins again. It ends when the metadata assigns the shard to another replica.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from tidemark.codec.java_hash import shard_for_name
from tidemark.model.backoff import Backoff, Dice, RetryDelays
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.metadata import ShardOwner
from tidemark.runtime.clock import Clock
from tidemark.runtime.metrics import Tally
from tidemark.runtime.telemetry import fields

log = logging.getLogger(__name__)

_BACKOFF: Final = Backoff(50, 5_000)
_STEADY_MS: Final = 10_000
"""After a shard served for so long, the pause before its next load is a short one again."""


class Runtime(Protocol):
    """Runtime of one shard under one owner epoch."""

    async def run(self) -> None:
        """Load, then serve until cancelled. Raises TidemarkError, or a group of them, when the
        state was dropped.
        """
        ...

    async def ask(self, request: Any) -> Any:
        """Return the reply to a request. Raises TidemarkError."""
        ...

    def submit(self, request: Any) -> None:
        """Take a request that has no reply."""
        ...

    @property
    def is_serving(self) -> bool:
        """True if the whole log is replayed."""
        ...

    @property
    def waiting_count(self) -> int:
        """Number of requests that are not answered yet."""
        ...

    def close(self) -> None:
        """Release resources. Called after ``run``."""
        ...


RuntimeT = TypeVar("RuntimeT", bound=Runtime)

OpenRuntime = Callable[[int, int], RuntimeT]
"""Creates the runtime of a shard under an owner epoch: ``open_runtime(shard, owner_epoch)``."""

Acquire = Callable[[int], Awaitable[int]]
"""Returns a new owner epoch of a shard. Raises TidemarkError."""


@dataclass(eq=False, slots=True)
class _Held(Generic[RuntimeT]):
    """A shard that is, or was, assigned to this replica."""

    shard: int
    owned: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while the metadata assigns the shard to this replica."""
    owner_epoch: int = 0
    """0 while it is being acquired."""
    runtime: RuntimeT | None = None
    serving: asyncio.Task[None] | None = None
    was_fenced: bool = False
    """True if another service refused the owner epoch of the last runtime."""

    def drop(self) -> None:
        """Stop serving the shard, if it is served."""
        if self.serving is not None:
            self.serving.cancel()


@dataclass(slots=True)
class ShardStats:
    """Counts since the start. Metrics replace the tallies by their own."""

    loads: Tally = field(default_factory=Tally)
    failures: Tally = field(default_factory=Tally)


class Shards(Generic[RuntimeT]):
    """All shards of one replica. ``run`` is the parent of every task."""

    def __init__(
        self,
        clock: Clock,
        *,
        state_topic: str,
        acquire: Acquire,
        open_runtime: OpenRuntime[RuntimeT],
        on_dropped: Callable[[int], None] = lambda _: None,
        dice: Dice = random.random,
    ) -> None:
        """``on_dropped`` is called with each shard whose state is no longer served."""
        self.stats = ShardStats()
        self._clock = clock
        self._state_topic = state_topic
        self._acquire = acquire
        self._open_runtime = open_runtime
        self._on_dropped = on_dropped
        self._dice = dice
        self._shard_count = 0
        self._held: dict[int, _Held[RuntimeT]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._is_draining = False
        self._asking_count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    # -- state

    def owned(self) -> list[int]:
        """Return the shards that are assigned to this replica, loaded or not."""
        return sorted(held.shard for held in self._held.values() if held.owned.is_set())

    def serving(self) -> Mapping[int, RuntimeT]:
        """Return the runtimes of the loaded shards."""
        return {
            held.shard: held.runtime
            for held in self._held.values()
            if held.runtime is not None and held.runtime.is_serving
        }

    def shard_of(self, name: str) -> int:
        """Return the shard of a transactional id or a group id. Raises TidemarkError
        COORDINATOR_NOT_AVAILABLE while there are no shards.
        """
        if self._shard_count == 0:
            words = f"the topic {self._state_topic} does not exist yet"
            raise TidemarkError(ErrorCode.COORDINATOR_NOT_AVAILABLE, words)
        return shard_for_name(name, self._shard_count)

    def check(self, shard: int) -> RuntimeT:
        """Return the runtime of a shard. Raises TidemarkError: NOT_COORDINATOR if another replica
        has the shard, COORDINATOR_LOAD_IN_PROGRESS if the client is to retry soon.
        """
        held = self._held.get(shard)
        if held is None or not held.owned.is_set() or self._is_draining:
            words = f"{self._state_topic}-{shard} is another coordinator's"
            raise TidemarkError(ErrorCode.NOT_COORDINATOR, words)
        if held.runtime is None or not held.runtime.is_serving:
            words = f"{self._state_topic}-{shard} is being loaded"
            raise TidemarkError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, words)
        return held.runtime

    # -- requests

    async def ask(self, shard: int, request: Any, timeout_s: float) -> Any:
        """Return the reply to a request. Raises TidemarkError as ``check``, and REQUEST_TIMED_OUT,
        after which the request may still take effect.
        """
        runtime = self.check(shard)
        self._asking_count += 1
        self._idle.clear()
        try:
            async with asyncio.timeout(timeout_s):
                return await runtime.ask(request)
        except TimeoutError:
            words = f"shard {shard} did not answer within {timeout_s:g} s; it may still do so"
            raise TidemarkError(ErrorCode.REQUEST_TIMED_OUT, words) from None
        finally:
            self._asking_count -= 1
            if self._asking_count == 0:
                self._idle.set()

    async def drain(self) -> None:
        """Refuse further requests. Return when those under way are answered."""
        self._is_draining = True
        await self._idle.wait()

    # -- results of effects

    def submit(self, shard: int, request: Any) -> None:
        """Give a request without a reply to the shard, if it is still served."""
        held = self._held.get(shard)
        if held is not None and held.runtime is not None:
            held.runtime.submit(request)

    def fenced(self, shard: int, owner_epoch: int) -> None:
        """Drop the state under this owner epoch or an older one. It is loaded again, if the shard
        is still assigned to this replica.
        """
        held = self._held.get(shard)
        if held is not None and held.owner_epoch <= owner_epoch:
            held.was_fenced = True
            held.drop()

    # -- assignment

    def assign(self, owners: Sequence[ShardOwner], ours: Collection[int]) -> None:
        """Take the owners of all shards from the metadata, and the shards of this process."""
        self._shard_count = len(owners)
        for held in self._held.values():
            if held.owned.is_set() and held.shard not in ours:
                log.info("shard moved away", extra=fields(shard=held.shard))
                held.owned.clear()
                held.drop()
        for owner in owners:
            if owner.shard in ours:
                self._own(owner)

    def _own(self, owner: ShardOwner) -> None:
        held = self._held.get(owner.shard)
        if held is None:
            held = self._held[owner.shard] = _Held(owner.shard)
            if self._tasks is not None:
                self._start(held)
        if not held.owned.is_set():
            held.owned.set()
        elif 0 < held.owner_epoch < owner.owner_epoch:
            held.drop()  # the shard was another's in between, in metadata that was skipped

    async def run(self) -> None:
        """Serve shards until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                for held in self._held.values():
                    self._start(held)
                await asyncio.get_running_loop().create_future()
        finally:
            self._tasks = None

    def _start(self, held: _Held[RuntimeT]) -> None:
        assert self._tasks is not None, "run() starts shards"
        self._tasks.create_task(self._hold(held), name=f"shard-{held.shard}")

    async def _hold(self, held: _Held[RuntimeT]) -> None:
        """Serve the shard whenever it is assigned to this replica."""
        delays = RetryDelays(_BACKOFF, self._dice)
        while True:
            await held.owned.wait()
            began = self._clock.now_ms()
            if await self._serve_until_dropped(held):
                delays.reset()
                continue
            if self._clock.now_ms() - began >= _STEADY_MS:
                delays.reset()
            await asyncio.sleep(delays.next_s())

    async def _serve_until_dropped(self, held: _Held[RuntimeT]) -> bool:
        """Serve the shard. True if it ended because of the metadata."""
        held.was_fenced = False
        async with asyncio.TaskGroup() as tasks:
            held.serving = serving = tasks.create_task(self._serve(held))
            try:
                await asyncio.wait((serving,))
            finally:
                held.serving = None
        return serving.cancelled() and not held.was_fenced

    async def _serve(self, held: _Held[RuntimeT]) -> None:
        """Serve the shard under one owner epoch, from its acquisition. Return after a failure."""
        words = {"shard": held.shard}
        try:
            await self._run(held, words)
        except* TidemarkError as failures:
            self.stats.failures.value += 1
            reasons = "; ".join(map(str, causes(failures)))
            log.warning("shard dropped", extra=fields(**words, reason=reasons))
        except* ValueError as damage:
            # A record of a later release, or a damaged one: the shard cannot be served without it.
            self.stats.failures.value += 1
            reasons = "; ".join(map(str, causes(damage)))
            details = fields(**words, reason=reasons)
            log.error("shard cannot be loaded", extra=details, exc_info=damage)
        except* Exception as bugs:
            self.stats.failures.value += 1
            log.critical("shard dropped: internal error", extra=fields(**words), exc_info=bugs)

    async def _run(self, held: _Held[RuntimeT], words: dict[str, int]) -> None:
        """Acquire the shard, then run it. ``words`` is given the owner epoch, for the log."""
        held.owner_epoch = 0
        held.owner_epoch = words["owner_epoch"] = await self._acquire(held.shard)
        self.stats.loads.value += 1
        held.runtime = runtime = self._open_runtime(held.shard, held.owner_epoch)
        try:
            await runtime.run()
        finally:
            held.runtime = None
            runtime.close()
            self._on_dropped(held.shard)


def causes(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """Return the exceptions within nested groups."""
    return [
        cause
        for inner in group.exceptions
        for cause in (causes(inner) if isinstance(inner, BaseExceptionGroup) else [inner])
    ]
