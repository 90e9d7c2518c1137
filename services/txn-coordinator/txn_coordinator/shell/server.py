"""gRPC service of the coordinator: the handlers of rpc/table.py, timed and counted."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tidemark.runtime.server import GrpcServer, make_grpc_server
from tidemark_wire.v1 import txn_pb2 as pb
from tidemark_wire.v1 import txn_pb2_grpc

from txn_coordinator.shell.node import TxnCoordinatorNode
from txn_coordinator.shell.rpc.call import Context
from txn_coordinator.shell.rpc.table import HANDLERS, Handler

add_service: Callable[[object, object], None] = (
    txn_pb2_grpc.add_TransactionCoordinatorServicer_to_server
)
SERVICE_NAME: Final = pb.DESCRIPTOR.services_by_name["TransactionCoordinator"].full_name


class TransactionCoordinatorService:
    """Service with a method for each handler of the table, by its name on the wire."""

    def __init__(self, node: TxnCoordinatorNode) -> None:
        for rpc, handle in HANDLERS.items():
            setattr(self, rpc, _counted(node, rpc, handle))


def _counted(
    node: TxnCoordinatorNode, rpc: str, handle: Handler
) -> Callable[[Any, Context], Awaitable[Any]]:
    async def serve(request: Any, context: Context) -> Any:
        now = asyncio.get_running_loop().time
        began = now()
        response = await handle(node, request, context)
        node.stats.count(rpc, response, now() - began)
        return response

    return serve


def make_server(listen: str, node: TxnCoordinatorNode) -> GrpcServer:
    """Return the gRPC server of one replica. It listens once it is entered."""
    service = TransactionCoordinatorService(node)
    return make_grpc_server(listen, [SERVICE_NAME], lambda server: add_service(service, server))
