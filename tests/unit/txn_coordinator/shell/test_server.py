from tidemark_wire.v1 import txn_pb2 as pb
from txn_coordinator.shell.rpc.table import HANDLERS
from txn_coordinator.shell.server import TransactionStreams


def test_every_rpc_of_the_service_has_a_handler() -> None:
    service = pb.DESCRIPTOR.services_by_name["TransactionCoordinator"]
    assert set(HANDLERS) == {method.name for method in service.methods}


def test_every_stream_does_what_a_call_does() -> None:
    methods = pb.DESCRIPTOR.services_by_name["TransactionCoordinator"].methods_by_name
    calls = {(one.input_type, one.output_type): one.name for one in methods.values()}
    streams = pb.DESCRIPTOR.services_by_name["TransactionStreams"].methods
    done = {one.name: calls[one.input_type, one.output_type] for one in streams}
    assert done == {"StreamAdditions": "AddPartitions", "StreamEnds": "EndTransaction"}
    assert all(hasattr(TransactionStreams, name) for name in done)
