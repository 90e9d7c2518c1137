from tidemark.model.errors import ErrorCode
from txn_coordinator.core.requests import AddOffsetsReply
from txn_coordinator.core.ruling import Ruling


def test_a_refusal_writes_nothing() -> None:
    assert Ruling(AddOffsetsReply(ErrorCode.PRODUCER_FENCED)).records == ()
