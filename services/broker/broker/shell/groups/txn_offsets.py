"""Checks of transactional offset commits, before the group's shard is asked (KIP-890, as for
produced batches).

A shard appends to its own partition without the checks of a producer's request. A shard whose
append is refused is dropped and loaded again, so that a commit that would be refused must not get
that far.
"""

from tidemark.model.errors import ErrorCode

from broker.core.groups.requests import TxnOffsetCommit
from broker.core.txn_checks import Ask, OffsetsCheck
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.transactions.txn_verifier import TxnVerifier


async def verify_txn_offset_commit(
    verifier: TxnVerifier | None, hosted: HostedPartition, commit: TxnOffsetCommit
) -> ErrorCode:
    """Return NONE if the partition is part of the producer's open transaction. The caller decides
    on it before anything else runs: a marker may come in between.
    """
    check = OffsetsCheck(hosted.partition, commit)
    step = check.begin(can_ask=verifier is not None)
    if not isinstance(step, Ask):
        return step
    assert verifier is not None, "only a broker that verifies asks"
    refused = await verifier.ask(
        commit.transactional_id,
        commit.producer_id,
        commit.producer_epoch,
        hosted.topic_partition,
        hosted.topic_id,
        transactions_v2=commit.transactions_v2,
        abortable_known=commit.abortable_known,
    )
    return check.answered(step, refused)
