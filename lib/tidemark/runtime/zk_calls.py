"""Operations and errors of ZooKeeper, free of any client library."""

from typing import NamedTuple

from tidemark.runtime.exit_codes import ExitCode


class ZkError(Exception):
    """A ZooKeeper call failed."""


class NoNodeError(ZkError):
    """The znode does not exist."""


class NodeExistsError(ZkError):
    """The znode exists already."""


class BadVersionError(ZkError):
    """The znode's version is not the expected one."""


class NotEmptyError(ZkError):
    """The znode has children and cannot be removed."""


class UnknownOutcomeError(ZkError):
    """The connection broke: the call may or may not have taken effect. Read again."""


class SessionLostError(ZkError):
    """The session ended before the response: the call may or may not have taken effect."""


class ZkUnavailableError(ZkError):
    """No ZooKeeper server could be reached in time."""

    exit_code = ExitCode.UNAVAILABLE


class ZkAccessError(ZkError):
    """ZooKeeper refuses this process, or its files for ZooKeeper cannot be used."""

    exit_code = ExitCode.CONFIG


class ZnodeStat(NamedTuple):
    """Metadata of a znode. A ``*_zxid`` is a transaction id; they only increase."""

    version: int
    created_zxid: int
    children_zxid: int
    owner_session: int  # 0 unless ephemeral
    child_count: int


class Create(NamedTuple):
    """Operation of a multi: create a znode."""

    path: str
    data: bytes
    ephemeral: bool = False


class SetData(NamedTuple):
    """Operation of a multi: replace a znode's content; version -1 means any."""

    path: str
    data: bytes
    version: int = -1


class Delete(NamedTuple):
    """Operation of a multi: remove a znode; version -1 means any."""

    path: str
    version: int = -1


class Check(NamedTuple):
    """Operation of a multi: fail the multi unless the znode has this version."""

    path: str
    version: int


Op = Create | SetData | Delete | Check
