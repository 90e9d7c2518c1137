"""AddPartitionsToTxn and AddOffsetsToTxn: the partitions of a transaction are durable before it
writes to them, so that every partition that may have its data gets a marker.

Partition leaders send requests too: to verify that a partition is in the open transaction (KIP-890
part 1), and, for transactions v2, to add it.
"""

from typing import Final

from tidemark.codec.java_hash import shard_for_name
from tidemark.codec.txn_records import TransactionRecord, WriterRecord, encoded_bytes
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TOPIC_NAME_CHARS_MAX, TopicPartition

from txn_coordinator.core import transaction
from txn_coordinator.core.requests import (
    AddOffsets,
    AddOffsetsReply,
    AddPartitions,
    AddPartitionsReply,
    PartitionResult,
)
from txn_coordinator.core.ruling import Ruling
from txn_coordinator.core.settings import TxnSettings

OFFSETS_TOPIC: Final = "__consumer_offsets"
_PARTITION_BYTES_MAX: Final = TOPIC_NAME_CHARS_MAX + 16


def as_partitions(request: AddOffsets, settings: TxnSettings) -> AddPartitions:
    """Return the request that adds the partition with the group's offsets."""
    shard = shard_for_name(request.group_id, settings.offsets_partition_count)
    return AddPartitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        (TopicPartition(OFFSETS_TOPIC, shard),),
    )


def as_offsets_reply(reply: AddPartitionsReply) -> AddOffsetsReply:
    """Return the reply to AddOffsets that corresponds to the reply to ``as_partitions``."""
    return AddOffsetsReply(reply.error_code, reply.error_message)


def identity_problem(
    record: TransactionRecord | None, request: AddPartitions
) -> AddPartitionsReply | None:
    """Return the refusal of a producer that may not write for its transactional id, else None."""
    if record is not None and transaction.is_followed_by(
        record, request.producer_id, request.producer_epoch
    ):
        return None
    if record is None or record.producer_id != request.producer_id:
        return unknown(request)
    if not transaction.may_write(record, request.producer_epoch):
        return fenced(record.producer_epoch)
    return None


def verify(partitions: frozenset[TopicPartition], request: AddPartitions) -> AddPartitionsReply:
    """Return for each partition whether it is in the open transaction."""
    missing = (
        ErrorCode.TRANSACTION_ABORTABLE if request.transactions_v2 else ErrorCode.INVALID_TXN_STATE
    )
    results = tuple(
        PartitionResult(partition, ErrorCode.NONE if partition in partitions else missing)
        for partition in request.partitions
    )
    return AddPartitionsReply(ErrorCode.NONE, results=results)


def add_partitions(
    record: TransactionRecord, request: AddPartitions, wall_ms: int, settings: TxnSettings
) -> Ruling:
    """Rule on a request of the current session."""
    if record.state in transaction.PREPARED:
        return Ruling(concurrent("the last transaction is being ended"))
    is_open = record.state is transaction.ONGOING
    if request.verify_only:
        return Ruling(verify(record.partitions if is_open else frozenset(), request))
    added = frozenset(request.partitions)
    if not added or (is_open and added <= record.partitions):
        return Ruling(all_added(request))
    following = transaction.extended(
        record, added, wall_ms, client_version=2 if request.transactions_v2 else 0
    )
    if not fits(following, settings):
        return Ruling(too_large())
    return Ruling(all_added(request), (following,))


def fits(record: TransactionRecord | WriterRecord, settings: TxnSettings) -> bool:
    """True if the record fits into a batch. Only large records are encoded to find out."""
    bytes_at_most = len(record.partitions) * _PARTITION_BYTES_MAX
    return (
        bytes_at_most <= settings.record_bytes_max // 2
        or encoded_bytes(record) <= settings.record_bytes_max
    )


def all_added(request: AddPartitions) -> AddPartitionsReply:
    """Return a reply without errors."""
    results = tuple(PartitionResult(partition, ErrorCode.NONE) for partition in request.partitions)
    return AddPartitionsReply(ErrorCode.NONE, results=results)


def unknown(request: AddPartitions) -> AddPartitionsReply:
    """Return the refusal of a producer id that the transactional id does not have."""
    return AddPartitionsReply(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"producer id {request.producer_id} is not that of {request.transactional_id!r}",
    )


def fenced(producer_epoch: int) -> AddPartitionsReply:
    """Return the refusal of a producer that a newer session or the transaction's end has fenced."""
    return AddPartitionsReply(
        ErrorCode.PRODUCER_FENCED, f"the present producer epoch is {producer_epoch}"
    )


def concurrent(message: str) -> AddPartitionsReply:
    """Return a refusal that clients retry soon."""
    return AddPartitionsReply(ErrorCode.CONCURRENT_TRANSACTIONS, message)


def too_large() -> AddPartitionsReply:
    """Return the refusal of partitions that no longer fit into one record."""
    return AddPartitionsReply(
        ErrorCode.POLICY_VIOLATION, "a producer writes to too many partitions in one transaction"
    )
