"""Appends of a coordinator to the topic that holds its state, fenced by the shard's owner epoch;
and appends of audit events.
"""

from typing import Final

from tidemark.codec.control_record import OwnerRecord, build_owner
from tidemark.model.authorization import CLUSTER, Operation, Requester
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import AUDIT_LOG, CONSUMER_OFFSETS

from broker.core.partition import ACKS_ALL, Refusal
from broker.shell.facts import BrokerFacts
from broker.shell.partitions.appender import PartitionAppender
from broker.shell.partitions.hosted import AppendOutcome, HostedPartition
from broker.shell.wire_mapping import AppendCommand

_NOT_FOR_CLIENTS: Final = Refusal(
    ErrorCode.INVALID_TOPIC_EXCEPTION, "only the coordinator that owns it writes to this topic"
)
_ALL_ONLY: Final = Refusal(ErrorCode.INVALID_REQUIRED_ACKS, "a coordinator appends with acks=-1")


def append_owned(
    facts: BrokerFacts,
    appender: PartitionAppender,
    hosted: HostedPartition,
    command: AppendCommand,
    requester: Requester,
) -> AppendOutcome:
    """Append batches of the shard's owner, or the record by which it becomes the owner."""
    is_audit = hosted.topic_partition.topic == AUDIT_LOG
    if is_audit and command.owner_epoch <= 0:
        return _append_audit(facts, appender, hosted, command, requester)
    if is_audit or command.owner_epoch <= 0 or hosted.topic_partition.topic == CONSUMER_OFFSETS:
        return appender.refused(hosted, _NOT_FOR_CLIENTS)
    if not facts.authorizer.authorize(requester, Operation.CLUSTER_ACTION, CLUSTER):
        return appender.refused(hosted, _NOT_FOR_CLIENTS)
    if command.acks != ACKS_ALL:
        return appender.refused(hosted, _ALL_ONLY)
    if command.takes_over:
        owner = OwnerRecord(command.owner_epoch)
        batch = build_owner(owner, timestamp=facts.clock.wall_ms())
        return appender.append_internal(
            hosted, batch, control=owner, leader_epoch_expected=command.leader_epoch
        )
    refused = hosted.partition.admission.owner_refused(command.owner_epoch)
    if refused is not None:
        return appender.refused(hosted, refused)
    return _append(facts, appender, hosted, command)


def _append_audit(
    facts: BrokerFacts,
    appender: PartitionAppender,
    hosted: HostedPartition,
    command: AppendCommand,
    requester: Requester,
) -> AppendOutcome:
    """Append events of a process of the cluster."""
    if not facts.authorizer.authorize(requester, Operation.CLUSTER_ACTION, CLUSTER):
        return appender.refused(hosted, _NOT_FOR_CLIENTS)
    return _append(facts, appender, hosted, command)


def _append(
    facts: BrokerFacts,
    appender: PartitionAppender,
    hosted: HostedPartition,
    command: AppendCommand,
) -> AppendOutcome:
    return appender.append(
        hosted,
        memoryview(bytearray(command.batches)),
        acks=ACKS_ALL,
        leader_epoch_expected=command.leader_epoch,
        now_ms=facts.clock.wall_ms(),
    )
