"""Record in ZooKeeper of the end of a process, made by its parent, which has waited for the end.

A leader that is cut off may go on for its lease, so the controller waits for it. A process that has
ended acknowledges nothing more. Its parent removes the znodes that it left behind, whose session
would otherwise keep them until the session expires.
"""

import json
from dataclasses import asdict, dataclass
from typing import Self

from tidemark.runtime import zk_paths
from tidemark.runtime.zk_session import (
    BadVersionError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    ZkSession,
)


@dataclass(frozen=True, slots=True)
class ProcessZnodes:
    """Znodes that a process leaves behind, as it wrote them down while it ran."""

    zookeeper: str
    """Connect string with the chroot."""
    znode: str
    """Ephemeral znode of the process."""
    owner_session: int = 0
    """Session that must own the znode, if another process may make one of the same path; else 0."""
    ended_znode: str = ""
    """Znode that records the end; empty if nobody waits for a lease of the process."""

    def encode(self) -> bytes:
        """Return the bytes that ``decode`` reads."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what ``encode`` wrote. Raises ValueError."""
        try:
            return cls(**json.loads(data))
        except TypeError as error:
            raise ValueError(f"not the znodes of a process: {error}") from None


async def record_end(session: ZkSession, left: ProcessZnodes) -> bool:
    """Remove the znode of a process that has ended, and record its end with the removal.

    Return False if the znode is gone already: its session has ended. Call this only once the
    process has ended, all its threads included. Raises ZkError; to repeat it does no harm.
    """
    version = -1
    try:
        if left.owner_session:
            _, stat = await session.get(left.znode)
            if stat.owner_session != left.owner_session:
                return False
            version = stat.version
        removal = Delete(left.znode, version)
        record = [Create(left.ended_znode, zk_paths.encode({}))] if left.ended_znode else []
        await session.multi([*record, removal])
    except (NoNodeError, BadVersionError, NodeExistsError):
        return False
    return True
