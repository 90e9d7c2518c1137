"""Offsets of a group in a transaction (KIP-98's TxnOffsetCommit)."""

from tidemark.client.consumer.group_types import GroupMetadata, Offsets
from tidemark.client.consumer.offset_storage import wire_offsets
from tidemark.client.deadline import Deadline
from tidemark.client.errors import ClientError, error_for
from tidemark.client.wire.coordinator import Coordinator
from tidemark.client.wire.transport import ProducerIdentity
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct


async def commit_offsets(
    coordinator: Coordinator,
    deadline: Deadline,
    transactional_id: str,
    identity: ProducerIdentity,
    *,
    offsets: Offsets,
    group: GroupMetadata,
) -> None:
    """Commit offsets in the transaction of ``identity``, opening it if necessary.

    They become visible when the transaction commits. Raises ClientError.
    """
    fields = {
        "transactional_id": transactional_id,
        "group_id": group.group_id,
        "producer_id": identity.producer_id,
        "producer_epoch": identity.producer_epoch,
        "generation_id": group.member_epoch,
        "member_id": group.member_id,
        "group_instance_id": group.group_instance_id,
        "topics": wire_offsets(offsets),
    }

    def problem_of(answer: Struct) -> ClientError | None:
        codes = [each.error_code for topic in answer.topics for each in topic.partitions]
        problems = [
            error_for(
                code,
                f"committing offsets of group {group.group_id!r} in the transaction failed",
                where=coordinator.where,
            )
            for code in codes
            if code
        ]
        problems.sort(key=lambda problem: problem.retriable)
        return problems[0] if problems else None

    await coordinator.ask_until(deadline, ApiKey.TXN_OFFSET_COMMIT, lambda: fields, problem_of)
