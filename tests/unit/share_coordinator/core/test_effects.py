from share_coordinator.core.effects import Answer
from share_coordinator.core.requests import DeleteShareGroupReply
from tidemark.model.errors import ErrorCode


def test_effects_are_values() -> None:
    reply = DeleteShareGroupReply(ErrorCode.NONE)
    assert Answer(1, reply) == Answer(1, DeleteShareGroupReply(ErrorCode.NONE))
    assert Answer(1, reply) != Answer(2, reply)
