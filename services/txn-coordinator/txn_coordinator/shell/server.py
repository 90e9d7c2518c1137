"""The coordinator's gRPC service: each method hands over to its own file under rpc/."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tidemark.runtime.server import GrpcServer, make_grpc_server
from tidemark_wire.v1 import txn_pb2 as pb
from tidemark_wire.v1 import txn_pb2_grpc

from txn_coordinator.shell.node import TxnCoordinatorNode
from txn_coordinator.shell.rpc import (
    add_offsets,
    add_partitions,
    begin_transaction,
    describe_transactions,
    end_transaction,
    enlist_in_batch,
    enlist_writer,
    finish_batch,
    finish_transaction,
    forget_sink,
    init_transactional_id,
    keep_batch_alive,
    list_transactions,
)
from txn_coordinator.shell.rpc.call import Context

ResponseT = TypeVar("ResponseT")

add_service: Callable[[object, object], None] = (
    txn_pb2_grpc.add_TransactionCoordinatorServicer_to_server
)
SERVICE_NAME: Final = pb.DESCRIPTOR.services_by_name["TransactionCoordinator"].full_name


class TransactionCoordinatorService(txn_pb2_grpc.TransactionCoordinatorServicer):
    """The RPCs by their names on the wire."""

    def __init__(self, node: TxnCoordinatorNode) -> None:
        self._node = node

    async def InitTransactionalId(  # noqa: N802
        self, request: pb.InitTransactionalIdRequest, context: Context
    ) -> pb.InitTransactionalIdResponse:
        """See rpc/init_transactional_id.py."""
        work = init_transactional_id.handle(self._node, request, context)
        return await self._counted("InitTransactionalId", work)

    async def AddPartitions(  # noqa: N802
        self, request: pb.AddPartitionsRequest, context: Context
    ) -> pb.AddPartitionsResponse:
        """See rpc/add_partitions.py."""
        work = add_partitions.handle(self._node, request, context)
        return await self._counted("AddPartitions", work)

    async def AddOffsets(  # noqa: N802
        self, request: pb.AddOffsetsRequest, context: Context
    ) -> pb.AddOffsetsResponse:
        """See rpc/add_offsets.py."""
        work = add_offsets.handle(self._node, request, context)
        return await self._counted("AddOffsets", work)

    async def EndTransaction(  # noqa: N802
        self, request: pb.EndTransactionRequest, context: Context
    ) -> pb.EndTransactionResponse:
        """See rpc/end_transaction.py."""
        work = end_transaction.handle(self._node, request, context)
        return await self._counted("EndTransaction", work)

    async def DescribeTransactions(  # noqa: N802
        self, request: pb.DescribeTransactionsRequest, context: Context
    ) -> pb.DescribeTransactionsResponse:
        """See rpc/describe_transactions.py."""
        work = describe_transactions.handle(self._node, request, context)
        return await self._counted("DescribeTransactions", work)

    async def ListTransactions(  # noqa: N802
        self, request: pb.ListTransactionsRequest, context: Context
    ) -> pb.ListTransactionsResponse:
        """See rpc/list_transactions.py."""
        work = list_transactions.handle(self._node, request, context)
        return await self._counted("ListTransactions", work)

    async def BeginTransaction(  # noqa: N802
        self, request: pb.BeginTransactionRequest, context: Context
    ) -> pb.BeginTransactionResponse:
        """See rpc/begin_transaction.py."""
        work = begin_transaction.handle(self._node, request, context)
        return await self._counted("BeginTransaction", work)

    async def EnlistWriter(  # noqa: N802
        self, request: pb.EnlistWriterRequest, context: Context
    ) -> pb.EnlistWriterResponse:
        """See rpc/enlist_writer.py."""
        work = enlist_writer.handle(self._node, request, context)
        return await self._counted("EnlistWriter", work)

    async def FinishTransaction(  # noqa: N802
        self, request: pb.FinishTransactionRequest, context: Context
    ) -> pb.FinishTransactionResponse:
        """See rpc/finish_transaction.py."""
        work = finish_transaction.handle(self._node, request, context)
        return await self._counted("FinishTransaction", work)

    async def EnlistInBatch(  # noqa: N802
        self, request: pb.EnlistInBatchRequest, context: Context
    ) -> pb.EnlistInBatchResponse:
        """See rpc/enlist_in_batch.py."""
        work = enlist_in_batch.handle(self._node, request, context)
        return await self._counted("EnlistInBatch", work)

    async def KeepBatchAlive(  # noqa: N802
        self, request: pb.KeepBatchAliveRequest, context: Context
    ) -> pb.KeepBatchAliveResponse:
        """See rpc/keep_batch_alive.py."""
        work = keep_batch_alive.handle(self._node, request, context)
        return await self._counted("KeepBatchAlive", work)

    async def FinishBatch(  # noqa: N802
        self, request: pb.FinishBatchRequest, context: Context
    ) -> pb.FinishBatchResponse:
        """See rpc/finish_batch.py."""
        work = finish_batch.handle(self._node, request, context)
        return await self._counted("FinishBatch", work)

    async def ForgetSink(  # noqa: N802
        self, request: pb.ForgetSinkRequest, context: Context
    ) -> pb.ForgetSinkResponse:
        """See rpc/forget_sink.py."""
        work = forget_sink.handle(self._node, request, context)
        return await self._counted("ForgetSink", work)

    async def _counted(self, rpc: str, work: Awaitable[ResponseT]) -> ResponseT:
        now = asyncio.get_running_loop().time
        began = now()
        response = await work
        self._node.stats.count(rpc, response, now() - began)
        return response


def make_server(listen: str, node: TxnCoordinatorNode) -> GrpcServer:
    """The gRPC server of one replica; enter it to listen."""
    service = TransactionCoordinatorService(node)
    return make_grpc_server(listen, [SERVICE_NAME], lambda server: add_service(service, server))
