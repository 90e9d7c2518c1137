"""Data of a ZooKeeper server, and the effects of a write: versions, transactions, the events.

No clock and no sessions here; ``sim.zookeeper`` adds those.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from tidemark.runtime.zk_session import (
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Op,
    SetData,
    ZkError,
)

ANY_VERSION: Final = -1
ROOT: Final = "/"

CREATED: Final = "CREATED"
CHANGED: Final = "CHANGED"
DELETED: Final = "DELETED"
CHILD: Final = "CHILD"


@dataclass(frozen=True, slots=True)
class Znode:
    """One znode at one moment, with its stat. Replaced at each change, never changed."""

    data: bytes = b""
    version: int = 0
    child_version: int = 0  # number of created and removed children
    created_zxid: int = 0
    modified_zxid: int = 0
    children_zxid: int = 0
    owner_session: int = 0
    child_count: int = 0


class Event(NamedTuple):
    """Event of a watch: CREATED, CHANGED, DELETED of a znode, CHILD of its parent."""

    kind: str
    path: str


@dataclass(frozen=True, slots=True)
class Transaction:
    """A committed write: each znode that it touched, with its new state (None: removed)."""

    zxid: int
    znodes: tuple[tuple[str, Znode | None], ...]
    events: tuple[Event, ...]
    session_id: int = 0
    """Session that wrote it."""


def parent_of(path: str) -> str:
    """Return the path of the parent; '/' is its own."""
    return path.rpartition("/")[0] or ROOT


@dataclass(slots=True)
class Tree:
    """Znodes of one server, as of ``zxid``."""

    zxid: int = 0
    znodes: dict[str, Znode] = field(default_factory=lambda: {ROOT: Znode()})
    _children: dict[str, dict[str, None]] = field(default_factory=dict)

    def children(self, path: str) -> list[str]:
        """Return the sorted names. Raises NoNodeError."""
        require_znode(self.znodes.get(path), path)
        return sorted(self._children.get(path, ()))

    def ephemerals_of(self, session_id: int) -> list[str]:
        """Return the sorted paths."""
        return sorted(
            path for path, znode in self.znodes.items() if znode.owner_session == session_id
        )

    def apply(self, transaction: Transaction) -> None:
        """Apply the next transaction of the log."""
        assert transaction.zxid > self.zxid, f"{transaction.zxid} after {self.zxid}"
        self.zxid = transaction.zxid
        for path, znode in transaction.znodes:
            siblings = self._children.setdefault(parent_of(path), {})
            name = path.rpartition("/")[2]
            if znode is None:
                self.znodes.pop(path, None)
                siblings.pop(name, None)
            else:
                self.znodes[path] = znode
                if name:
                    siblings[name] = None


def require_znode(znode: Znode | None, path: str) -> Znode:
    """Return the znode. Raises NoNodeError if it is None."""
    if znode is None:
        raise NoNodeError(path)
    return znode


class Draft:
    """A write tried on a tree: its reads include its own changes so far."""

    def __init__(self, tree: Tree, zxid: int, session_id: int) -> None:
        self._tree = tree
        self._zxid = zxid
        self._session_id = session_id
        self._changed: dict[str, Znode | None] = {}
        self._events: list[Event] = []

    def run(self, ops: Iterable[Op]) -> list[Znode | None]:
        """Run all operations. Raises the error of the first that fails; SetData gives its znode."""
        return [self._run(op) for op in ops]

    def transaction(self) -> Transaction:
        """Return the changes as a transaction."""
        return Transaction(
            self._zxid, tuple(self._changed.items()), tuple(self._events), self._session_id
        )

    def _at(self, path: str) -> Znode | None:
        return self._changed[path] if path in self._changed else self._tree.znodes.get(path)

    def _run(self, op: Op) -> Znode | None:
        match op:
            case Create(path, data, ephemeral):
                self._create(path, data, self._session_id if ephemeral else 0)
            case SetData(path, data, version):
                return self._set(path, data, version)
            case Delete(path, version):
                self._delete(path, version)
            case Check(path, version):
                self._checked(path, version)
        return None

    def _checked(self, path: str, version: int) -> Znode:
        znode = require_znode(self._at(path), path)
        if version not in (ANY_VERSION, znode.version):
            raise BadVersionError(f"{path}: {version}, is {znode.version}")
        return znode

    def _create(self, path: str, data: bytes, owner: int) -> None:
        parent = require_znode(self._at(parent_of(path)), path)
        if self._at(path) is not None:
            raise NodeExistsError(path)
        if parent.owner_session:
            raise ZkError(f"{path}: ephemeral znodes have no children")
        zxid = self._zxid
        self._changed[path] = Znode(data, 0, 0, zxid, zxid, zxid, owner)
        self._count_child(path, parent, +1)
        self._events.append(Event(CREATED, path))
        self._events.append(Event(CHILD, parent_of(path)))

    def _set(self, path: str, data: bytes, version: int) -> Znode:
        znode = self._checked(path, version)
        changed = replace(znode, data=data, version=znode.version + 1, modified_zxid=self._zxid)
        self._changed[path] = changed
        self._events.append(Event(CHANGED, path))
        return changed

    def _delete(self, path: str, version: int) -> None:
        if path == ROOT:
            raise ZkError("the root stays")
        znode = self._checked(path, version)
        if znode.child_count:
            raise NotEmptyError(path)
        self._changed[path] = None
        self._count_child(path, require_znode(self._at(parent_of(path)), path), -1)
        self._events.append(Event(DELETED, path))
        self._events.append(Event(CHILD, parent_of(path)))

    def _count_child(self, path: str, parent: Znode, change: int) -> None:
        self._changed[parent_of(path)] = replace(
            parent,
            child_version=parent.child_version + 1,
            child_count=parent.child_count + change,
            children_zxid=self._zxid,
        )
