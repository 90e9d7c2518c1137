"""Clients of this Python process: opened at first use and kept for later tasks.

Spark's daemon forks its workers, and neither gRPC nor the thread of an event loop survives a fork.
So a client is opened only by the process that uses it, no pickled object contains a client, and
clients inherited from a parent process are recognised by its process id and ignored. A worker that
Spark reuses (``spark.python.worker.reuse``) keeps its connections for its next task; otherwise they
are closed when it exits. On the driver, queries that write with ``foreachBatch`` share the clients
from threads of their own.
"""

import atexit
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Protocol, TypeVar, cast

from tidemark.client.errors import TidemarkError

CLIENTS_MAX: Final = 16
"""Open clients of a process; beyond this limit the least recently used one is closed. A task uses a
few at most.
"""

_log = logging.getLogger(__name__)


class Closable(Protocol):
    """A synchronous client."""

    def close(self) -> None:
        """Release all resources."""


Client = TypeVar("Client", bound=Closable)


class _Opened:
    """The clients of one process, least recently used first. Thread-safe."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._lock = threading.Lock()
        self._by_key: OrderedDict[Hashable, Closable] = OrderedDict()

    def used(self, key: Hashable) -> Closable | None:
        """Return the client for a key, which is now the most recently used one."""
        with self._lock:
            known = self._by_key.get(key)
            if known is not None:
                self._by_key.move_to_end(key)
            return known

    def keep(self, key: Hashable, new: Closable) -> Closable:
        """Keep a new client and return it, or the one that another thread opened meanwhile."""
        with self._lock:
            kept = self._by_key.setdefault(key, new)
            self._by_key.move_to_end(key)
            surplus = [] if kept is new else [new]
            while len(self._by_key) > CLIENTS_MAX:
                surplus.append(self._by_key.popitem(last=False)[1])
        for each in surplus:
            _close(each)
        return kept

    def close(self, key: Hashable) -> None:
        """Close the client for a key, if there is one."""
        with self._lock:
            known = self._by_key.pop(key, None)
        if known is not None:
            _close(known)

    def close_all(self) -> None:
        """Close all clients."""
        with self._lock:
            clients = list(self._by_key.values())
            self._by_key.clear()
        for each in clients:
            _close(each)


_opened = _Opened(os.getpid())


def client(key: Hashable, open_client: Callable[[], Client]) -> Client:
    """Return this process's client for ``key`` (its class and all settings); open it at first use.

    Callers must not close it. Raises what ``open_client`` raises.
    """
    opened = _of_this_process()
    known = opened.used(key)
    if known is None:
        known = opened.keep(key, open_client())
    return cast("Client", known)


def discard(key: Hashable) -> None:
    """Close a client that failed, if it is open; the next use opens another."""
    _of_this_process().close(key)


def close_all() -> None:
    """Close all clients of this process; called when it exits."""
    _of_this_process().close_all()


def _of_this_process() -> _Opened:
    global _opened  # one table for each process: a fork must not use its parent's
    if _opened.pid != os.getpid():
        # The threads of the parent's clients do not exist here, so they cannot be closed.
        _opened = _Opened(os.getpid())
    return _opened


def _close(closable: Closable) -> None:
    try:
        closable.close()
    except (TidemarkError, OSError, TimeoutError) as problem:
        _log.warning("closing a client of type %s failed: %s", type(closable).__name__, problem)


atexit.register(close_all)
