"""gRPC service of the coordinator: the handlers of rpc/table.py, timed and counted."""

from collections.abc import Callable
from typing import Final

from tidemark.runtime.coordinator.calls import Context
from tidemark.runtime.coordinator.server import CountedService
from tidemark.runtime.kept_streams import Answer, answer_each
from tidemark.runtime.server import GrpcServer, MakeGrpcServer, make_grpc_server
from tidemark_wire.v1 import share_pb2 as pb
from tidemark_wire.v1 import share_pb2_grpc

from share_coordinator.shell.node import ShareCoordinatorNode
from share_coordinator.shell.rpc.table import HANDLERS

add_service: Callable[[object, object], None] = (
    share_pb2_grpc.add_ShareCoordinatorServicer_to_server
)
SERVICE_NAME: Final = pb.DESCRIPTOR.services_by_name["ShareCoordinator"].full_name


class ShareCoordinatorService(CountedService):
    """Service with a method for each handler of the table, by its name on the wire, and streams."""

    WriteStates: Answer

    def __init__(self, node: ShareCoordinatorNode) -> None:
        super().__init__(node, HANDLERS)
        self._drained = node.drained

    async def StreamWrites(self, _requests: object, context: Context) -> None:  # noqa: N802
        """Answer the writes of one stream. Each counts as one of WriteStates."""
        await answer_each(self.WriteStates, context, self._drained)


def make_server(
    listen: str, node: ShareCoordinatorNode, make: MakeGrpcServer = make_grpc_server
) -> GrpcServer:
    """Return the gRPC server of one replica. It listens once it is entered."""
    service = ShareCoordinatorService(node)
    return make(listen, [SERVICE_NAME], lambda server: add_service(service, server))
