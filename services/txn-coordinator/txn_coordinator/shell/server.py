"""gRPC service of the coordinator: the handlers of rpc/table.py, timed and counted."""

from collections.abc import Callable
from typing import Final

from tidemark.runtime.coordinator.server import CountedService
from tidemark.runtime.server import GrpcServer, MakeGrpcServer, make_grpc_server
from tidemark_wire.v1 import txn_pb2 as pb
from tidemark_wire.v1 import txn_pb2_grpc

from txn_coordinator.shell.node import TxnCoordinatorNode
from txn_coordinator.shell.rpc.table import HANDLERS

add_service: Callable[[object, object], None] = (
    txn_pb2_grpc.add_TransactionCoordinatorServicer_to_server
)
SERVICE_NAME: Final = pb.DESCRIPTOR.services_by_name["TransactionCoordinator"].full_name


class TransactionCoordinatorService(CountedService):
    """Service with a method for each handler of the table, by its name on the wire."""

    def __init__(self, node: TxnCoordinatorNode) -> None:
        super().__init__(node, HANDLERS)


def make_server(
    listen: str, node: TxnCoordinatorNode, make: MakeGrpcServer = make_grpc_server
) -> GrpcServer:
    """Return the gRPC server of one replica. It listens once it is entered."""
    service = TransactionCoordinatorService(node)
    return make(listen, [SERVICE_NAME], lambda server: add_service(service, server))
