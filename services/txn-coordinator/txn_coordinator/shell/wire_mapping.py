"""Wire to model and back: the only module that reads the fields of the coordinator's messages.

Readers raise TidemarkError INVALID_REQUEST for a message that is invalid by itself.
"""

from collections.abc import Iterable
from typing import Final, Protocol

from tidemark.codec.txn_handle import transactional_id_of
from tidemark.model.authorization import ANONYMOUS, Requester
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import TopicId
from tidemark.model.metadata import ClusterImage
from tidemark.model.topics import TopicPartition
from tidemark.runtime.coordinator.paging import Page
from tidemark_wire.v1 import common_pb2
from tidemark_wire.v1 import txn_pb2 as pb

from txn_coordinator.core import requests as core
from txn_coordinator.core.marker_inputs import WriteMarkers

# -- requests


class FromCaller(Protocol):
    """Request that names its caller."""

    @property
    def caller(self) -> common_pb2.Caller:
        """Principal and client of the request."""
        ...


class OfTransaction(Protocol):
    """Request about one transactional id."""

    transactional_id: str


class OfSink(Protocol):
    """Request about the batches of one sink, whose id is a transactional id."""

    sink_id: str


class OfHandle(Protocol):
    """Request about one multi-writer transaction."""

    handle: str


def read_requester(request: FromCaller) -> Requester:
    """The client on whose behalf the request is sent."""
    return Requester(request.caller.principal or ANONYMOUS, request.caller.host)


def transaction_named(request: OfTransaction) -> str:
    """Transactional id of a request."""
    return request.transactional_id


def sink_named(request: OfSink) -> str:
    """Transactional id of a request about a sink."""
    return request.sink_id


def handle_named(request: OfHandle) -> str:
    """Transactional id of a request with a handle."""
    return read_handle(request.handle)


def needs_spare(request: pb.EndTransactionRequest) -> bool:
    """True if the end may need a new producer id: with v2 the epoch rises, and may overflow."""
    return request.transactions_v2


def read_init(request: pb.InitTransactionalIdRequest, spare: int) -> core.InitTransactionalId:
    """Wire to model."""
    return core.InitTransactionalId(
        transactional_id=_named(request.transactional_id),
        transaction_timeout_ms=request.transaction_timeout_ms,
        spare_producer_id=spare,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        transactions_v2=request.transactions_v2,
    )


def read_add_partitions(request: pb.AddPartitionsRequest) -> core.AddPartitions:
    """Wire to model; a partition named twice counts once."""
    return core.AddPartitions(
        transactional_id=_named(request.transactional_id),
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        partitions=tuple(dict.fromkeys(map(_read_partition, request.partitions))),
        verify_only=request.verify_only,
        transactions_v2=request.transactions_v2,
    )


def read_topic_ids(request: pb.AddPartitionsRequest) -> frozenset[tuple[str, TopicId]]:
    """Names and ids of the topics that a partition's leader has; empty for a client's request."""
    return frozenset(
        (one.topic, TopicId(one.topic_id)) for one in request.partitions if one.topic_id
    )


def read_add_offsets(request: pb.AddOffsetsRequest) -> core.AddOffsets:
    """Wire to model."""
    return core.AddOffsets(
        transactional_id=_named(request.transactional_id),
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        group_id=request.group_id,
    )


def read_end(request: pb.EndTransactionRequest, spare: int) -> core.EndTransaction:
    """Wire to model."""
    return core.EndTransaction(
        transactional_id=_named(request.transactional_id),
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        commit=request.commit,
        transactions_v2=request.transactions_v2,
        spare_producer_id=spare,
    )


def read_list(request: pb.ListTransactionsRequest) -> core.ListTransactions:
    """Wire to model."""
    return core.ListTransactions(
        states=tuple(request.states),
        producer_ids=tuple(request.producer_ids),
        duration_ms_min=request.duration_ms_min,
        transactional_id_pattern=request.transactional_id_pattern,
    )


def read_begin(request: pb.BeginTransactionRequest) -> core.BeginTransaction:
    """Wire to model."""
    return core.BeginTransaction(
        transactional_id=_named(request.transactional_id),
        transaction_timeout_ms=request.transaction_timeout_ms,
        abort_previous=request.abort_previous,
        attempt_id=request.attempt_id,
    )


def read_enlist(request: pb.EnlistWriterRequest, spare: int) -> core.EnlistWriter:
    """Wire to model."""
    return core.EnlistWriter(handle=request.handle, writer=request.writer, spare_producer_id=spare)


def read_finish(request: pb.FinishTransactionRequest) -> core.FinishTransaction:
    """Wire to model."""
    return core.FinishTransaction(
        handle=request.handle,
        commit=request.commit,
        writers=_read_counted(request.writers),
    )


