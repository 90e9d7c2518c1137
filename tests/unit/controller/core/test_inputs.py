from controller.core.inputs import ConfigOperation
from tidemark_wire.v1 import controller_pb2 as pb
from unit.controller.worlds import create, new_topic


def test_inputs_are_values() -> None:
    assert create(new_topic("a")) == create(new_topic("a"))
    assert create(new_topic("a")) != create(new_topic("b"))


def test_operations_have_the_numbers_of_the_wire() -> None:
    wire = dict(pb.AlterConfigsRequest.Operation.items())
    assert {operation.name: int(operation) for operation in ConfigOperation} == wire
