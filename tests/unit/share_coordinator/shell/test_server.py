from share_coordinator.shell.rpc.table import HANDLERS
from tidemark_wire.v1 import share_pb2 as pb


def test_every_rpc_of_the_service_has_a_handler() -> None:
    service = pb.DESCRIPTOR.services_by_name["ShareCoordinator"]
    assert set(HANDLERS) == {method.name for method in service.methods}
