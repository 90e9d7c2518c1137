"""One niced worker process for whatever walks records: compaction, recompression, log reads by
time.

A Python thread that walks records would hold the GIL and raise every client's latency; a process of
its own, at a lower priority, does not. It is started at the first job and again after it died.
"""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import Final, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

NICENESS: Final = 10
"""Of background work: it yields to everything that serves."""
_STARTS_MAX: Final = 3


class WorkerPoolBusyError(Exception):
    """As many jobs as the pool may hold are waiting: do less, or come back later."""


class WorkerDiedError(Exception):
    """The worker process died (killed, out of memory) under this job; the next gets a new one."""


class _Worker(NamedTuple):
    executor: ProcessPoolExecutor
    leash: Connection
    """The worker ends when this end of the pipe closes: when we close it, or die."""


class WorkerPool:
    """Runs picklable functions in the worker, one at a time, in the order in which they came.

    Belongs to one event loop. ``jobs_max`` bounds those running and waiting.
    """

    def __init__(self, *, jobs_max: int = 64, niceness: int = NICENESS) -> None:
        assert jobs_max > 0
        self._niceness = niceness
        self._jobs_max = jobs_max
        self._jobs = 0
        self._worker: _Worker | None = None
        self._starting = asyncio.Lock()
        self._closed = False

    @property
    def jobs(self) -> int:
        """Running and waiting."""
        return self._jobs

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The function's result, or what it raised; function, arguments and result must pickle.

        Raises WorkerPoolBusyError at once when full, WorkerDiedError when the worker dies meanwhile
        (or the pool is closed). Cancelling the caller does not stop a job that already runs.
        """
        assert not self._closed, "the pool was closed"
        if self._jobs >= self._jobs_max:
            raise WorkerPoolBusyError(f"{self._jobs} jobs are waiting for the worker")
        self._jobs += 1
        try:
            for _ in range(_STARTS_MAX):
                worker = await self._live_worker()
                try:
                    future = worker.executor.submit(function, *args, **kwargs)
                except BrokenProcessPool:  # it died while idle: no job of ours was lost
                    self._forget(worker)
                else:
                    return await self._outcome(worker, future)
            raise WorkerDiedError("the worker process does not start")
        finally:
            self._jobs -= 1

    async def _live_worker(self) -> _Worker:
        # The lock is fair, so that jobs keep their order while the worker starts. That takes a
        # thread, because spawning a process would hold up the loop for some 10 ms.
        async with self._starting:
            if self._closed:
                raise WorkerDiedError("the pool was closed")
            if self._worker is None:
                self._worker = await asyncio.to_thread(_start, self._niceness)
            return self._worker

    async def _outcome(self, worker: _Worker, future: Future[T]) -> T:
        try:
            return await asyncio.wrap_future(future)
        except BrokenProcessPool as problem:
            self._forget(worker)
            raise WorkerDiedError(str(problem)) from problem

    def _forget(self, dead: _Worker) -> None:
        """Several jobs may hear of one death; later ones may already have a new worker."""
        if self._worker is dead:
            self._worker = None
        dead.leash.close()
        dead.executor.shutdown(wait=False, cancel_futures=True)

    async def close(self) -> None:
        """End the worker, whatever it does, and reap it; open ``run`` calls raise. Idempotent.

        Every job leaves the disk such that it may be cut short anywhere.
        """
        self._closed = True
        async with self._starting:
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.leash.close()
            await asyncio.to_thread(worker.executor.shutdown, wait=True, cancel_futures=True)


def _start(niceness: int) -> _Worker:
    # spawn: a forked copy would share our sockets, descriptors and locks.
    context = multiprocessing.get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    executor = ProcessPoolExecutor(
        max_workers=1, mp_context=context, initializer=_become_worker, initargs=(theirs, niceness)
    )
    executor.submit(_nothing)  # the process is spawned by the first job
    return _Worker(executor, ours)


def _nothing() -> None:
    """The first job."""


def _become_worker(leash: Connection, niceness: int) -> None:
    os.nice(niceness)
    # Ctrl-C reaches the whole process group; who ends the worker is its parent.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(leash,), name="leash", daemon=True).start()


def _end_with(leash: Connection) -> None:
    """Without this a worker would outlive a parent that was killed."""
    with contextlib.suppress(EOFError, OSError):
        leash.recv_bytes()
    os._exit(0)
