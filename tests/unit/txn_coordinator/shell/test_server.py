from tidemark_wire.v1 import txn_pb2 as pb
from txn_coordinator.shell.rpc.table import HANDLERS


def test_every_rpc_of_the_service_has_a_handler() -> None:
    service = pb.DESCRIPTOR.services_by_name["TransactionCoordinator"]
    assert set(HANDLERS) == {method.name for method in service.methods}
