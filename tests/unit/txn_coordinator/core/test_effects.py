from tidemark.model.errors import ErrorCode
from txn_coordinator.core.effects import Answer
from txn_coordinator.core.requests import AddOffsetsReply


def test_effects_are_values() -> None:
    reply = AddOffsetsReply(ErrorCode.NONE)
    assert Answer(1, reply) == Answer(1, AddOffsetsReply(ErrorCode.NONE))
    assert Answer(1, reply) != Answer(2, reply)
