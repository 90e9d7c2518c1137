from controller.shell.rpc.table import HANDLERS
from tidemark_wire.v1 import controller_pb2 as pb


def test_every_rpc_of_the_service_has_a_handler() -> None:
    service = pb.DESCRIPTOR.services_by_name["Controller"]
    assert set(HANDLERS) == {method.name for method in service.methods}
