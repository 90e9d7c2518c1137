"""gRPC service of the controller: the handlers of rpc/table.py."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from tidemark.runtime.server import GrpcServer, MakeGrpcServer, make_grpc_server
from tidemark_wire.v1 import controller_pb2 as pb
from tidemark_wire.v1 import controller_pb2_grpc

from controller.shell.node import ControllerNode
from controller.shell.rpc.call import Context
from controller.shell.rpc.table import HANDLERS, Handler

add_service: Callable[[object, object], None] = controller_pb2_grpc.add_ControllerServicer_to_server
SERVICE_NAME: Final = pb.DESCRIPTOR.services_by_name["Controller"].full_name


class ControllerService:
    """Service with a method for each handler of the table, by its name on the wire."""

    def __init__(self, node: ControllerNode) -> None:
        for rpc, handle in HANDLERS.items():
            setattr(self, rpc, _bound(node, rpc, handle))


def _bound(
    node: ControllerNode, rpc: str, handle: Handler
) -> Callable[[Any, Context], Awaitable[Any]]:
    async def serve(request: Any, context: Context) -> Any:
        def make() -> Awaitable[Any]:
            return handle(node, request, context)

        return await node.audit.change(rpc, request, context, make)

    return serve


def make_server(
    listen: str, node: ControllerNode, make: MakeGrpcServer = make_grpc_server
) -> GrpcServer:
    """Return the gRPC server of one replica. It listens once it is entered."""
    service = ControllerService(node)
    return make(
        listen,
        [SERVICE_NAME],
        lambda server: add_service(service, server),
        note_login=node.audit.login,
    )
