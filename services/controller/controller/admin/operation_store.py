"""OperationStore: long operations in ZooKeeper, so that they survive a change of controller.

/operations/<id>         state and progress, written again as it changes
/operations/<id>/moves   the moves, compressed, written once
"""

import json
import logging
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from tidemark.model.topics import TopicPartition
from tidemark.plans.reassignment import Move
from tidemark.runtime import zk_paths
from tidemark.runtime.telemetry import fields
from tidemark.runtime.zk_session import (
    BadVersionError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    OnChange,
    ZkError,
    ZkSession,
)

from controller.admin.errors import INTERNAL, AdminError, conflict, not_found, try_again
from controller.admin.operation_steps import Operation

log = logging.getLogger(__name__)

Content = TypeVar("Content")

KEPT_MAX: Final = 200
"""Operations that are kept; the oldest finished ones are deleted beyond it."""
OPEN_MAX: Final = 20
"""Unfinished operations at a time."""


class OperationStore:
    """Operations of the cluster. Every method raises AdminError if ZooKeeper cannot be reached, or
    a znode cannot be read.
    """

    def __init__(self, session: ZkSession) -> None:
        self._session = session
        self._unreadable: set[str] = set()

    async def create(self, operation: Operation, moves: Sequence[Move]) -> bool:
        """Write a new operation; return False if there is one of its id already."""
        path = zk_paths.operation(operation.operation_id)
        try:
            await self._session.ensure_path(zk_paths.OPERATIONS)
            await self._session.multi(
                [Create(path, _encode(operation)), Create(f"{path}/moves", _pack(moves))]
            )
        except NodeExistsError:
            return False
        except ZkError as problem:
            raise _unreachable(problem) from None
        return True

    async def get(self, operation_id: str) -> tuple[Operation, int]:
        """Return an operation and the version of its znode. Raises AdminError."""
        path = zk_paths.operation(operation_id)
        try:
            data, stat = await self._session.get(path)
        except NoNodeError:
            raise unknown_operation(operation_id) from None
        except ZkError as problem:
            raise _unreachable(problem) from None
        return self._read(path, data, _decode), stat.version

    async def all(self, on_change: OnChange | None = None) -> list[Operation]:
        """Return all operations that can be read, the latest first. ``on_change`` is called when
        one is created or deleted.
        """
        try:
            await self._session.ensure_path(zk_paths.OPERATIONS)
            names, _ = await self._session.children(zk_paths.OPERATIONS, on_change)
            paths = [zk_paths.operation(name) for name in names]
            contents = await self._session.get_many(paths)
        except ZkError as problem:
            raise _unreachable(problem) from None
        found = []
        for path, data in zip(paths, contents, strict=True):
            if data is not None:
                with suppress(AdminError):  # others go on; it is logged
                    found.append(self._read(path, data, _decode))
        return sorted(found, key=lambda one: (-one.created_ms, one.operation_id))

    async def moves(self, operation_id: str) -> list[Move]:
        """Return the moves of an operation. Raises AdminError."""
        path = f"{zk_paths.operation(operation_id)}/moves"
        try:
            data, _ = await self._session.get(path)
        except NoNodeError:
            raise unknown_operation(operation_id) from None
        except ZkError as problem:
            raise _unreachable(problem) from None
        return self._read(path, data, _unpack)

    def _read(self, path: str, data: bytes, decode: Callable[[str, bytes], Content]) -> Content:
        """Return the content of a znode. Raises AdminError, and logs it once, for one that this
        release did not write.
        """
        try:
            return decode(path, data)
        except (KeyError, TypeError, ValueError, zlib.error) as problem:
            message = f"znode {path} cannot be read; {zk_paths.HOW_TO_MEND}"
            if path not in self._unreadable:
                self._unreadable.add(path)
                log.error("%s", message, extra=fields(reason=str(problem)))
            raise AdminError(500, INTERNAL, message) from problem

    async def update(self, operation: Operation, version: int) -> None:
        """Write an operation that was read at ``version``. Raises AdminError if it has changed."""
        try:
            await self._session.set(
                zk_paths.operation(operation.operation_id), _encode(operation), version=version
            )
        except BadVersionError:
            raise conflict("the operation has changed at the same time: read it again") from None
        except NoNodeError:
            raise unknown_operation(operation.operation_id) from None
        except ZkError as problem:
            raise _unreachable(problem) from None

    async def prune(self, operations: Sequence[Operation]) -> None:
        """Delete the oldest finished operations beyond KEPT_MAX."""
        for one in [each for each in operations if each.is_finished][KEPT_MAX:]:
            path = zk_paths.operation(one.operation_id)
            try:
                await self._session.multi([Delete(f"{path}/moves"), Delete(path)])
            except NoNodeError:
                continue
            except ZkError as problem:
                raise _unreachable(problem) from None


def unknown_operation(operation_id: str) -> AdminError:
    """Return the error for an operation that does not exist."""
    return not_found(
        f"there is no operation {operation_id!r}",
        field="operation_id",
        remedy="GET /v3/operations lists the operations; old ones are deleted",
    )


def _unreachable(problem: ZkError) -> AdminError:
    return try_again(f"ZooKeeper did not answer: {problem}")


def _encode(operation: Operation) -> bytes:
    return zk_paths.encode(operation.model_dump(mode="json"))


def _decode(path: str, data: bytes) -> Operation:
    content: dict[str, Any] = zk_paths.decode(path, data)
    del content["format"]
    return Operation.model_validate(content)


def _pack(moves: Sequence[Move]) -> bytes:
    rows = [[*move.partition, move.before, move.after] for move in moves]
    return zlib.compress(json.dumps({"format": zk_paths.FORMAT, "moves": rows}).encode())


def _unpack(path: str, data: bytes) -> list[Move]:
    content = zk_paths.decode(path, zlib.decompress(data))
    return [
        Move(TopicPartition(topic, number), tuple(before), tuple(after))
        for topic, number, before, after in content["moves"]
    ]
