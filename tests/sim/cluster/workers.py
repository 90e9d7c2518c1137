"""A broker's worker processes: their work takes time, and is told some time after it is done."""

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, ParamSpec, TypeVar

from tidemark.runtime.worker_pool import WorkerPool

P = ParamSpec("P")
T = TypeVar("T")


class SimWorkers(WorkerPool):
    """Jobs run in the simulated process itself. A broker that is killed after one has ended and
    before it is told leaves on its disk what the job wrote.
    """

    def __init__(self, *, told_after_ms: Callable[[], int], **limits: Any) -> None:
        """``limits`` as WorkerPool's: none is met here."""
        super().__init__(**limits)
        self._told_after_ms = told_after_ms

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As WorkerPool."""
        work = partial(function, *args, **kwargs)
        result = await asyncio.get_running_loop().run_in_executor(None, work)
        await asyncio.sleep(self._told_after_ms() / 1_000)
        return result

    async def run_for(
        self, lane: Hashable, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """As WorkerPool; lanes do not wait for one another."""
        del lane
        return await self.run(function, *args, **kwargs)
