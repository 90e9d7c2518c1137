"""A broker's worker processes: their work takes time, and is told some time after it is done."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from tidemark.runtime.worker_pool import WorkerPool

P = ParamSpec("P")
T = TypeVar("T")


class SimWorkers(WorkerPool):
    """Jobs run in the simulated process itself. A broker that is killed after one has ended and
    before it is told leaves on its disk what the job wrote.
    """

    def __init__(
        self, *, jobs_max: int = 64, niceness: int = 0, told_after_ms: Callable[[], int]
    ) -> None:
        super().__init__(jobs_max=jobs_max, niceness=niceness)
        self._told_after_ms = told_after_ms

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As WorkerPool."""
        work = partial(function, *args, **kwargs)
        result = await asyncio.get_running_loop().run_in_executor(None, work)
        await asyncio.sleep(self._told_after_ms() / 1_000)
        return result