def read_enlist_in_batch(request: pb.EnlistInBatchRequest, spare: int) -> core.EnlistInBatch:
    """Wire to model."""
    return core.EnlistInBatch(
        sink_id=_named(request.sink_id),
        query_id=request.query_id,
        batch_id=request.batch_id,
        writer=request.writer,
        transaction_timeout_ms=request.transaction_timeout_ms,
        spare_producer_id=spare,
        expires=request.expires,
    )


def read_finish_batch(request: pb.FinishBatchRequest) -> core.FinishBatch:
    """Wire to model."""
    return core.FinishBatch(
        sink_id=_named(request.sink_id),
        query_id=request.query_id,
        batch_id=request.batch_id,
        commit=request.commit,
        writers=_read_counted(request.writers),
        note=request.note,
        expires=request.expires,
    )


def read_keep_alive(request: pb.KeepBatchAliveRequest) -> core.KeepBatchAlive:
    """Wire to model."""
    return core.KeepBatchAlive(request.handle)


def read_described(request: pb.DescribeTransactionsRequest) -> tuple[str, ...]:
    """Wire to model: the transactional ids, in the order of the request."""
    return tuple(request.transactional_ids)


def read_forget_sink(request: pb.ForgetSinkRequest) -> core.ForgetSink:
    """Wire to model."""
    return core.ForgetSink(_named(request.sink_id), request.abort_open)


def read_handle(handle: str) -> str:
    """Transactional id in a handle."""
    transactional_id = transactional_id_of(handle)
    if transactional_id is None:
        raise TidemarkError(ErrorCode.INVALID_REQUEST, f"{handle!r} is not a transaction handle")
    return transactional_id


def _read_counted(
    writers: Iterable[pb.FinishTransactionRequest.Writer],
) -> tuple[core.CountedWriter, ...]:
    return tuple(
        core.CountedWriter(one.writer, one.producer_id, one.producer_epoch) for one in writers
    )


def _named(transactional_id: str) -> str:
    if not transactional_id:
        raise TidemarkError(ErrorCode.INVALID_REQUEST, "a transactional id must not be empty")
    return transactional_id


def _read_partition(wire: pb.Partition) -> TopicPartition:
    if not wire.topic or wire.partition < 0:
        words = f"there is no partition {wire.partition} of a topic {wire.topic!r}"
        raise TidemarkError(ErrorCode.INVALID_REQUEST, words)
    return TopicPartition(wire.topic, wire.partition)


# -- replies


def write_init(reply: core.InitTransactionalIdReply) -> pb.InitTransactionalIdResponse:
    """Model to wire."""
    return pb.InitTransactionalIdResponse(
        error_code=reply.error_code,
        error_message=reply.error_message,
        producer_id=reply.producer_id,
        producer_epoch=reply.producer_epoch,
    )


def write_add_partitions(reply: core.AddPartitionsReply) -> pb.AddPartitionsResponse:
    """Model to wire."""
    return pb.AddPartitionsResponse(
        error_code=reply.error_code,
        error_message=reply.error_message,
        results=[
            pb.AddPartitionsResponse.Result(
                topic=result.partition.topic,
                partition=result.partition.partition,
                error_code=result.error_code,
            )
            for result in reply.results
        ],
    )


def write_add_offsets(reply: core.AddOffsetsReply) -> pb.AddOffsetsResponse:
    """Model to wire."""
    return pb.AddOffsetsResponse(error_code=reply.error_code, error_message=reply.error_message)


def write_end(reply: core.EndTransactionReply) -> pb.EndTransactionResponse:
    """Model to wire."""
    return pb.EndTransactionResponse(
        error_code=reply.error_code,
        error_message=reply.error_message,
        producer_id=reply.producer_id,
        producer_epoch=reply.producer_epoch,
    )


def write_described(
    transactions: Iterable[core.TransactionView],
) -> pb.DescribeTransactionsResponse:
    """Model to wire."""
    return pb.DescribeTransactionsResponse(transactions=map(write_transaction, transactions))


def write_begun(reply: core.BeginTransactionReply) -> pb.BeginTransactionResponse:
    """Model to wire."""
    return pb.BeginTransactionResponse(
        error_code=reply.error_code, error_message=reply.error_message, handle=reply.handle
    )


def write_enlisted(reply: core.EnlistWriterReply) -> pb.EnlistWriterResponse:
    """Model to wire."""
    return pb.EnlistWriterResponse(
        error_code=reply.error_code,
        error_message=reply.error_message,
        producer_id=reply.producer_id,
        producer_epoch=reply.producer_epoch,
    )


