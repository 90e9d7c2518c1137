"""Threads that run before they are needed.

A pool that starts a thread with a job fails that job when the process, or the machine, has no
thread left. What waits for a disk here (a flush round, a cold read) must not fail so.
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
"""As many as asyncio would start in the course of time."""


class NoThreadError(Exception):
    """A process has fewer threads than it needs; it does not start."""

    exit_code = ExitCode.UNAVAILABLE


def started_threads(count: int, name: str) -> ThreadPoolExecutor:
    """A pool of ``count`` threads that all run when this returns. Raises NoThreadError."""
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
    """Start the threads of ``asyncio.to_thread`` on the running loop, and those by which it looks
    up names: without one libuv would end the process at the first look-up. Raises NoThreadError.
    """
    loop = asyncio.get_running_loop()
    count = min(_SHARED_MAX, (os.cpu_count() or 1) + _SHARED_BEYOND_CPUS)
    loop.set_default_executor(started_threads(count, "shared"))
    await loop.getnameinfo(("127.0.0.1", 0), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)
