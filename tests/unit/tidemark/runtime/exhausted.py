"""Machines that give a process no more of something, for the length of a block."""

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

NO_ROOM_BYTES: Final = 1 << 47
"""Of a stack: as much as all addresses of a process."""


@contextmanager
def no_thread_left() -> Iterator[None]:
    """Python can start none."""
    usual = threading.stack_size(NO_ROOM_BYTES)
    try:
        yield
    finally:
        threading.stack_size(usual)


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """The kernel gives no number at or above the soft limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open("/dev/null", os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
