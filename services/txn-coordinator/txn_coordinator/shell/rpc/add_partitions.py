"""AddPartitions."""

from collections.abc import Collection

from tidemark.model.authorization import Operation
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import TopicId
from tidemark.model.topics import TopicPartition
from tidemark.runtime.coordinator.calls import Context, answered, ask
from tidemark_wire.v1 import txn_pb2 as pb

from txn_coordinator.core.requests import AddPartitions, AddPartitionsReply, PartitionResult
from txn_coordinator.shell.node import TxnCoordinatorNode
from txn_coordinator.shell.rpc.call import check_allowed
from txn_coordinator.shell.wire_mapping import (
    read_add_partitions,
    read_topic_ids,
    transaction_named,
    write_add_partitions,
)


async def handle(
    node: TxnCoordinatorNode, request: pb.AddPartitionsRequest, context: Context
) -> pb.AddPartitionsResponse:
    """Make partitions a part of the open transaction, or verify that they are."""

    async def work() -> AddPartitionsReply:
        name = transaction_named(request)
        check_allowed(node, request, Operation.WRITE, name)
        addition = read_add_partitions(request)
        topic_ids = read_topic_ids(request)
        if not await node.shows_topics(topic_ids):
            return AddPartitionsReply(ErrorCode.REQUEST_TIMED_OUT, _not_shown(topic_ids))
        if not addition.verify_only:
            unknown = await node.unknown_partitions(addition.partitions)
            if unknown:
                return _unknown(addition, unknown)
        return await ask(node, name, addition, AddPartitionsReply, context)

    return write_add_partitions(await answered(work(), AddPartitionsReply))


def _not_shown(topic_ids: Collection[tuple[str, TopicId]]) -> str:
    names = ", ".join(sorted({name for name, _ in topic_ids}))
    return f"the coordinator's metadata does not show the topics as their leader has them: {names}"


def _unknown(addition: AddPartitions, unknown: frozenset[TopicPartition]) -> AddPartitionsReply:
    """Refuse all partitions, as Kafka does, if one is unknown: no marker could be sent to it."""
    return AddPartitionsReply(
        ErrorCode.NONE,
        results=tuple(
            PartitionResult(
                partition,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if partition in unknown
                else ErrorCode.OPERATION_NOT_ATTEMPTED,
            )
            for partition in addition.partitions
        ),
    )
