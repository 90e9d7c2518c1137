"""What each RPC of the listener GRPC asks for: a request, and the permissions without which it is
refused.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from e2e.acl_rows import GROUP, TOPIC, TRANSACTION, Need
from google.protobuf.message import Message
from tidemark.codec.txn_handle import Handle, format_handle
from tidemark.model.authorization import (
    CLUSTER,
    Operation,
    group_resource,
    topic_resource,
    transactional_id_resource,
)
from tidemark.model.errors import ErrorCode
from tidemark_wire.v1 import (
    common_pb2,
    diagnostics_pb2,
    partition_store_pb2,
    share_pb2,
    txn_pb2,
)

SERVICES: Final = (
    partition_store_pb2.DESCRIPTOR.services_by_name["PartitionStore"],
    txn_pb2.DESCRIPTOR.services_by_name["TransactionCoordinator"],
    share_pb2.DESCRIPTOR.services_by_name["SharePartitions"],
    share_pb2.DESCRIPTOR.services_by_name["ShareTransactions"],
    diagnostics_pb2.DESCRIPTOR.services_by_name["BrokerDiagnostics"],
)
REFUSALS: Final = frozenset(
    (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )
)
_HANDLE: Final = format_handle(Handle(TRANSACTION, 0, 1))
_PRODUCER: Final = {"producer_id": 1, "producer_epoch": 0}


class GrpcRow(NamedTuple):
    """One kind of request of one RPC."""

    rpc: str
    needs: tuple[Need, ...]
    request: Callable[[bytes], Message]
    """Given the id of TOPIC."""
    shows: Callable[[Any], bool] | None = None
    """For an answer that is filtered instead of refused: True if it has what was asked for."""


def codes_in(message: Message) -> Iterator[int]:
    """All error codes of an answer."""
    for field, value in message.ListFields():
        if field.name == "error_code":
            yield value
        elif field.message_type is not None:
            for one in value if field.is_repeated else (value,):
                yield from codes_in(one)


def _place() -> common_pb2.TopicPartition:
    return common_pb2.TopicPartition(topic=TOPIC, partition=0)


_WRITE_ID = Need(Operation.WRITE, transactional_id_resource(TRANSACTION))
_DESCRIBE_ID = Need(Operation.DESCRIBE, transactional_id_resource(TRANSACTION))
_DESCRIBE_CLUSTER = Need(Operation.DESCRIBE, CLUSTER)
_DESCRIBE_GROUP = Need(Operation.DESCRIBE, group_resource(GROUP))
_READ_GROUP = Need(Operation.READ, group_resource(GROUP))


def _on_topic(operation: Operation) -> Need:
    return Need(operation, topic_resource(TOPIC))


def _by_id(kind: type[Message], **fields: Any) -> Callable[[bytes], Message]:
    return lambda _: kind(transactional_id=TRANSACTION, **fields)


def _by_handle(kind: type[Message], **fields: Any) -> Callable[[bytes], Message]:
    return lambda _: kind(handle=_HANDLE, **fields)


def _by_sink(kind: type[Message], **fields: Any) -> Callable[[bytes], Message]:
    return lambda _: kind(sink_id=TRANSACTION, **fields)


ROWS: Final = (
    GrpcRow(
        "Append",
        (_on_topic(Operation.WRITE),),
        lambda _: partition_store_pb2.AppendRequest(
            partition=_place(), current_leader_epoch=-1, acks=1
        ),
    ),
    GrpcRow(
        "Fetch",
        (_on_topic(Operation.READ),),
        lambda _: partition_store_pb2.FetchRequest(
            partition=_place(), current_leader_epoch=-1, bytes_max=1_024
        ),
    ),
    GrpcRow(
        "ListOffsets",
        (_on_topic(Operation.DESCRIBE),),
        lambda _: partition_store_pb2.ListOffsetsRequest(
            queries=[
                partition_store_pb2.ListOffsetsRequest.Query(
                    partition=_place(), timestamp_ms=-1, current_leader_epoch=-1
                )
            ]
        ),
    ),
    GrpcRow(
        "FindEpochEnds",
        (_on_topic(Operation.DESCRIBE),),
        lambda _: partition_store_pb2.FindEpochEndsRequest(
            queries=[
                partition_store_pb2.FindEpochEndsRequest.Query(
                    partition=_place(), current_leader_epoch=-1, leader_epoch=0
                )
            ]
        ),
    ),
    GrpcRow(
        "DeleteRecords",
        (_on_topic(Operation.DELETE),),
        lambda _: partition_store_pb2.DeleteRecordsRequest(partition=_place()),
    ),
    GrpcRow(
        "DescribeEndpoints",
        (),
        lambda _: partition_store_pb2.DescribeEndpointsRequest(),
        shows=lambda answer: bool(answer.brokers),
    ),
    GrpcRow(
        "DescribeTopics",
        (_on_topic(Operation.DESCRIBE),),
        lambda _: partition_store_pb2.DescribeTopicsRequest(topics=[TOPIC]),
    ),
    GrpcRow(
        "InitProducerId",
        (Need(Operation.IDEMPOTENT_WRITE, CLUSTER),),
        lambda _: partition_store_pb2.InitProducerIdRequest(),
    ),
    GrpcRow(
        "InitTransactionalId",
        (_WRITE_ID,),
        _by_id(
            txn_pb2.InitTransactionalIdRequest,
            transaction_timeout_ms=60_000,
            producer_id=-1,
            producer_epoch=-1,
        ),
    ),
    GrpcRow(
        "AddPartitions",
        (_WRITE_ID, _on_topic(Operation.WRITE)),
        _by_id(
            txn_pb2.AddPartitionsRequest,
            partitions=[txn_pb2.Partition(topic=TOPIC, partition=0)],
            **_PRODUCER,
        ),
    ),
    GrpcRow(
        "AddOffsets",
        (_WRITE_ID, _READ_GROUP),
        _by_id(txn_pb2.AddOffsetsRequest, group_id=GROUP, **_PRODUCER),
    ),
    GrpcRow("EndTransaction", (_WRITE_ID,), _by_id(txn_pb2.EndTransactionRequest, **_PRODUCER)),
    GrpcRow(
        "DescribeTransactions",
        (_DESCRIBE_ID,),
        lambda _: txn_pb2.DescribeTransactionsRequest(transactional_ids=[TRANSACTION]),
    ),
    GrpcRow(
        "ListTransactions",
        (_DESCRIBE_ID,),
        lambda _: txn_pb2.ListTransactionsRequest(duration_ms_min=-1),
        shows=lambda answer: [one.transactional_id for one in answer.transactions] == [TRANSACTION],
    ),
    GrpcRow("BeginTransaction", (_WRITE_ID,), _by_id(txn_pb2.BeginTransactionRequest)),
    GrpcRow("EnlistWriter", (_WRITE_ID,), _by_handle(txn_pb2.EnlistWriterRequest, writer="w")),
    GrpcRow("FinishTransaction", (_WRITE_ID,), _by_handle(txn_pb2.FinishTransactionRequest)),
    GrpcRow("EnlistInBatch", (_WRITE_ID,), _by_sink(txn_pb2.EnlistInBatchRequest, writer="w")),
    GrpcRow("KeepBatchAlive", (_WRITE_ID,), _by_handle(txn_pb2.KeepBatchAliveRequest)),
    GrpcRow("FinishBatch", (_WRITE_ID,), _by_sink(txn_pb2.FinishBatchRequest)),
    GrpcRow("ForgetSink", (_WRITE_ID,), _by_sink(txn_pb2.ForgetSinkRequest)),
    GrpcRow(
        "DescribeLags",
        (_DESCRIBE_GROUP, _on_topic(Operation.DESCRIBE)),
        lambda topic_id: share_pb2.DescribeShareLagsRequest(
            group_id=GROUP,
            topics=[share_pb2.ShareTopicPartitions(topic_id=topic_id, partitions=[0])],
        ),
    ),
    GrpcRow(
        "Browse",
        (_DESCRIBE_GROUP, _on_topic(Operation.DESCRIBE)),
        lambda topic_id: share_pb2.BrowseShareRequest(
            group_id=GROUP, topic_id=topic_id, last_offset=-1
        ),
    ),
    GrpcRow(
        "Acknowledge",
        (_WRITE_ID, _READ_GROUP, _on_topic(Operation.READ)),
        lambda topic_id: share_pb2.AcknowledgeInTransactionRequest(
            group_id=GROUP,
            member_id="m",
            transactional_id=TRANSACTION,
            parts=[share_pb2.AcknowledgeInTransactionRequest.Part(topic_id=topic_id)],
            **_PRODUCER,
        ),
    ),
    GrpcRow(
        "ListSlowRequests",
        (_DESCRIBE_CLUSTER,),
        lambda _: diagnostics_pb2.ListSlowRequestsRequest(),
    ),
    GrpcRow(
        "DescribeTraffic", (_DESCRIBE_CLUSTER,), lambda _: diagnostics_pb2.DescribeTrafficRequest()
    ),
    GrpcRow(
        "ListGroupLags", (_DESCRIBE_CLUSTER,), lambda _: diagnostics_pb2.ListGroupLagsRequest()
    ),
)