def write_finished(reply: core.FinishTransactionReply) -> pb.FinishTransactionResponse:
    """Model to wire."""
    return pb.FinishTransactionResponse(
        error_code=reply.error_code,
        error_message=reply.error_message,
        committed=reply.committed,
    )


def write_enlisted_in_batch(reply: core.EnlistInBatchReply) -> pb.EnlistInBatchResponse:
    """Model to wire."""
    return pb.EnlistInBatchResponse(
        error_code=reply.error_code,
        error_message=reply.error_message,
        refusal=_REFUSALS[reply.refusal],
        committed=reply.committed,
        note=reply.note,
        handle=reply.handle,
        producer_id=reply.producer_id,
        producer_epoch=reply.producer_epoch,
        retired_query_id=reply.retired_query_id,
    )


def write_kept_alive(reply: core.KeepBatchAliveReply) -> pb.KeepBatchAliveResponse:
    """Model to wire."""
    return pb.KeepBatchAliveResponse(error_code=reply.error_code, error_message=reply.error_message)


def write_finished_batch(reply: core.FinishBatchReply) -> pb.FinishBatchResponse:
    """Model to wire."""
    return pb.FinishBatchResponse(
        error_code=reply.error_code,
        error_message=reply.error_message,
        refusal=_REFUSALS[reply.refusal],
        committed=reply.committed,
        first=reply.first,
        note=reply.note,
        same_writers=reply.same_writers,
    )


def write_forgotten(reply: core.ForgetSinkReply) -> pb.ForgetSinkResponse:
    """Model to wire."""
    return pb.ForgetSinkResponse(
        error_code=reply.error_code,
        error_message=reply.error_message,
        forgotten=reply.forgotten,
    )


_REFUSALS: Final = {
    core.BatchRefusal.NONE: pb.BATCH_REFUSAL_NONE,
    core.BatchRefusal.STALE_BATCH: pb.BATCH_REFUSAL_STALE_BATCH,
    core.BatchRefusal.RETIRED_QUERY: pb.BATCH_REFUSAL_RETIRED_QUERY,
}


def _write_sink(sink: core.SinkView) -> pb.SinkState:
    return pb.SinkState(
        query_id=sink.query_id,
        committed_batch_id=sink.committed_batch_id,
        note=sink.note,
        retired_query_ids=sink.retired_query_ids,
        open_batch_id=sink.open_batch_id,
    )


def write_listed(page: Page, unknown_states: Iterable[str]) -> pb.ListTransactionsResponse:
    """Model to wire. The rows are written already."""
    return pb.ListTransactionsResponse(
        unknown_states=unknown_states, transactions=page.rows, next=page.next
    )


def write_list_refusal(refused: TidemarkError) -> pb.ListTransactionsResponse:
    """Model to wire."""
    return pb.ListTransactionsResponse(error_code=refused.code)


def write_transaction(view: core.TransactionView) -> pb.TransactionState:
    """Model to wire."""
    return pb.TransactionState(
        transactional_id=view.transactional_id,
        error_code=view.error_code,
        error_message=view.error_message,
        state=view.state,
        timeout_ms=view.timeout_ms,
        started_ms=view.started_ms,
        producer_id=view.producer_id,
        producer_epoch=view.producer_epoch,
        partitions=map(_write_partition, view.partitions),
        writers=[
            pb.WriterState(
                writer=one.writer,
                producer_id=one.producer_id,
                producer_epoch=one.producer_epoch,
                partitions=map(_write_partition, one.partitions),
            )
            for one in view.writers
        ],
        handle=view.handle,
        sink=_write_sink(view.sink) if view.sink is not None else None,
    )


def _write_partition(partition: TopicPartition) -> pb.Partition:
    return pb.Partition(topic=partition.topic, partition=partition.partition)


# -- markers


def write_markers(effect: WriteMarkers, image: ClusterImage) -> pb.WriteMarkersRequest:
    """Model to wire. ``image`` has the ids of the topics."""
    return pb.WriteMarkersRequest(
        markers=[
            pb.WriteMarkersRequest.Marker(
                producer_id=part.effect.producer_id,
                producer_epoch=part.effect.producer_epoch,
                coordinator_epoch=part.owner_epoch,
                commit=part.effect.commit,
                transaction_version=part.effect.transaction_version,
                targets=[
                    pb.WriteMarkersRequest.Target(
                        topic_id=image.topics[partition.topic].topic_id,
                        topic=partition.topic,
                        partition=partition.partition,
                    )
                    for partition in part.partitions
                ],
            )
            for part in effect.parts
        ]
    )


def read_marker_codes(response: pb.WriteMarkersResponse) -> list[list[ErrorCode]]:
    """Wire to model: for each marker, the error of each of its targets."""
    return [
        [ErrorCode(result.error_code) for result in marker.results] for marker in response.markers
    ]
