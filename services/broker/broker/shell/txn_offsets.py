"""Transactional commits of offsets: whether the partition of __consumer_offsets may take them.

A group's shard writes them to its own partition, which neither a producer's request nor the checks
of one pass: so they are made before the shard is asked (KIP-890, as for produced batches). A shard
whose append is refused is dropped and loaded again: what would be refused must not come that far.
"""

from typing import Final

from tidemark.model.errors import ErrorCode

from broker.core.groups.kinds import producer_problem
from broker.core.groups.requests import TxnOffsetCommit
from broker.shell.hosted import HostedPartition
from broker.shell.txn_verifier import TxnVerifier

_RETRIED: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
"""Told instead of what producers of records are told: clients repeat the commit."""


async def refusal_of_offsets(
    verifier: TxnVerifier | None, hosted: HostedPartition, commit: TxnOffsetCommit
) -> ErrorCode:
    """NONE: the partition is part of the producer's open transaction. What follows must be decided
    before anything else runs: a marker may come in between.
    """
    problem = producer_problem(commit)
    if problem is not ErrorCode.NONE:
        return problem
    producer_id, producer_epoch = commit.producer_id, commit.producer_epoch
    partition = hosted.partition
    producers = partition.producers
    if not producers.is_open(producer_id, producer_epoch) and verifier is not None:
        guard = partition.verifications.ask(producer_id, producer_epoch)
        refused = await verifier.ask(
            commit.transactional_id,
            producer_id,
            producer_epoch,
            hosted.topic_partition,
            transactions_v2=commit.transactions_v2,
            abortable_known=commit.abortable_known,
        )
        if refused is not None:
            later = refused.error_code is ErrorCode.NOT_ENOUGH_REPLICAS
            return _RETRIED if later else refused.error_code
        if not partition.verifications.answer(producer_id, guard):
            return _RETRIED
    return producers.check_offsets(producer_id, producer_epoch)
