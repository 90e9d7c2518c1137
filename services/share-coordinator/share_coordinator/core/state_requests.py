"""Reads and writes of share-partitions by the brokers that lead them: many in one request."""

from collections.abc import Iterator

from tidemark.codec.share_records import ShareStateRecord
from tidemark.model.errors import ErrorCode
from tidemark.model.share_state import (
    ReadState,
    ReadStateSummary,
    StateRead,
    StateResult,
    StateSummary,
    WriteState,
)
from tidemark.model.topics import Topics, topic_id_text

from share_coordinator.core.requests import AskStates, AskStatesReply
from share_coordinator.core.share_states import Outcome, ShareStates

StateRequest = ReadState | WriteState | ReadStateSummary


def answer(
    states: ShareStates, request: AskStates, topics: Topics, wall_ms: int
) -> tuple[list[ShareStateRecord], AskStatesReply]:
    """Records of all of them, for one append, and an answer for each. One that is refused leaves
    the others alone.
    """
    outcomes = list(_outcomes(states, request, topics, wall_ms))
    records = [record for outcome in outcomes for record in outcome.records]
    return records, AskStatesReply(tuple(outcome.reply for outcome in outcomes))


def refused(request: AskStates, error_code: ErrorCode, message: str) -> AskStatesReply:
    """All of them refused for one reason."""
    return AskStatesReply(tuple(_refusal(one, error_code, message) for one in request.requests))


def _outcomes(
    states: ShareStates, request: AskStates, topics: Topics, wall_ms: int
) -> Iterator[Outcome]:
    seen = set()
    for one in request.requests:
        if one.key.group_id != request.group_id:
            yield _refuse(one, f"of group {one.key.group_id} in a request of another group")
        elif one.key in seen:
            # Each is judged by the replayed state, which does not have the first one's records yet.
            yield _refuse(one, "the share-partition is named twice in one request")
        elif states.of(one.key) is None and topics.name_of(one.key.topic_id) is None:
            message = f"there is no topic with id {topic_id_text(one.key.topic_id)}"
            yield Outcome((), _refusal(one, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message))
        else:
            yield _judge(states, one, wall_ms)
        seen.add(one.key)


def _judge(states: ShareStates, one: StateRequest, wall_ms: int) -> Outcome:
    match one:
        case ReadState():
            return states.read(one, wall_ms)
        case WriteState():
            return states.write(one, wall_ms)
        case ReadStateSummary():
            return states.summary(one)


def _refuse(one: StateRequest, message: str) -> Outcome:
    return Outcome((), _refusal(one, ErrorCode.INVALID_REQUEST, message))


def _refusal(
    one: StateRequest, error_code: ErrorCode, message: str
) -> StateRead | StateResult | StateSummary:
    match one:
        case ReadState():
            return StateRead(one.key, error_code, error_message=message)
        case WriteState():
            return StateResult(one.key, error_code, error_message=message)
        case ReadStateSummary():
            return StateSummary(one.key, error_code, error_message=message)
