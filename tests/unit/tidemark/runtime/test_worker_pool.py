"""The worker process: results and errors come home; it is niced, replaced, never left behind."""

import asyncio
import multiprocessing
import os
import signal
import threading
import time

import pytest
from tidemark.runtime.os_disk import OsDisk
from tidemark.runtime.worker_pool import WorkerDiedError, WorkerPool, WorkerPoolBusyError
from tidemark.storage.disk import DiskError
from waiting import wait_for


def _wait_gone(pid: int) -> None:
    """Until the process is reaped."""
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"), f"process {pid} is gone")


@pytest.mark.slow
def test_life_of_a_worker() -> None:
    """One scenario for all, because starting a process takes a good part of a second."""

    async def scenario() -> None:
        pool = WorkerPool(jobs_max=2)
        assert await pool.run(pow, 3, 4) == 81
        assert await pool.run(os.nice, 0) == min(os.nice(0) + 10, 19)
        with pytest.raises(DiskError, match="No such file"):
            await pool.run(OsDisk, "/proc/none")

        killed = await pool.run(os.getpid)
        async with asyncio.TaskGroup() as group:
            sleeping = [group.create_task(_died(pool)) for _ in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(WorkerPoolBusyError):
                await pool.run(os.getpid)
            os.kill(killed, signal.SIGKILL)
        assert all(task.result() for task in sleeping)
        assert pool.jobs == 0

        replacement = await pool.run(os.getpid)
        assert replacement != killed
        os.kill(replacement, signal.SIGKILL)
        await asyncio.to_thread(_wait_gone, replacement)
        last = await pool.run(os.getpid)
        async with asyncio.TaskGroup() as group:
            cut_short = group.create_task(_died(pool))
            await asyncio.sleep(0.05)
            await pool.close()
        assert cut_short.result()
        await asyncio.to_thread(_wait_gone, last)
        await pool.close()

    asyncio.run(scenario())


async def _died(pool: WorkerPool) -> bool:
    try:
        await pool.run(time.sleep, 60)
    except WorkerDiedError:
        return True
    return False


def test_a_pool_that_was_never_used_starts_nothing() -> None:
    def running() -> set[object]:
        return {*multiprocessing.active_children(), *threading.enumerate()}

    async def scenario() -> set[object]:
        pool = WorkerPool()
        await asyncio.sleep(0)
        seen = running()
        await pool.close()
        return seen | running()

    before = running()
    assert asyncio.run(scenario()) - before == set()
