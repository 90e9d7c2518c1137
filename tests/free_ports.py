"""Ports for servers of tests.

The kernel gives outgoing connections the ports above 32,768: one that is free there when a test
asks may be taken before its server listens. Clusters take blocks from 20,000 on (``Layout``).
"""

import fcntl
import os
import random
import tempfile
from pathlib import Path
from typing import Final

from tidemark.cli.dev.layout import port_is_free

_SLICE: Final = 100
_FIRSTS: Final = range(10_000, 20_000, _SLICE)

_mine: Final[dict[int, int]] = {}
"""First ports of the slices that this process has locked, and the locks: as long as it lives."""
_left: Final[list[int]] = []


def free_port() -> int:
    """Return a port that nobody listens on, and that no other process gets from here: a server that
    is down for a moment finds its port again. Another one at each call, unless all are given.
    """
    while True:
        if not _left:
            _left.extend(range(first := _slice(), first + _SLICE))
        port = _left.pop()
        if port_is_free(port):
            return port


def _slice() -> int:
    """Lock another slice, or return the first one again if every one is locked."""
    directory = Path(tempfile.gettempdir(), f"tidemark-test-ports-{os.getuid()}")
    directory.mkdir(mode=0o700, exist_ok=True)
    for first in random.SystemRandom().sample(_FIRSTS, len(_FIRSTS)):
        if first in _mine:
            continue
        lock = os.open(directory / str(first), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            _mine[first] = lock
            return first
    oldest = next(iter(_mine), None)
    assert oldest is not None, f"other processes have locked all ports: {directory}"
    _mine[oldest] = _mine.pop(oldest)
    return oldest
