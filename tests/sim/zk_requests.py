"""Requests to a simulated ZooKeeper, and their responses and events."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from tidemark.runtime.zk_session import Check, Create, Delete, Op, SetData, ZkError

from sim.znode_tree import Event

OnDone = Callable[["Answer"], None]
OnWatch = Callable[[Event | None], None]
"""Callback of one event; None if the connection broke."""


class Get(NamedTuple):
    """Request for (data, ZnodeStat). The watch fires on change and removal."""

    path: str
    watch: OnWatch | None = None


class Exists(NamedTuple):
    """Request for the ZnodeStat or None. The watch also fires on creation."""

    path: str
    watch: OnWatch | None = None


class Children(NamedTuple):
    """Request for (sorted names, ZnodeStat of the parent)."""

    path: str
    watch: OnWatch | None = None


class Sync(NamedTuple):
    """Request that lets later requests see all earlier commits."""

    path: str = "/"


class Multi(NamedTuple):
    """All operations or none; the response has the stats of SetData, None elsewhere."""

    ops: tuple[Op, ...]


class Ping(NamedTuple):
    """Keepalive of a session."""


class Close(NamedTuple):
    """End of a session."""


Request = Get | Exists | Children | Sync | Multi | Create | SetData | Delete | Check | Ping | Close


class Answer(NamedTuple):
    """Response to a request: ``error``, or the value that the request's class states."""

    value: object = None
    error: ZkError | None = None


class Link(Protocol):
    """Network between a client's host and a server."""

    def __call__(self, source: str, target: str) -> int | None:
        """Return the milliseconds under way; None if a message sent now does not arrive."""
