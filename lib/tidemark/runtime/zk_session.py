"""ZkSession: a ZooKeeper session for asyncio, over kazoo; no kazoo type leaves this module.

kazoo has threads of its own. This module's code on them only calls ``loop.call_soon_threadsafe``.
"""

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from tidemark.runtime.zk_access import OPEN, ZkAccess
from tidemark.runtime.zk_calls import (
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Op,
    SessionLostError,
    SetData,
    UnknownOutcomeError,
    ZkAccessError,
    ZkError,
    ZkUnavailableError,
    ZnodeStat,
)
from tidemark.runtime.zk_kazoo import kazoo_options
from tidemark.runtime.zk_paths import with_chroot

__all__ = [  # with the operations and errors that callers use
    "BadVersionError",
    "Check",
    "Create",
    "Delete",
    "NoNodeError",
    "NodeExistsError",
    "NotEmptyError",
    "OnChange",
    "Op",
    "SessionLostError",
    "SessionState",
    "SetData",
    "UnknownOutcomeError",
    "ZkAccess",
    "ZkAccessError",
    "ZkError",
    "ZkSession",
    "ZkUnavailableError",
    "ZnodeStat",
]

# kazoo writes a byte to a pipe for each call to wake its thread. A full pipe would block the loop.
_READS_IN_FLIGHT_MAX: Final = 128

OnChange = Callable[[], None]
"""Called on the loop, once, when the result of a read may have changed or the connection broke."""


class SessionState(Enum):
    """State of the session as far as known."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"  # connection broken: the session may or may not still be alive
    LOST = "lost"  # expired: its ephemeral znodes are gone; a new session follows automatically


_ERRORS: Final[tuple[tuple[type[Exception], type[ZkError]], ...]] = (
    (kazoo_errors.NoNodeError, NoNodeError),
    (kazoo_errors.NodeExistsError, NodeExistsError),
    (kazoo_errors.BadVersionError, BadVersionError),
    (kazoo_errors.NotEmptyError, NotEmptyError),
    (kazoo_errors.SessionExpiredError, SessionLostError),
    (kazoo_errors.ConnectionClosedError, SessionLostError),
    (kazoo_errors.ConnectionLoss, UnknownOutcomeError),
    (kazoo_errors.OperationTimeoutError, UnknownOutcomeError),
)


def _translate(error: BaseException, what: str) -> BaseException:
    if isinstance(error, kazoo_errors.NoAuthError):
        return ZkAccessError(
            f"ZooKeeper refuses {what}: the znode's ACL is for another user; check"
            " zookeeper.digest.file, which is the same for all processes of a cluster"
        )
    for theirs, ours in _ERRORS:
        if isinstance(error, theirs):
            return ours(f"{what}: {type(error).__name__}")
    if isinstance(error, kazoo_errors.KazooException):
        return ZkError(f"{what}: {type(error).__name__} {error}")
    return error


def _stat(raw: Any) -> ZnodeStat:
    return ZnodeStat(raw.version, raw.czxid, raw.pzxid, raw.ephemeralOwner, raw.numChildren)


class _Window:
    """Concurrent reads. ``_take`` runs on kazoo's completion thread, one call at a time."""

    def __init__(
        self,
        paths: Sequence[str],
        answer: "asyncio.Future[list[bytes | None]]",
        on_loop: Callable[..., None],
    ) -> None:
        self.answer = answer
        self._paths = paths
        self._contents: list[bytes | None] = [None] * len(paths)
        self._missing = len(paths)
        self._error: BaseException | None = None
        self._on_loop = on_loop

    def taker(self, index: int) -> Callable[[Any], None]:
        """Return kazoo's callback for the read of the path at ``index``."""
        return lambda result: self._take(index, result)

    def _take(self, index: int, result: Any) -> None:
        error = result.exception
        if error is None:
            self._contents[index] = bytes(result.value[0])
        elif not isinstance(error, kazoo_errors.NoNodeError):
            self._error = _translate(error, f"get {self._paths[index]}")
        self._missing -= 1
        if self._missing == 0:
            self._on_loop(self._settle)

    def _settle(self) -> None:
        if self.answer.done():
            return  # the waiting task was cancelled
        if self._error is None:
            self.answer.set_result(self._contents)
        else:
            self.answer.set_exception(self._error)


