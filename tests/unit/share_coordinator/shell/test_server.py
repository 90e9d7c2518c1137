from share_coordinator.shell.rpc.table import HANDLERS
from share_coordinator.shell.server import ShareCoordinatorService
from tidemark_wire.v1 import share_pb2 as pb


def test_every_rpc_of_the_service_has_a_handler() -> None:
    service = pb.DESCRIPTOR.services_by_name["ShareCoordinator"]
    streams = {name for name in dir(ShareCoordinatorService) if name.startswith("Stream")}
    assert set(HANDLERS) | streams == {method.name for method in service.methods}
