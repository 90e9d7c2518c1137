"""Record in ZooKeeper of the end of a process, made by its parent, which has waited for the end.

A leader that is cut off may go on for its lease, so the controller waits for it. A process that has
ended acknowledges nothing more. Its parent removes the znode that it left behind, whose session
would otherwise keep it until the session expires.
"""

import json
from typing import Final, NamedTuple, Self

from tidemark.runtime.zk_access import OPEN, ZkAccess
from tidemark.runtime.zk_calls import (
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Op,
)

MOOT: Final = (NoNodeError, BadVersionError, NodeExistsError)
"""Errors of the transaction if the znode is gone, or another process has one of the same path."""


class ProcessZnodes(NamedTuple):
    """Znodes that a process leaves behind, as it wrote them down while it ran."""

    zookeeper: str
    """Connect string with the chroot."""
    znode: str
    """Ephemeral znode of the process."""
    ended_znode: str = ""
    """Znode that records the end; empty if nobody waits for a lease of the process."""
    ended_content: str = ""
    guard: str = ""
    """Znode whose version grows before another process may make ``znode``; empty if none may."""
    guard_version: int = 0
    access: ZkAccess = OPEN
    """TLS and user for ZooKeeper."""

    def encode(self) -> bytes:
        """Return the bytes that ``decode`` reads."""
        return json.dumps(self._asdict()).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what ``encode`` wrote. Raises ValueError."""
        try:
            given = json.loads(data)
            return cls(**{**given, "access": ZkAccess(*given.get("access", OPEN))})
        except (TypeError, AttributeError) as error:
            raise ValueError(f"not the znodes of a process: {error}") from None


def recording(left: ProcessZnodes) -> list[Op]:
    """Return the transaction that removes the znode of a process and records its end.

    Perform it only once the process has ended, all its threads included; to repeat it does no harm.
    It fails with one of ``MOOT`` if the session of the process has ended first.
    """
    check = [Check(left.guard, left.guard_version)] if left.guard else []
    record = [Create(left.ended_znode, left.ended_content.encode())] if left.ended_znode else []
    return [*check, *record, Delete(left.znode)]
