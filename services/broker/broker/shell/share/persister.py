"""Persister: calls of the share-coordinators, as tasks; one call for all that a turn writes of a
group.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import Offset
from tidemark.model.share_state import (
    UNKNOWN_START,
    ReadState,
    SharePartitionKey,
    StateRead,
    StateResult,
    WriteState,
)
from tidemark.runtime.clock import Clock
from tidemark.runtime.task_parent import TaskParent
from tidemark.runtime.telemetry import fields

from broker.core.share.acknowledgement import Answer
from broker.core.share.answers import NOT_OPEN, Settled
from broker.core.share.states import Phase
from broker.shell.share.answers import AnswerSlot
from broker.shell.share.held import HeldShare
from broker.shell.share.start_offsets import StartOffsets
from broker.shell.share.state import ShareState

log = logging.getLogger(__name__)


def settle(settled: Settled) -> None:
    """Answer the requests that waited for a write."""
    for requests, answer in ((settled.requests, settled.answer), (settled.refused, NOT_OPEN)):
        for request in requests:
            assert isinstance(request, AnswerSlot), "requests are known by their places"
            request.settle(answer)


class Persister:
    """Reads and writes states. ``run`` is the parent of all calls; none begins outside it."""

    def __init__(
        self,
        state: ShareState,
        starts: StartOffsets,
        clock: Clock,
        *,
        timeout_s: float,
        on_changed: Callable[[HeldShare], None],
        on_written: Callable[[str], None],
        on_failed: Callable[[HeldShare], None],
    ) -> None:
        """``on_changed`` is called for a share-partition after each answer, ``on_failed`` after an
        internal error; ``on_written`` for a group after each write.
        """
        self._state = state
        self._starts = starts
        self._clock = clock
        self._timeout_s = timeout_s
        self._on_changed = on_changed
        self._on_written = on_written
        self._on_failed = on_failed
        self._calls = TaskParent()
        self._under_way: dict[SharePartitionKey, asyncio.Event] = {}
        """The end of the write of each share-partition that has one."""
        self.writes = 0
        self.failed_writes = 0

    @property
    def is_running(self) -> bool:
        """True while calls may begin."""
        return self._calls.is_running

    async def run(self) -> None:
        """Hold the tasks of calls until cancelled."""
        await self._calls.run()

    def _start(self, call: Coroutine[Any, Any, None]) -> None:
        begun = self._calls.start(call)
        assert begun is not None, "calls begin while it runs"

    async def _guarded(self, call: Callable[[], Awaitable[None]], of: Sequence[HeldShare]) -> None:
        """Run a call; an internal error costs its share-partitions alone."""
        try:
            await call()
        except Exception as failure:
            log.critical("share-partitions dropped: internal error", exc_info=True)
            self._drop(of, failure)

    def _drop(self, of: Sequence[HeldShare], failure: Exception) -> None:
        """Drop share-partitions; the simulator replaces this to see the failure."""
        del failure
        for held in of:
            self._on_failed(held)

    # -- writes

    def write(self, group_id: str, batch: Sequence[tuple[HeldShare, WriteState]]) -> None:
        """Write what has changed of share-partitions of one group."""
        self._start(self._write(group_id, batch))

    async def _write(self, group_id: str, batch: Sequence[tuple[HeldShare, WriteState]]) -> None:
        """Do as ``_guarded``, without a coroutine of its own: acknowledgements wait for this."""
        ended = asyncio.Event()
        keys = [held.share.key for held, _ in batch]
        self._under_way |= dict.fromkeys(keys, ended)
        try:
            writes = [write for _, write in batch]
            results = await self._state.write(group_id, writes, self._timeout_s)
            self._note_written(batch, results)
        except Exception as failure:
            self._on_written(group_id)
            log.critical("share-partitions dropped: internal error", exc_info=True)
            self._drop([held for held, _ in batch], failure)
        else:
            self._on_written(group_id)  # not when the persister stops: nothing may begin then
        finally:
            for key in keys:
                self._under_way.pop(key, None)
            ended.set()

    def _note_written(
        self, batch: Sequence[tuple[HeldShare, WriteState]], results: Sequence[StateResult]
    ) -> None:
        now = self._clock.now_ms()
        for (held, _), result in zip(batch, results, strict=True):
            self.writes += 1
            share, code = held.share, result.error_code
            was = share.phase
            settled = share.written(code, now, result.error_message, refused=result.refused)
            if code is not ErrorCode.NONE:
                self.failed_writes += 1
                log.warning(
                    "state of a share-partition not written",
                    extra=fields(
                        share_partition=str(share.key),
                        error=code.name,
                        reason=result.error_message or "",
                    ),
                )
            if was is not share.phase:
                held.loading.ended(share.phase, settled.answer, now)
            settle(settled)
            self._on_changed(held)

    # -- loads

    def load(self, group_id: str, batch: Sequence[tuple[HeldShare, ReadState]]) -> None:
        """Read the states of share-partitions of one group. One whose last window was dropped
        during a write is read after that: what the next window writes is laid over it.
        """
        parts: dict[asyncio.Event | None, list[tuple[HeldShare, ReadState]]] = {}
        for held, read in batch:
            parts.setdefault(self._under_way.get(held.share.key), []).append((held, read))
        for write, part in parts.items():
            call = partial(self._load, group_id, part, write)
            self._start(self._guarded(call, [held for held, _ in part]))

    async def _load(
        self,
        group_id: str,
        batch: Sequence[tuple[HeldShare, ReadState]],
        after: asyncio.Event | None,
    ) -> None:
        if after is not None:
            await after.wait()
        reads = [read for _, read in batch]
        answers = await self._state.read(group_id, reads, self._timeout_s)
        async with asyncio.TaskGroup() as resets:
            for (held, _), answer in zip(batch, answers, strict=True):
                if answer.error_code is ErrorCode.NONE and answer.start_offset == UNKNOWN_START:
                    resets.create_task(self._begin_state(held, answer))
                else:
                    self._loaded(held, answer, Offset(0))

    async def _begin_state(self, held: HeldShare, read: StateRead) -> None:
        """Take a state without a start offset, with the one that the group's configuration
        gives.
        """
        start = await self._starts.start_of(held)
        if isinstance(start, ErrorCode):
            words = f"no start offset yet: {start.name}"
            failed = replace(
                read, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message=words
            )
            self._loaded(held, failed, Offset(0))
        else:
            self._loaded(held, read, start)

    def _loaded(self, held: HeldShare, read: StateRead, reset_start: Offset) -> None:
        share, now = held.share, self._clock.now_ms()
        log_start = Offset(held.hosted.partition.bounds.log_start)
        answer: Answer = share.loaded(read, log_start=log_start, reset_start=reset_start)
        if answer.error_code is ErrorCode.NONE:
            held.letters.loaded(read.pending)
        held.loading.ended(share.phase, answer, now)
        if share.phase in (Phase.ACTIVE, Phase.INITIALIZING):
            log.info("share-partition loaded", extra=fields(share_partition=str(share)))
        else:
            # What the coordinator answered says more than what the client is told.
            code = answer.error_code if read.error_code is ErrorCode.NONE else read.error_code
            log.warning(
                "share-partition not loaded",
                extra=fields(
                    share_partition=str(share.key),
                    error=code.name,
                    reason=answer.message or "",
                ),
            )
        self._on_changed(held)
