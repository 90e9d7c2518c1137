"""Threads that are there before they are needed, on a machine that gives no more of them."""

import asyncio
import threading
from pathlib import Path

import pytest
from tidemark.runtime.event_loop import new_event_loop
from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.service import run_service
from tidemark.runtime.threads import NoThreadError, start_shared_threads, started_threads
from unit.tidemark.runtime.exhausted import no_thread_left


def threads_of_all_kinds() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def test_jobs_find_their_threads_though_none_can_be_started() -> None:
    with started_threads(3, "early") as pool, no_thread_left():
        with pytest.raises(RuntimeError, match="can't start new thread"):
            threading.Thread(target=int).start()
        together = threading.Barrier(4)
        jobs = [pool.submit(together.wait) for _ in range(3)]
        assert {together.wait(), *(job.result() for job in jobs)} == {0, 1, 2, 3}


def test_a_pool_that_cannot_have_its_threads_is_not_made() -> None:
    with no_thread_left(), pytest.raises(NoThreadError, match=r"2 threads 'late'.*ulimit -u"):
        started_threads(2, "late")


def test_a_loop_has_all_its_threads_at_once() -> None:
    async def main() -> None:
        await start_shared_threads()
        before = threads_of_all_kinds()
        with no_thread_left():
            assert await asyncio.to_thread(int, "7") == 7
        await asyncio.get_running_loop().getaddrinfo("localhost", 80)
        assert threads_of_all_kinds() == before

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())


@pytest.mark.usefixtures("signals_restored")
def test_a_service_without_its_threads_does_not_start() -> None:
    async def main(_: asyncio.Event) -> None:
        with no_thread_left():
            await start_shared_threads()

    assert asyncio.run(run_service(main, shutdown_deadline_ms=1_000)) is ExitCode.UNAVAILABLE
