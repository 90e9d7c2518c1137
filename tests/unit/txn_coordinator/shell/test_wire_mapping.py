"""Every field goes through: what is read equals what was meant, and what is written reads back."""

from dataclasses import asdict, fields, replace
from typing import Any

import pytest
from tidemark.codec.txn_handle import Handle, format_handle
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.topics import TopicPartition
from tidemark_wire.v1 import txn_pb2 as pb
from txn_coordinator.core import requests as core
from txn_coordinator.shell import wire_mapping as wire

A1, B0 = TopicPartition("a", 1), TopicPartition("b", 0)
FENCED = ErrorCode.PRODUCER_FENCED
STALE, RETIRED = core.BatchRefusal.STALE_BATCH, core.BatchRefusal.RETIRED_QUERY


def test_init_is_read_whole() -> None:
    request = pb.InitTransactionalIdRequest(
        transactional_id="t",
        transaction_timeout_ms=5,
        producer_id=6,
        producer_epoch=7,
        transactions_v2=True,
    )
    expected = core.InitTransactionalId("t", 5, 99, 6, 7, transactions_v2=True)
    assert wire.read_init(request, 99) == expected


def test_partitions_are_read_once_each_in_order() -> None:
    request = pb.AddPartitionsRequest(
        transactional_id="t",
        producer_id=6,
        producer_epoch=7,
        partitions=[pb.Partition(topic="b"), pb.Partition(topic="a", partition=1)] * 2,
        verify_only=True,
        transactions_v2=True,
    )
    assert wire.read_add_partitions(request) == core.AddPartitions(
        "t", 6, 7, (B0, A1), verify_only=True, transactions_v2=True
    )


def test_offsets_are_read_whole() -> None:
    request = pb.AddOffsetsRequest(
        transactional_id="t", producer_id=6, producer_epoch=7, group_id="g"
    )
    assert wire.read_add_offsets(request) == core.AddOffsets("t", 6, 7, "g")


def test_an_end_is_read_whole() -> None:
    request = pb.EndTransactionRequest(
        transactional_id="t", producer_id=6, producer_epoch=7, commit=True, transactions_v2=True
    )
    expected = core.EndTransaction("t", 6, 7, True, transactions_v2=True, spare_producer_id=99)
    assert wire.read_end(request, 99) == expected


def test_filters_of_a_listing_are_read_whole() -> None:
    request = pb.ListTransactionsRequest(
        states=["Ongoing"], producer_ids=[6], duration_ms_min=7, transactional_id_pattern="t.*"
    )
    assert wire.read_list(request) == core.ListTransactions(("Ongoing",), (6,), 7, "t.*")


def test_a_beginning_is_read_whole() -> None:
    request = pb.BeginTransactionRequest(
        transactional_id="t", transaction_timeout_ms=5, abort_previous=True, attempt_id=b"7"
    )
    expected = core.BeginTransaction("t", 5, abort_previous=True, attempt_id=b"7")
    assert wire.read_begin(request) == expected


def test_an_enlisting_is_read_whole() -> None:
    request = pb.EnlistWriterRequest(handle="h", writer="w")
    assert wire.read_enlist(request, 99) == core.EnlistWriter("h", "w", 99)


def test_a_finish_is_read_whole() -> None:
    writer = pb.FinishTransactionRequest.Writer(writer="w", producer_id=6, producer_epoch=7)
    request = pb.FinishTransactionRequest(handle="h", commit=True, writers=[writer])
    expected = core.FinishTransaction("h", True, (core.CountedWriter("w", 6, 7),))
    assert wire.read_finish(request) == expected


def test_an_enlisting_in_a_batch_is_read_whole() -> None:
    request = pb.EnlistInBatchRequest(
        sink_id="s", query_id="q", batch_id=3, writer="w", transaction_timeout_ms=5, expires=True
    )
    expected = core.EnlistInBatch("s", "q", 3, "w", 5, 99, expires=True)
    assert wire.read_enlist_in_batch(request, 99) == expected


def test_a_finish_of_a_batch_is_read_whole() -> None:
    writer = pb.FinishTransactionRequest.Writer(writer="w", producer_id=6, producer_epoch=7)
    request = pb.FinishBatchRequest(
        sink_id="s", query_id="q", batch_id=3, commit=True, writers=[writer], note="n", expires=True
    )
    expected = core.FinishBatch("s", "q", 3, True, (core.CountedWriter("w", 6, 7),), "n", True)
    assert wire.read_finish_batch(request) == expected