class ZkSession:
    """One client of an ensemble; it reconnects, with a new session if the old one expired.

    Calls fail with the errors above and are never repeated here: only the caller can decide whether
    repeating is safe. A call made while SUSPENDED waits for the connection.
    """

    access = OPEN
    """TLS and user of the session."""

    def __init__(
        self, connect: str, *, session_timeout_ms: int = 9_000, access: ZkAccess = OPEN
    ) -> None:
        """``connect`` is ``host:port,host:port/chroot``; the default chroot is /tidemark. Raises
        TlsError or ZkAccessError for files of ``access`` that cannot be used.
        """
        self.connect = with_chroot(connect)
        self.access = access
        self.session_timeout_ms = session_timeout_ms
        self._loop: asyncio.AbstractEventLoop | None = None
        self._state = SessionState.LOST
        self._listeners: list[Callable[[SessionState], None]] = []
        self._state_changed = asyncio.Event()
        retry = KazooRetry(max_tries=-1, delay=0.1, backoff=2, max_delay=1.0)
        self._client = KazooClient(
            hosts=self.connect,
            timeout=session_timeout_ms / 1000,
            connection_retry=retry,
            **kazoo_options(access),
        )

    @property
    def state(self) -> SessionState:
        """Latest state that has reached the loop."""
        return self._state

    @property
    def session_id(self) -> int:
        """Id of the current session, as in ``ZnodeStat.owner_session``; 0 before the first."""
        known = self._client.client_id
        return 0 if known is None else int(known[0])

    def add_listener(self, on_state: Callable[[SessionState], None]) -> None:
        """Call ``on_state`` on the loop at every change of state, in order."""
        self._listeners.append(on_state)

    def remove_listener(self, on_state: Callable[[SessionState], None]) -> None:
        """Stop calling ``on_state``."""
        self._listeners.remove(on_state)

    async def start(self, timeout_s: float = 15.0) -> None:
        """Connect, and create the chroot. Raises ZkUnavailableError with the connect string."""
        assert self._loop is None, "a session is started once"
        self._loop = asyncio.get_running_loop()
        self._client.add_listener(self._on_kazoo_state)
        self._client.start_async()
        try:
            async with asyncio.timeout(timeout_s):
                while not await self._has_chroot():
                    pass
        except TimeoutError:
            await self.stop()
            raise ZkUnavailableError(
                f"no ZooKeeper server of {self.connect} answered within {timeout_s:g} s:"
                f" check {self.check}"
            ) from None
        except ZkAccessError:
            await self.stop()
            raise

    async def _has_chroot(self) -> bool:
        """Create the chroot. False if the connection broke, as it does during an election."""
        await self.wait_connected()
        try:
            await self.ensure_path("/")
            await self.get("/")  # creating needs no right to read; all others do
        except (UnknownOutcomeError, SessionLostError):
            return False
        return True

    @property
    def check(self) -> str:
        """Clause that names what to check where no server answers."""
        words = "that ZooKeeper runs there and that this host can reach it"
        if not self.access.has_tls:
            return words
        return (
            f"{words}, that its secureClientPort has this port, that zookeeper.ssl.ca.location has"
            " its authority, and that it accepts the certificate of this process"
        )

    async def stop(self) -> None:
        """End the session; its ephemeral znodes are removed at once."""
        if self._loop is None:
            return
        self._client.remove_listener(self._on_kazoo_state)
        await asyncio.to_thread(self._stop_blocking)
        self._enter(SessionState.LOST)

    def _stop_blocking(self) -> None:
        self._client.stop()
        self._client.close()

    async def wait_connected(self) -> None:
        """Return once the state is CONNECTED."""
        while self._state is not SessionState.CONNECTED:
            self._state_changed.clear()
            await self._state_changed.wait()

    # -- reads; a watch is called once, also when the connection breaks

    async def get(self, path: str, on_change: OnChange | None = None) -> tuple[bytes, ZnodeStat]:
        """Return content and stat. Raises NoNodeError."""
        data, stat = await self._call(
            lambda: self._client.get_async(path, self._watch(on_change)), f"get {path}"
        )
        return bytes(data), _stat(stat)

    async def exists(self, path: str, on_change: OnChange | None = None) -> ZnodeStat | None:
        """Return the stat, or None. The watch covers creation, change and removal."""
        stat = await self._call(
            lambda: self._client.exists_async(path, self._watch(on_change)), f"exists {path}"
        )
        return None if stat is None else _stat(stat)

    async def children(
        self, path: str, on_change: OnChange | None = None
    ) -> tuple[list[str], ZnodeStat]:
        """Return the names of the children, sorted, and the parent's stat. Raises NoNodeError."""
        names, stat = await self._call(
            lambda: self._client.get_children_async(
                path, self._watch(on_change), include_data=True
            ),
            f"children of {path}",
        )
        return sorted(names), _stat(stat)

    async def get_many(self, paths: Sequence[str]) -> list[bytes | None]:
        """Return contents, None for a missing znode. Pipelined: thousands of reads a second.

        The reads are counted on kazoo's thread, which calls the loop once for each window of them.
        """
        contents: list[bytes | None] = []
        for start in range(0, len(paths), _READS_IN_FLIGHT_MAX):
            contents += await self._get_window(paths[start : start + _READS_IN_FLIGHT_MAX])
        return contents

    async def _get_window(self, paths: Sequence[str]) -> list[bytes | None]:
        assert self._loop is not None, "start the session first"
        window = _Window(paths, self._loop.create_future(), self._on_loop)
        for index, path in enumerate(paths):
            self._client.get_async(path).rawlink(window.taker(index))
        return await window.answer

    async def sync(self, path: str) -> None:
        """Wait for earlier writes of all clients: later reads of this session see them."""
        await self._call(lambda: self._client.sync_async(path), f"sync {path}")

    # -- writes

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        """Create a znode. Raises NodeExistsError, NoNodeError (no parent)."""
        await self._call(
            lambda: self._client.create_async(path, data, ephemeral=ephemeral), f"create {path}"
        )

    async def set(self, path: str, data: bytes, *, version: int = -1) -> ZnodeStat:
        """Replace the content. Raises NoNodeError, BadVersionError."""
        return _stat(
            await self._call(lambda: self._client.set_async(path, data, version), f"set {path}")
        )

    async def delete(self, path: str, *, version: int = -1) -> None:
        """Remove a znode. Raises NoNodeError, BadVersionError, NotEmptyError."""
        await self._call(lambda: self._client.delete_async(path, version), f"delete {path}")

    async def ensure_path(self, path: str) -> None:
        """Create a znode and its parents if they are missing."""
        await self._call(lambda: self._client.ensure_path_async(path), f"ensure {path}")

    async def multi(self, ops: Sequence[Op]) -> list[ZnodeStat | None]:
        """Perform all operations or none; return the new stat for each SetData, None for others.

        Raises the error of the first failing operation; its message names the operation.
        """
        results = await self._call(lambda: self._transaction(ops).commit_async(), "multi")
        for op, result in zip(ops, results, strict=False):
            if isinstance(result, kazoo_errors.RolledBackError):
                continue
            if isinstance(result, Exception):
                raise _translate(result, f"{type(op).__name__} {op.path}, in a multi")
        assert len(results) == len(ops), f"{len(results)} results for {len(ops)} operations"
        return [_stat(result) if hasattr(result, "czxid") else None for result in results]

    def _transaction(self, ops: Sequence[Op]) -> Any:
        transaction = self._client.transaction()
        for op in ops:
            match op:
                case Create(path, data, ephemeral):
                    transaction.create(path, data, ephemeral=ephemeral)
                case SetData(path, data, version):
                    transaction.set_data(path, data, version)
                case Delete(path, version):
                    transaction.delete(path, version)
                case Check(path, version):
                    transaction.check(path, version)
        return transaction

    # -- from kazoo's threads to the loop

    async def _call(self, begin: Callable[[], Any], what: str) -> Any:
        assert self._loop is not None, "start the session first"
        loop = self._loop
        answer: asyncio.Future[Any] = loop.create_future()

        def settle(value: Any, error: BaseException | None) -> None:
            if answer.done():
                return  # the waiting task was cancelled
            if error is None:
                answer.set_result(value)
            else:
                answer.set_exception(error)

        def done(result: Any) -> None:
            error = result.exception
            self._on_loop(settle, result.value, None if error is None else _translate(error, what))

        begin().rawlink(done)
        return await answer

    def _watch(self, on_change: OnChange | None) -> Callable[[object], None] | None:
        return None if on_change is None else lambda _event: self._on_loop(on_change)

    def _on_kazoo_state(self, state: str) -> None:
        known = {
            KazooState.CONNECTED: SessionState.CONNECTED,
            KazooState.SUSPENDED: SessionState.SUSPENDED,
        }
        self._on_loop(self._enter, known.get(state, SessionState.LOST))

    def _on_loop(self, call: Callable[..., None], *args: object) -> None:
        """Schedule ``call`` on the loop, unless the loop is closed."""
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *args)

    def _enter(self, state: SessionState) -> None:
        if state is self._state:
            return
        self._state = state
        self._state_changed.set()
        for listener in tuple(self._listeners):
            listener(state)
