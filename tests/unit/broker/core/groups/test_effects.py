"""An outcome collects records and replies in order."""

from broker.core.groups.effects import Answer, Outcome
from broker.core.groups.requests import DeleteGroupReply, HeartbeatReply
from tidemark.codec.group_records import GroupMetadataRecord
from tidemark.model.errors import ErrorCode
from tidemark.protocol.shard import Decision, Writer


def test_an_outcome_becomes_a_decision() -> None:
    out = Outcome()
    out.answer(2, HeartbeatReply(ErrorCode.NONE))
    out.answer(1, DeleteGroupReply(ErrorCode.NONE))
    out.records.append(GroupMetadataRecord("g", None))
    out.writer = Writer(7, 0)
    answers = (
        Answer(2, HeartbeatReply(ErrorCode.NONE)),
        Answer(1, DeleteGroupReply(ErrorCode.NONE)),
    )
    expected = Decision((GroupMetadataRecord("g", None),), answers, Writer(7, 0))
    assert out.decision() == expected


def test_nothing_is_a_decision_too() -> None:
    assert Outcome().decision() == Decision()
