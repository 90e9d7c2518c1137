from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TopicId
from tidemark.model.share_state import (
    DeliveryState,
    LogEpochs,
    PendingBatch,
    ReadState,
    ReadStateSummary,
    SharePartitionKey,
    StateBatch,
    StateEpoch,
    StateRead,
    StateResult,
    StateSummary,
    TransactionKey,
    WriteState,
)
from tidemark.runtime import share_state_wire as wire
from tidemark_wire.v1 import share_pb2 as pb

G = "jobs"
INT32 = st.integers(-1, 2**31 - 1)
OFFSETS = st.integers(-1, 2**63 - 1).map(Offset)
LEADER_EPOCHS = INT32.map(LeaderEpoch)
STATE_EPOCHS = INT32.map(StateEpoch)
STATES = st.sampled_from(DeliveryState)
MESSAGES = st.sampled_from([None, "", "told why"])
CODES = st.sampled_from([ErrorCode.NONE, ErrorCode.FENCED_STATE_EPOCH])
TRANSACTIONS = st.builds(
    TransactionKey,
    st.integers(0, 2**63 - 1).map(ProducerId),
    st.integers(0, 2**15 - 1).map(ProducerEpoch),
)
KEYS = st.builds(
    SharePartitionKey,
    st.just(G),
    st.binary(min_size=16, max_size=16).map(TopicId),
    st.integers(0, 9),
)
BATCHES = st.lists(st.builds(StateBatch, OFFSETS, OFFSETS, STATES, INT32), max_size=3).map(tuple)
PENDING = st.lists(
    st.builds(
        PendingBatch,
        OFFSETS,
        OFFSETS,
        STATES,
        INT32,
        TRANSACTIONS,
        st.sampled_from([DeliveryState.ACQUIRED, DeliveryState.ARCHIVING]),
    ),
    max_size=3,
).map(tuple)
LOGS = st.builds(
    LogEpochs, st.lists(st.tuples(LEADER_EPOCHS, OFFSETS), max_size=3).map(tuple), OFFSETS
)
READS = st.lists(st.builds(ReadState, KEYS, LEADER_EPOCHS, st.none() | LOGS), max_size=3).map(tuple)
SUMMARIES = st.lists(st.builds(ReadStateSummary, KEYS, LEADER_EPOCHS), max_size=3).map(tuple)
WRITES = st.lists(
    st.builds(WriteState, KEYS, STATE_EPOCHS, LEADER_EPOCHS, OFFSETS, BATCHES, INT32, PENDING),
    max_size=3,
).map(tuple)
READ_ANSWERS = st.lists(
    st.builds(StateRead, KEYS, CODES, STATE_EPOCHS, OFFSETS, BATCHES, PENDING, MESSAGES), max_size=3
)
RESULTS = st.lists(
    st.builds(StateResult, KEYS, CODES, st.frozensets(TRANSACTIONS, max_size=2), MESSAGES),
    max_size=3,
)
SUMMARY_ANSWERS = st.lists(
    st.builds(StateSummary, KEYS, CODES, STATE_EPOCHS, LEADER_EPOCHS, OFFSETS, INT32, MESSAGES),
    max_size=3,
)


def sent(message: Any) -> Any:
    return type(message).FromString(message.SerializeToString())


@given(READS, WRITES, SUMMARIES)
@settings(max_examples=40, deadline=None)
def test_requests_come_back_as_they_went(reads: Any, writes: Any, summaries: Any) -> None:
    assert wire.read_reads(sent(wire.write_reads(G, reads))) == reads
    assert wire.read_writes(sent(wire.write_writes(G, writes))) == writes
    assert wire.read_summaries(sent(wire.write_summaries(G, summaries))) == summaries


@given(READ_ANSWERS, RESULTS, SUMMARY_ANSWERS)
@settings(max_examples=40, deadline=None)
def test_answers_come_back_as_they_went(reads: Any, results: Any, summaries: Any) -> None:
    for answers, write, read in (
        (reads, wire.write_read_answers, wire.read_read_answers),
        (results, wire.write_write_answers, wire.read_write_answers),
        (summaries, wire.write_summary_answers, wire.read_summary_answers),
    ):
        keys = [answer.key for answer in answers]
        assert read(keys, sent(write(answers))) == answers


@pytest.mark.parametrize(
    ("read", "request_"),
    [
        (wire.read_reads, pb.ReadShareStatesRequest(parts=[{"topic_id": b"short"}])),
        (wire.read_summaries, pb.ReadShareStateSummariesRequest(parts=[{"topic_id": b"s"}])),
        (wire.read_writes, pb.WriteShareStatesRequest(parts=[{"topic_id": bytes(17)}])),
        (
            wire.read_writes,
            pb.WriteShareStatesRequest(
                parts=[{"topic_id": bytes(16), "batches": [{"delivery_state": 5}]}]
            ),
        ),
        (
            wire.read_writes,
            pb.WriteShareStatesRequest(
                parts=[{"topic_id": bytes(16), "pending": [{"outcome": 9}]}]
            ),
        ),
    ],
)
def test_a_message_that_is_invalid_by_itself_is_refused(
    read: Callable[[Any], object], request_: Any
) -> None:
    with pytest.raises(TidemarkError) as refused:
        read(sent(request_))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_an_answer_without_all_its_parts_is_an_error() -> None:
    key = SharePartitionKey(G, TopicId(bytes(16)), 0)
    with pytest.raises(TidemarkError) as refused:
        wire.read_write_answers([key], pb.WriteShareStatesResponse())
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_error_of_the_whole_answer_is_raised() -> None:
    response = pb.ReadShareStatesResponse(error_code=ErrorCode.INVALID_REQUEST, error_message="no")
    with pytest.raises(TidemarkError, match="no") as refused:
        wire.read_read_answers([], response)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
