"""What a client asks a simulated ZooKeeper for, and what it hears."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from tidemark.runtime.zk_session import Check, Create, Delete, Op, SetData, ZkError

from sim.znode_tree import Event

OnDone = Callable[["Answer"], None]
OnWatch = Callable[[Event | None], None]
"""Called once: with what happened, or None when the connection broke."""


class Get(NamedTuple):
    """Answers (data, ZnodeStat). The watch hears of change and removal."""

    path: str
    watch: OnWatch | None = None


class Exists(NamedTuple):
    """Answers ZnodeStat or None. The watch hears of making, too."""

    path: str
    watch: OnWatch | None = None


class Children(NamedTuple):
    """Answers (sorted names, ZnodeStat of the parent)."""

    path: str
    watch: OnWatch | None = None


class Sync(NamedTuple):
    """What follows sees all that was committed before."""

    path: str = "/"


class Multi(NamedTuple):
    """All or nothing; answers the stats of the SetData places, None elsewhere."""

    ops: tuple[Op, ...]


class Ping(NamedTuple):
    """Keeps a session alive."""


class Close(NamedTuple):
    """Ends a session."""


Request = Get | Exists | Children | Sync | Multi | Create | SetData | Delete | Check | Ping | Close


class Answer(NamedTuple):
    """Of a request: ``error`` or what the request's class says."""

    value: object = None
    error: ZkError | None = None


class Link(Protocol):
    """The network between a client's host and a server."""

    def __call__(self, source: str, target: str) -> int | None:
        """Milliseconds on the way; None: what is sent now does not arrive."""
