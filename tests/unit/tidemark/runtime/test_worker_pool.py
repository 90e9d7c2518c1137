"""Worker processes: results and errors come home; they are niced, bounded, replaced, never left
behind, and serve lanes in turn.
"""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from tidemark.runtime.os_disk import OsDisk
from tidemark.runtime.worker_pool import (
    JobTooLargeError,
    JobTooLongError,
    WorkerDiedError,
    WorkerPool,
    WorkerPoolBusyError,
)
from tidemark.storage.disk import DiskError
from unit.tidemark.runtime.exhausted import no_descriptor_left, no_thread_left
from waiting import wait_for


def _is_reaped(pid: int) -> bool:
    return not os.path.exists(f"/proc/{pid}")


def _wait_dead(pid: int) -> None:
    """Until all threads of the process have ended: with the first alone gone it is a zombie in
    /proc, and still takes jobs. It is not reaped: that is the pool's.
    """
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def _sleeping(mark: Path) -> str:
    """A program for ``exec`` in a worker: it says that it runs, then sleeps."""
    return f"import time; open({str(mark)!r}, 'w').close(); time.sleep(600)"


async def _begun(mark: Path) -> None:
    await asyncio.to_thread(wait_for, mark.exists, "the job runs")


async def _died(pool: WorkerPool, mark: Path) -> bool:
    try:
        await pool.run(exec, _sleeping(mark))
    except WorkerDiedError:
        return True
    return False


@pytest.mark.slow
def test_results_and_errors_come_home_from_a_niced_process() -> None:
    async def scenario() -> None:
        pool = WorkerPool()
        assert await pool.run(pow, 3, 4) == 81
        assert await pool.run(os.nice, 0) == min(os.nice(0) + 10, 19)
        with pytest.raises(DiskError, match="No such file"):
            await pool.run(OsDisk, "/proc/none")
        with pytest.raises(RuntimeError, match="Unpicklable"):
            await pool.run(exec, "class Unpicklable(Exception): pass\nraise Unpicklable")
        assert pool.jobs == 0
        await pool.close()

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_worker_that_dies_takes_one_job_with_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        pool = WorkerPool(jobs_max=2)
        killed = await pool.run(os.getpid)
        async with asyncio.TaskGroup() as group:
            under_it = group.create_task(_died(pool, tmp_path / "mark"))
            await _begun(tmp_path / "mark")
            waiting = group.create_task(pool.run(os.getpid))
            await asyncio.sleep(0)
            with pytest.raises(WorkerPoolBusyError):
                await pool.run(os.getpid)
            os.kill(killed, signal.SIGKILL)
        assert under_it.result()
        assert waiting.result() != killed
        os.kill(waiting.result(), signal.SIGKILL)
        await asyncio.to_thread(_wait_dead, waiting.result())
        assert await pool.run(os.getpid) != waiting.result()
        await pool.close()

    asyncio.run(scenario())


@pytest.mark.slow
def test_what_runs_when_the_pool_is_closed_is_cut_short(tmp_path: Path) -> None:
    async def scenario() -> None:
        pool = WorkerPool()
        last = await pool.run(os.getpid)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(_died(pool, tmp_path / "mark"))
            await _begun(tmp_path / "mark")
            waiting = group.create_task(_died(pool, tmp_path / "mark"))
            await asyncio.sleep(0)
            await pool.close()
        assert running.result()
        assert waiting.result()
        assert _is_reaped(last)
        await pool.close()

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_job_beyond_its_deadline_is_killed_and_the_next_gets_another_process() -> None:
    async def scenario() -> None:
        pool = WorkerPool(deadline_s=0.5)
        late = await pool.run(os.getpid)
        with pytest.raises(JobTooLongError, match=r"after 0\.5 s"):
            await pool.run(exec, "while True: pass")
        assert await pool.run(os.getpid) != late
        assert _is_reaped(late)
        await pool.close()

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_job_beyond_the_bound_of_memory_is_refused() -> None:
    async def scenario() -> None:
        pool = WorkerPool(memory_max_bytes=100_000_000)
        assert len(await pool.run(bytes, 30_000_000)) == 30_000_000
        with pytest.raises(JobTooLargeError, match="more than 100000000 bytes"):
            await pool.run(bytes, 200_000_000)
        with pytest.raises(JobTooLargeError, match="more than 100000000 bytes"):
            await pool.run(len, bytes(200_000_000))  # not even received
        assert await pool.run(pow, 2, 2) == 4
        await pool.close()

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_lane_waits_for_no_other_while_there_are_two_workers(tmp_path: Path) -> None:
    async def scenario() -> None:
        pool = WorkerPool(workers=2, jobs_max=3)
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(_died_for(pool, "slow", tmp_path / "mark"))
            await _begun(tmp_path / "mark")
            with pytest.raises(WorkerPoolBusyError):
                await pool.run_for("slow", pow, 2, 2)
            assert await pool.run_for("quick", pow, 2, 2) == 4
            assert await pool.run_for("another", pow, 2, 3) == 8
            assert pool.jobs == 3
            await pool.close()

    asyncio.run(scenario())


async def _died_for(pool: WorkerPool, lane: str, mark: Path) -> None:
    with contextlib.suppress(WorkerDiedError):
        await pool.run_for(lane, exec, _sleeping(mark))


@pytest.mark.slow
def test_lanes_are_served_in_turn() -> None:
    async def scenario() -> None:
        pool, order = WorkerPool(), list[str]()

        async def job(lane: str, number: int) -> None:
            await pool.run_for(lane, pow, 1, 1)
            order.append(f"{lane}{number}")

        async with asyncio.TaskGroup() as group:
            for lane, count in (("a", 3), ("b", 2), ("c", 1)):
                for number in range(count):
                    group.create_task(job(lane, number))
        assert order == ["a0", "b0", "c0", "a1", "b1", "a2"]
        await pool.close()

    asyncio.run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("exhausted", [no_thread_left, no_descriptor_left])
def test_a_job_without_a_thread_or_a_descriptor_is_refused_and_the_next_one_is_done(
    exhausted: Callable[[], AbstractContextManager[None]],
) -> None:
    async def scenario() -> None:
        pool = WorkerPool()
        for _ in range(2):
            with exhausted(), pytest.raises(WorkerDiedError):
                await pool.run(pow, 3, 4)
        assert await pool.run(pow, 3, 4) == 81
        await pool.close()

    asyncio.run(scenario())


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
