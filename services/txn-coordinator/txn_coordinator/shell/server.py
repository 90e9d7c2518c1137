"""gRPC services of the coordinator: the handlers of rpc/table.py, timed and counted."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from tidemark.runtime.coordinator.calls import Context
from tidemark.runtime.coordinator.server import CountedService
from tidemark.runtime.kept_streams import Answer, answer_each
from tidemark.runtime.server import GrpcServer, MakeGrpcServer, make_grpc_server
from tidemark_wire.v1 import txn_pb2 as pb
from tidemark_wire.v1 import txn_pb2_grpc

from txn_coordinator.shell.node import TxnCoordinatorNode
from txn_coordinator.shell.rpc.table import HANDLERS

_ADD: Final[tuple[Callable[[object, object], None], ...]] = (
    txn_pb2_grpc.add_TransactionCoordinatorServicer_to_server,
    txn_pb2_grpc.add_TransactionStreamsServicer_to_server,
)
SERVICE_NAMES: Final = tuple(
    pb.DESCRIPTOR.services_by_name[name].full_name
    for name in ("TransactionCoordinator", "TransactionStreams")
)


class TransactionCoordinatorService(CountedService):
    """Service with a method for each handler of the table, by its name on the wire."""

    AddPartitions: Answer
    EndTransaction: Answer

    def __init__(self, node: TxnCoordinatorNode) -> None:
        super().__init__(node, HANDLERS)


class TransactionStreams:
    """The service TransactionStreams. Requests count as those of the calls that do the same."""

    def __init__(self, calls: TransactionCoordinatorService, drained: asyncio.Event) -> None:
        self._calls = calls
        self._drained = drained

    async def StreamAdditions(self, _requests: object, context: Context) -> None:  # noqa: N802
        """Answer the requests of one stream as AddPartitions does."""
        await answer_each(self._calls.AddPartitions, context, self._drained)

    async def StreamEnds(self, _requests: object, context: Context) -> None:  # noqa: N802
        """Answer the requests of one stream as EndTransaction does."""
        await answer_each(self._calls.EndTransaction, context, self._drained)


def services(node: TxnCoordinatorNode) -> Mapping[str, object]:
    """Return the servicers of one replica, by the full names of their services."""
    calls = TransactionCoordinatorService(node)
    return dict(zip(SERVICE_NAMES, (calls, TransactionStreams(calls, node.drained)), strict=True))


def make_server(
    listen: str, node: TxnCoordinatorNode, make: MakeGrpcServer = make_grpc_server
) -> GrpcServer:
    """Return the gRPC server of one replica. It listens once it is entered."""
    made = services(node)

    def register(server: object) -> None:
        for add, name in zip(_ADD, SERVICE_NAMES, strict=True):
            add(made[name], server)

    return make(listen, SERVICE_NAMES, register)
