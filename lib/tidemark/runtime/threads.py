"""Thread pools whose threads are started in advance.

A pool that starts a thread for a job fails that job when the process, or the machine, has no
thread left. Jobs that wait for a disk (a flush round, a cold read) must not fail in that way.
"""

import asyncio
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tidemark.runtime.exit_codes import ExitCode

_SHARED_MAX: Final = 32
_SHARED_BEYOND_CPUS: Final = 4
"""Threads beyond the number of CPUs, as in asyncio's default executor."""


class NoThreadError(Exception):
    """The process cannot start as many threads as it needs; it does not start."""

    exit_code = ExitCode.UNAVAILABLE


def started_threads(count: int, name: str) -> ThreadPoolExecutor:
    """Return a pool of ``count`` threads, all running already. Raises NoThreadError."""
    pool = ThreadPoolExecutor(count, thread_name_prefix=name)
    all_run = threading.Barrier(count + 1)
    try:
        for _ in range(count):
            pool.submit(all_run.wait)
    except RuntimeError as problem:
        all_run.abort()
        pool.shutdown(wait=False)
        words = "raise the limit of threads (ulimit -u; TasksMax of systemd; pids of a container)"
        raise NoThreadError(f"{count} threads {name!r}: {problem}; {words}") from problem
    all_run.wait()
    return pool


async def start_shared_threads() -> None:
    """Start the threads of ``asyncio.to_thread`` on the running loop, and those that look up names:
    without one libuv would end the process at the first look-up. Raises NoThreadError.
    """
    loop = asyncio.get_running_loop()
    count = min(_SHARED_MAX, (os.cpu_count() or 1) + _SHARED_BEYOND_CPUS)
    loop.set_default_executor(started_threads(count, "shared"))
    await loop.getnameinfo(("127.0.0.1", 0), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)
