"""Share sessions: partitions that a member reads from this broker, kept between its requests.

The epoch of a ShareFetch request is one of:

    epoch  0 (initial)  opens a session with all partitions that it names; replaces the member's
    epoch >= 1          changes to the member's session, which must be at exactly that epoch
    epoch -1 (final)    closes it: the shell gives back what the member holds

A session belongs to one connection and ends with it. Sessions are not evicted: locks must not end
because another member arrives.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Final, NamedTuple

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import TopicId

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EPOCH_MAX: Final = 2**31 - 1

SESSION_PARTITIONS_MAX: Final = 10_000
"""Partitions of one session: each request looks at all of them."""

PartitionKey = tuple[TopicId, int]


class SessionKey(NamedTuple):
    """A member of a share group."""

    group_id: str
    member_id: str


class SessionRequest(NamedTuple):
    """Part of a ShareFetch request that concerns its session."""

    key: SessionKey
    epoch: int
    connection: Hashable
    added: Sequence[PartitionKey] = ()
    forgotten: Sequence[PartitionKey] = ()
    has_acknowledgements: bool = False


class SessionRefusal(NamedTuple):
    """Error of a whole request; nothing has changed."""

    error_code: ErrorCode
    message: str


class ShareSession:
    """One member's partitions, in the order in which they are served."""

    __slots__ = ("connection", "epoch", "is_closing", "key", "partitions")

    def __init__(self, key: SessionKey, connection: Hashable) -> None:
        self.key = key
        self.connection = connection
        self.epoch = INITIAL_EPOCH + 1
        self.is_closing = False
        """The request at hand is its last."""
        self.partitions: dict[PartitionKey, None] = {}

    def served(self, keys: Iterable[PartitionKey]) -> None:
        """Move partitions that gave records behind those that the next request serves first."""
        for key in keys:
            if key in self.partitions:
                del self.partitions[key]
                self.partitions[key] = None

    def next_epoch(self) -> None:
        """Expect the next request."""
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1


class ShareSessions:
    """All sessions of a broker. Invariant: a session is found by its key and by its connection;
    sessions and partitions are within their bounds.
    """

    def __init__(self, *, sessions_max: int = 2_000, partitions_max: int = 200_000) -> None:
        self.sessions_max = sessions_max
        self.partitions_max = partitions_max
        self.partition_count = 0
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[Hashable, dict[SessionKey, None]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def fetch(self, request: SessionRequest) -> ShareSession | SessionRefusal:
        """The session of a ShareFetch request, with its changes applied."""
        if request.epoch == INITIAL_EPOCH:
            return self._open(request)
        session = self._find(request.key, request.epoch, request.connection)
        if isinstance(session, SessionRefusal):
            return session
        if request.epoch == FINAL_EPOCH:
            if request.added:
                return _invalid("a request that closes a share session must not add partitions")
            session.is_closing = True
            return session
        new = {key for key in request.added if key not in session.partitions}
        if new or request.forgotten:
            if self.partition_count + len(new) > self.partitions_max:
                return self._too_many_partitions()
            if len(session.partitions) + len(new) > SESSION_PARTITIONS_MAX:
                return _too_large()
            self._change(session, request)
        session.next_epoch()
        return session

    def acknowledge(
        self, key: SessionKey, epoch: int, connection: Hashable
    ) -> ShareSession | SessionRefusal:
        """The session of a ShareAcknowledge request, which never opens one."""
        if epoch == INITIAL_EPOCH:
            return SessionRefusal(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                "ShareAcknowledge cannot open a share session",
            )
        session = self._find(key, epoch, connection)
        if isinstance(session, ShareSession):
            if epoch == FINAL_EPOCH:
                session.is_closing = True
            else:
                session.next_epoch()
        return session

    def is_open(self, session: ShareSession) -> bool:
        """Return False once the session was closed, or replaced by another one of its member."""
        return self._sessions.get(session.key) is session

    def partitions_in_use(self) -> set[tuple[str, PartitionKey]]:
        """Return (group id, partition) of everything that a session reads."""
        return {
            (session.key.group_id, key)
            for session in self._sessions.values()
            for key in session.partitions
        }

    def close(self, session: ShareSession) -> None:
        """End a session."""
        if not self.is_open(session):
            return
        del self._sessions[session.key]
        self.partition_count -= len(session.partitions)
        keys = self._by_connection[session.connection]
        del keys[session.key]
        if not keys:
            del self._by_connection[session.connection]

    def connection_lost(self, connection: Hashable) -> list[ShareSession]:
        """Close and return the sessions of a connection: their members' records are given back."""
        lost = [self._sessions[key] for key in self._by_connection.get(connection, ())]
        for session in lost:
            self.close(session)
        return lost

    def _open(self, request: SessionRequest) -> ShareSession | SessionRefusal:
        if request.has_acknowledgements:
            return _invalid("a request that opens a share session must not acknowledge records")
        before = self._sessions.get(request.key)
        if before is None and len(self) >= self.sessions_max:
            return SessionRefusal(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"this broker has {self.sessions_max} share sessions"
                " (group.share.max.share.sessions); try again later",
            )
        freed = 0 if before is None else len(before.partitions)
        if len(set(request.added)) > SESSION_PARTITIONS_MAX:
            return _too_large()
        if self.partition_count - freed + len(set(request.added)) > self.partitions_max:
            return self._too_many_partitions()
        if before is not None:
            self.close(before)
        session = ShareSession(request.key, request.connection)
        self._sessions[request.key] = session
        self._by_connection.setdefault(request.connection, {})[request.key] = None
        self._change(session, request)
        return session

    def _too_many_partitions(self) -> SessionRefusal:
        return SessionRefusal(
            ErrorCode.SHARE_SESSION_LIMIT_REACHED,
            f"share sessions of this broker have {self.partitions_max} partitions; try again later",
        )

    def _find(
        self, key: SessionKey, epoch: int, connection: Hashable
    ) -> ShareSession | SessionRefusal:
        session = self._sessions.get(key)
        if session is None or session.connection != connection:
            return SessionRefusal(
                ErrorCode.SHARE_SESSION_NOT_FOUND,
                f"member {key.member_id} of group {key.group_id} has no share session on this"
                " connection; open one with epoch 0",
            )
        if epoch not in (FINAL_EPOCH, session.epoch):
            return SessionRefusal(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                f"share session of member {key.member_id} is at epoch {session.epoch}, the request"
                f" has {epoch}",
            )
        return session

    def _change(self, session: ShareSession, request: SessionRequest) -> None:
        before = len(session.partitions)
        for key in request.added:
            session.partitions.setdefault(key, None)
        # Afterwards: acknowledgements of a partition that is forgotten name it as well.
        for key in request.forgotten:
            session.partitions.pop(key, None)
        self.partition_count += len(session.partitions) - before

    def check(self) -> None:
        """Assert every invariant."""
        assert len(self) <= self.sessions_max
        counted = sum(len(session.partitions) for session in self._sessions.values())
        assert counted == self.partition_count, (counted, self.partition_count)
        assert self.partition_count <= self.partitions_max
        by_connection = {
            key: connection for connection, keys in self._by_connection.items() for key in keys
        }
        by_key = {key: session.connection for key, session in self._sessions.items()}
        assert by_connection == by_key, "found both ways"
        assert all(self._by_connection.values()), "no connection without a session"


def _invalid(message: str) -> SessionRefusal:
    return SessionRefusal(ErrorCode.INVALID_REQUEST, message)


def _too_large() -> SessionRefusal:
    return SessionRefusal(
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
        f"a share session has at most {SESSION_PARTITIONS_MAX} partitions of this broker",
    )
