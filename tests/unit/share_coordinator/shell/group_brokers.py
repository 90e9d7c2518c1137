"""A broker as a share-coordinator needs it: one partition of the state topic in memory, ids of
groups, and windows that it is asked to drop.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from tidemark.model.errors import ErrorCode
from tidemark_wire.v1 import partition_store_pb2_grpc, share_pb2_grpc
from tidemark_wire.v1 import share_pb2 as pb
from unit.tidemark.runtime import memory_brokers


class GroupBroker(share_pb2_grpc.ShareGroupsServicer):
    """Reserves every id; ``codes`` are the answers of the next reservations and releases."""

    def __init__(self) -> None:
        self.store = memory_brokers.MemoryBroker(1, memory_brokers.MemoryPartition())
        self.endpoint = ""
        self.codes: list[ErrorCode] = []
        self.reserved: list[tuple[str, int]] = []
        """Group ids and owner epochs."""
        self.released: list[tuple[str, int]] = []
        self.dropped: list[pb.DropWindowsRequest] = []
        self.loaded: list[pb.LoadWindowsRequest] = []
        self.ended: list[pb.ShareTransactionEndedRequest] = []
        self.fails_notices = 0
        """Number of the next notices of ended transactions that get no answer."""
        self.releases_ids = True
        """False: releases are refused, as by a group coordinator that loads."""

    def _code(self) -> ErrorCode:
        return self.codes.pop(0) if self.codes else ErrorCode.NONE

    async def ReserveGroupId(self, request: Any, context: Any) -> Any:  # noqa: N802
        code = self._code()
        if code is ErrorCode.NONE:
            self.reserved.append((request.group_id, request.owner_epoch))
        return pb.ReserveGroupIdResponse(error_code=code, error_message=code.name)

    async def ReleaseGroupId(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.released.append((request.group_id, request.owner_epoch))
        refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return pb.ReleaseGroupIdResponse(error_code=self._code() if self.releases_ids else refused)

    async def DropWindows(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.dropped.append(request)
        return pb.DropWindowsResponse()

    async def LoadWindows(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.loaded.append(request)
        return pb.LoadWindowsResponse()

    async def TransactionEnded(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self.fails_notices:
            self.fails_notices -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        self.ended.append(request)
        return pb.ShareTransactionEndedResponse()


@asynccontextmanager
async def group_broker(
    broker: GroupBroker | None = None, *, serves_groups: bool = True
) -> AsyncIterator[GroupBroker]:
    """One of them, on loopback. ``serves_groups`` False: of a release without share groups."""
    broker, server = broker or GroupBroker(), grpc.aio.server()
    partition_store_pb2_grpc.add_PartitionStoreServicer_to_server(broker.store, server)
    if serves_groups:
        share_pb2_grpc.add_ShareGroupsServicer_to_server(broker, server)
    broker.endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    broker.store.endpoint = broker.endpoint
    await server.start()
    try:
        yield broker
    finally:
        await server.stop(None)