def test_a_forgetting_is_read_whole() -> None:
    request = pb.ForgetSinkRequest(sink_id="s", abort_open=True)
    assert wire.read_forget_sink(request) == core.ForgetSink("s", abort_open=True)


def test_a_sink_has_a_name() -> None:
    with pytest.raises(TidemarkError) as refused:
        wire.read_forget_sink(pb.ForgetSinkRequest())
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "request_",
    [
        pb.AddPartitionsRequest(transactional_id=""),
        pb.AddPartitionsRequest(transactional_id="t", partitions=[pb.Partition(topic="")]),
        pb.AddPartitionsRequest(
            transactional_id="t", partitions=[pb.Partition(topic="a", partition=-1)]
        ),
    ],
)
def test_invalid_messages_are_refused(request_: pb.AddPartitionsRequest) -> None:
    with pytest.raises(TidemarkError) as refused:
        wire.read_add_partitions(request_)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_handle_has_its_transactional_id() -> None:
    assert wire.read_handle(format_handle(Handle("my.id", 3, 1_000))) == "my.id"


def test_an_invalid_handle_is_refused() -> None:
    with pytest.raises(TidemarkError) as refused:
        wire.read_handle("nonsense")
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("write", "reply"),
    [
        (wire.write_init, core.InitTransactionalIdReply(FENCED, "words", 6, 7)),
        (wire.write_add_offsets, core.AddOffsetsReply(FENCED, "words")),
        (wire.write_end, core.EndTransactionReply(FENCED, "words", 6, 7)),
        (wire.write_begun, core.BeginTransactionReply(FENCED, "words", "h")),
        (wire.write_enlisted, core.EnlistWriterReply(FENCED, "words", 6, 7)),
        (wire.write_finished, core.FinishTransactionReply(FENCED, "words", True)),
        (
            wire.write_enlisted_in_batch,
            core.EnlistInBatchReply(FENCED, "words", RETIRED, True, "n", "h", 6, 7, "old"),
        ),
        (wire.write_kept_alive, core.KeepBatchAliveReply(FENCED, "words")),
        (
            wire.write_finished_batch,
            core.FinishBatchReply(FENCED, "words", STALE, True, True, "n", True),
        ),
        (wire.write_forgotten, core.ForgetSinkReply(FENCED, "words", True)),
    ],
)
def test_a_flat_reply_is_written_field_by_field(write: Any, reply: Any) -> None:
    message = write(reply)
    written = {one.name: getattr(message, one.name) for one in fields(reply)}
    assert written == {one.name: getattr(reply, one.name) for one in fields(reply)}


def test_results_of_partitions_are_written_in_order() -> None:
    results = (core.PartitionResult(A1, FENCED), core.PartitionResult(B0, ErrorCode.NONE))
    message = wire.write_add_partitions(core.AddPartitionsReply(ErrorCode.NONE, "", results))
    found = [(one.topic, one.partition, one.error_code) for one in message.results]
    assert found == [("a", 1, FENCED), ("b", 0, 0)]


def view() -> core.TransactionView:
    return core.TransactionView(
        "t",
        ErrorCode.NONE,
        state="Ongoing",
        timeout_ms=5,
        started_ms=1_000,
        producer_id=6,
        producer_epoch=7,
        partitions=(A1, B0),
        writers=(core.WriterView("w", 8, 9, (B0,)),),
        handle="h",
    )


def test_a_transaction_is_described_whole() -> None:
    (state,) = wire.write_described([view()]).transactions
    flat = (state.transactional_id, state.state, state.timeout_ms, state.started_ms, state.handle)
    assert flat == ("t", "Ongoing", 5, 1_000, "h")
    assert (state.producer_id, state.producer_epoch) == (6, 7)
    assert [(one.topic, one.partition) for one in state.partitions] == [A1, B0]


def test_writers_are_described_with_their_partitions() -> None:
    (state,) = wire.write_described([view()]).transactions
    (writer,) = state.writers
    found = (writer.writer, writer.producer_id, writer.producer_epoch, len(writer.partitions))
    assert found == ("w", 8, 9, 1)


def test_a_sink_is_described_whole() -> None:
    sink = core.SinkView("q", 7, "n", ("a", "b"), 8)
    (state,) = wire.write_described([replace(view(), sink=sink)]).transactions
    found = {one.name: getattr(state.sink, one.name) for one in fields(sink)}
    assert {**found, "retired_query_ids": tuple(found["retired_query_ids"])} == asdict(sink)


def test_an_id_that_is_no_sink_has_no_sink_state() -> None:
    (state,) = wire.write_described([view()]).transactions
    assert not state.HasField("sink")
