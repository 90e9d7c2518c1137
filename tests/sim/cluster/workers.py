"""Worker processes of a broker: jobs take time, and results arrive some time after their end."""

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, ParamSpec, TypeVar

from tidemark.runtime.worker_pool import WorkerPool

P = ParamSpec("P")
T = TypeVar("T")


class SimWorkers(WorkerPool):
    """Jobs run in the simulated process itself.

    A broker killed after the end of a job and before its result leaves the job's files on its disk.
    """

    def __init__(self, *, told_after_ms: Callable[[], int], **limits: Any) -> None:
        """``limits`` as WorkerPool's: none is reached here."""
        super().__init__(**limits)
        self._told_after_ms = told_after_ms

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """See WorkerPool."""
        work = partial(function, *args, **kwargs)
        result = await asyncio.get_running_loop().run_in_executor(None, work)
        await asyncio.sleep(self._told_after_ms() / 1_000)
        return result

    async def run_for(
        self, lane: Hashable, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """See WorkerPool; lanes do not wait for one another."""
        del lane
        return await self.run(function, *args, **kwargs)
