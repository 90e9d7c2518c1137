"""Niced worker processes for code that walks records: compaction, recompression, lookups by time.

A Python thread that walks records would hold the GIL and raise every client's latency; a separate
process at a lower priority does not. Processes are started at the first job, and again after they
died.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from tidemark.runtime.worker_process import JobTooLargeError as JobTooLargeError
from tidemark.runtime.worker_process import JobTooLongError as JobTooLongError
from tidemark.runtime.worker_process import (
    Outcome,
    Task,
    WorkerLimits,
    WorkerProcess,
)
from tidemark.runtime.worker_process import WorkerDiedError as WorkerDiedError

P = ParamSpec("P")
T = TypeVar("T")

NICENESS: Final = 10
"""Niceness of background work, which yields to everything that serves clients."""
_CLOSED: Final = "the pool was closed"


class WorkerPoolBusyError(Exception):
    """The pool has as many jobs as it may have: submit fewer, or try again later."""


class _Job(NamedTuple):
    lane: Hashable
    task: Task
    outcome: asyncio.Future[Any]


class WorkerPool:
    """Pool of ``workers`` processes that run picklable functions.

    Jobs belong to lanes, which are served in turn. One job of a lane runs at a time, in order of
    arrival, so that with two workers a lane waits for at most one job of another lane.
    ``jobs_max`` bounds the jobs running and waiting, of all lanes together and of each; a lane
    without jobs may always add one. Belongs to one event loop.
    """

    def __init__(
        self,
        *,
        workers: int = 1,
        jobs_max: int = 64,
        niceness: int = NICENESS,
        deadline_s: float | None = None,
        memory_max_bytes: int | None = None,
    ) -> None:
        assert jobs_max > 0
        assert workers > 0
        self._limits = WorkerLimits(niceness, deadline_s, memory_max_bytes)
        self._workers_max = workers
        self._jobs_max = jobs_max
        self._jobs = 0
        self._by_lane: dict[Hashable, int] = {}
        """Number of jobs of each lane, running and waiting."""
        self._waiting: dict[Hashable, deque[_Job]] = {}
        """Waiting jobs by lane, the next lane first."""
        self._running: set[Hashable] = set()
        self._workers: list[WorkerProcess] = []
        self._idle: list[WorkerProcess] = []
        self._closed = False

    @property
    def jobs(self) -> int:
        """Number of jobs running and waiting."""
        return self._jobs

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the function as a job of a lane of its own; return its result or raise its error.

        Raises WorkerPoolBusyError at once when the pool is full; else as ``run_for``.
        """
        if self._jobs >= self._jobs_max:
            raise WorkerPoolBusyError(f"{self._jobs} jobs are waiting for the workers")
        result: T = await self._perform(object(), Task(function, args, kwargs))
        return result

    async def run_for(
        self, lane: Hashable, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run the function as a job of ``lane``; return its result or raise its error. Function,
        arguments and result must pickle.

        Raises WorkerPoolBusyError at once when the lane is full, WorkerDiedError when the worker
        dies meanwhile (or the pool is closed), JobTooLongError beyond the deadline,
        JobTooLargeError beyond the bound of memory. Cancelling the caller does not stop a job that
        already runs.
        """
        own = self._by_lane.get(lane, 0)
        if own >= self._jobs_max or (own and self._jobs >= self._jobs_max):
            raise WorkerPoolBusyError(f"{own} of {self._jobs} jobs wait for the workers already")
        result: T = await self._perform(lane, Task(function, args, kwargs))
        return result

    async def _perform(self, lane: Hashable, task: Task) -> Any:
        assert not self._closed, _CLOSED
        job = _Job(lane, task, asyncio.get_running_loop().create_future())
        self._jobs += 1
        self._by_lane[lane] = self._by_lane.get(lane, 0) + 1
        self._waiting.setdefault(lane, deque()).append(job)
        self._dispatch()
        return await job.outcome

    def _dispatch(self) -> None:
        """Start waiting jobs while workers are free."""
        while (job := self._next_job()) is not None:
            worker = self._free_worker(job)
            if worker is None:
                return
            self._take(job)
            if job.outcome.done():  # its caller was cancelled
                self._gone(job)
                continue
            self._running.add(job.lane)
            loop = asyncio.get_running_loop()
            self._idle.remove(worker)
            worker.perform(job.task, _reporter(loop, self._over, worker, job))

    def _next_job(self) -> _Job | None:
        """First job of the first lane that has none running."""
        return next(
            (jobs[0] for lane, jobs in self._waiting.items() if lane not in self._running), None
        )

    def _take(self, job: _Job) -> None:
        """Remove a job from the waiting ones."""
        jobs = self._waiting.pop(job.lane)
        jobs.popleft()
        if jobs:
            self._waiting[job.lane] = jobs

    def _free_worker(self, job: _Job) -> WorkerProcess | None:
        if not self._idle and len(self._workers) < self._workers_max:
            try:
                worker = WorkerProcess(self._limits)
            except RuntimeError as problem:  # out of threads: the job waits for a worker, if any
                if not self._workers:
                    self._take(job)
                    self._settle(job, Outcome(None, WorkerDiedError(str(problem))))
            else:
                self._workers.append(worker)
                self._idle.append(worker)
        return self._idle[-1] if self._idle else None

    def _over(self, worker: WorkerProcess, job: _Job, outcome: Outcome) -> None:
        self._idle.append(worker)
        self._running.discard(job.lane)
        jobs = self._waiting.pop(job.lane, None)
        if jobs is not None:
            self._waiting[job.lane] = jobs  # behind the other lanes
        self._settle(job, outcome)
        if not self._closed:
            self._dispatch()

    def _settle(self, job: _Job, outcome: Outcome) -> None:
        self._gone(job)
        if job.outcome.done():
            return
        if outcome.error is not None:
            job.outcome.set_exception(outcome.error)
        else:
            job.outcome.set_result(outcome.value)

    def _gone(self, job: _Job) -> None:
        self._jobs -= 1
        left = self._by_lane[job.lane] - 1
        if left:
            self._by_lane[job.lane] = left
        else:
            del self._by_lane[job.lane]

    async def close(self) -> None:
        """Kill the workers and reap them; calls of ``run`` that wait raise WorkerDiedError.
        Idempotent.

        A job must leave the disk consistent wherever it is cut short.
        """
        self._closed = True
        waiting, self._waiting = self._waiting, {}
        for jobs in waiting.values():
            for job in jobs:
                self._settle(job, Outcome(None, WorkerDiedError(_CLOSED)))
        workers, self._workers = self._workers, []
        for worker in workers:
            await asyncio.to_thread(worker.end)


def _reporter(
    loop: asyncio.AbstractEventLoop,
    over: Callable[[WorkerProcess, _Job, Outcome], None],
    worker: WorkerProcess,
    job: _Job,
) -> Callable[[Outcome], None]:
    """Return a callback that passes an outcome from the worker's thread to the loop."""

    def report(outcome: Outcome) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits for it
            loop.call_soon_threadsafe(over, worker, job, outcome)

    return report
