"""Offsets of a consumer group in ZooKeeper, where Kafka's consumers kept them before 0.9.

/consumers/<group>/offsets/<topic>/<partition>    offset of the next record, in decimal

These znodes have no fencing: the last write wins. They serve groups that migrate
(docs/migrate-offsets.md).
"""

from collections.abc import Iterable, Mapping

from tidemark.model.topics import TopicPartition
from tidemark.runtime.zk_session import NoNodeError, ZkSession


class MalformedOffsetError(ValueError):
    """A znode for an offset holds something else."""


def offset_path(group_id: str, partition: TopicPartition) -> str:
    """Return the path of one offset."""
    assert "/" not in group_id, group_id
    return f"/consumers/{group_id}/offsets/{partition.topic}/{partition.partition}"


def root_connect(connect: str) -> str:
    """Return a connect string whose chroot is ``/`` if it names none, as in Kafka's consumers."""
    return connect if "/" in connect else f"{connect}/"


class ZkOffsets:
    """Offsets of one group. Raises ZkError for calls of ZooKeeper that fail."""

    def __init__(self, connect: str, group_id: str, *, session_timeout_ms: int = 9_000) -> None:
        self._group_id = group_id
        self._session = ZkSession(root_connect(connect), session_timeout_ms=session_timeout_ms)

    async def start(self, timeout_s: float = 15.0) -> None:
        """Connect. Raises ZkUnavailableError with the connect string."""
        await self._session.start(timeout_s)

    async def stop(self) -> None:
        """Disconnect; the znodes remain."""
        await self._session.stop()

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write each offset. Not atomic over partitions; safe to repeat."""
        for partition, offset in offsets.items():
            path = offset_path(self._group_id, partition)
            content = str(offset).encode()
            try:
                await self._session.set(path, content)
            except NoNodeError:
                await self._session.ensure_path(path)
                await self._session.set(path, content)

    async def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets that exist. Raises MalformedOffsetError."""
        wanted = list(partitions)
        paths = [offset_path(self._group_id, each) for each in wanted]
        contents = await self._session.get_many(paths)
        return {
            partition: read_offset(path, content)
            for partition, path, content in zip(wanted, paths, contents, strict=True)
            if content
        }


def read_offset(path: str, content: bytes) -> int:
    """Return the offset in a znode. Raises MalformedOffsetError."""
    text = content.decode("ascii", "replace").strip()
    if not text.isdecimal():
        raise MalformedOffsetError(f"znode {path} holds {text!r}, which is not an offset")
    return int(text)
