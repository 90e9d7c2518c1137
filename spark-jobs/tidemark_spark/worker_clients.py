"""The clients of this Python process: opened where they are first used, kept for the tasks after.

Spark's daemon forks its workers, and neither gRPC nor an event loop's thread survives a fork. So
nothing is opened before the process that uses it runs a task, nothing that crosses pickle holds a
client, and what a parent had open is not this process's: it is known by the process id. A worker
that Spark reuses (``spark.python.worker.reuse``) finds its connections again at its next task; one
that is not reused ends with them.
"""

import atexit
import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Protocol, TypeVar, cast

from tidemark.client.errors import TidemarkError

CLIENTS_MAX: Final = 16
"""Of one process; beyond it the one unused for longest is closed. A task uses a few at most."""

_log = logging.getLogger(__name__)


class Closable(Protocol):
    """What a synchronous client is here."""

    def close(self) -> None:
        """Let go of everything."""


Client = TypeVar("Client", bound=Closable)


class _Opened:
    """The clients of one process, least recently used first."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.by_key: OrderedDict[Hashable, Closable] = OrderedDict()

    def close_all(self) -> None:
        while self.by_key:
            _close(self.by_key.popitem(last=False)[1])


_opened = _Opened(os.getpid())


def client(key: Hashable, open_client: Callable[[], Client]) -> Client:
    """This process's client for ``key`` (its class and all its settings), opened at first use.

    It stays open: do not close it. Raises what ``open_client`` raises.
    """
    opened = _of_this_process()
    known = opened.by_key.get(key)
    if known is None:
        while len(opened.by_key) >= CLIENTS_MAX:
            _close(opened.by_key.popitem(last=False)[1])
        known = opened.by_key[key] = open_client()
    opened.by_key.move_to_end(key)
    return cast("Client", known)


def discard(key: Hashable) -> None:
    """Close a client that failed: the next use opens another. Nothing if there is none."""
    known = _of_this_process().by_key.pop(key, None)
    if known is not None:
        _close(known)


def close_all() -> None:
    """Close what this process has open; called at its end."""
    _of_this_process().close_all()


def _of_this_process() -> _Opened:
    global _opened  # one table a process: a fork must not inherit it
    if _opened.pid != os.getpid():
        # The parent's clients: their threads do not exist here, so they cannot be closed either.
        _opened = _Opened(os.getpid())
    return _opened


def _close(closable: Closable) -> None:
    try:
        closable.close()
    except (TidemarkError, OSError, TimeoutError) as problem:
        _log.warning("closing %s: %s", type(closable).__name__, problem)


atexit.register(close_all)
