"""Wire to inputs and replies to wire, for requests that concern leaders and replicas."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from tidemark.model.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, TopicId
from tidemark.model.metadata import BrokerImage, InternalTopic
from tidemark.runtime.metadata_wire import read_broker, write_partition, write_position
from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.effects import (
    AlteredPartition,
    AlteredPartitions,
    PartitionResult,
    PartitionResults,
    Reply,
    ReportedReplicas,
    ShutdownProgress,
)
from controller.core.inputs import (
    AlterPartitions,
    AlterReassignments,
    ControlledShutdown,
    ElectLeaders,
    HeldLogs,
    IsrChange,
    IsrMember,
    LogKey,
    Move,
    PartitionRef,
    RegisterBroker,
    RequestHeader,
    UnregisterBroker,
    UnsoundReplica,
)
from controller.core.liveness import LiveListing

PREFERRED, UNCLEAN = 0, 1
"""Kafka's election types."""


class FromBroker(Protocol):
    """Request of a broker about itself."""

    broker_id: int
    broker_epoch: int


def read_broker_ref(request: FromBroker) -> tuple[BrokerId, BrokerEpoch]:
    """Number and epoch of the broker."""
    return BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch)


def read_isr_proposals(
    request: pb.AlterPartitionsRequest,
) -> Callable[[RequestHeader], AlterPartitions]:
    """ISRs that a leader proposes."""
    broker_id, broker_epoch = read_broker_ref(request)
    changes = read_isr_changes(request)
    return lambda header: AlterPartitions(header, broker_id, broker_epoch, changes)


def read_shutdown(
    request: pb.ControlledShutdownRequest,
) -> Callable[[RequestHeader], ControlledShutdown]:
    """A broker that is about to stop."""
    broker_id, broker_epoch = read_broker_ref(request)
    return lambda header: ControlledShutdown(header, broker_id, broker_epoch)


def read_elections(
    request: pb.ElectLeadersRequest,
) -> Callable[[RequestHeader], ElectLeaders] | None:
    """Elections to hold; None when their type is unknown."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        return None
    preferred, partitions = request.election_type == PREFERRED, read_election(request)
    return lambda header: ElectLeaders(header, preferred, partitions)


def read_reassignments(
    request: pb.AlterReassignmentsRequest,
) -> Callable[[RequestHeader], AlterReassignments]:
    """Moves of replicas to begin, replace or cancel."""
    moves, may_change_factor = read_moves(request), request.allow_replication_factor_change
    return lambda header: AlterReassignments(header, moves, may_change_factor)


def read_reasons(request: pb.ReportReplicasRequest) -> list[str]:
    """Distinct reasons of a report, sorted."""
    return sorted({one.reason for one in request.replicas})


def read_isr_changes(request: pb.AlterPartitionsRequest) -> tuple[IsrChange, ...]:
    """ISRs that a leader proposes, by partition."""
    return tuple(
        IsrChange(
            TopicId(item.topic_id),
            item.partition,
            LeaderEpoch(item.leader_epoch),
            PartitionEpoch(item.partition_epoch),
            tuple(
                IsrMember(BrokerId(member.broker_id), BrokerEpoch(member.broker_epoch))
                for member in item.new_isr
            ),
        )
        for item in request.partitions
    )


def read_held(held: pb.HeldLogs) -> HeldLogs:
    """Logs in the directories of a broker."""

    def keys(kind: str) -> frozenset[LogKey]:
        return frozenset(
            (TopicId(topic.topic_id), number)
            for topic in held.topics
            for number in getattr(topic, kind)
        )

    missing = frozenset((one.topic, number) for one in held.missing for number in one.partitions)
    directory_of = {
        (TopicId(topic.topic_id), number): topic.log_dir_id
        for topic in held.topics
        if topic.log_dir_id
        for number in (*topic.sound, *topic.damaged, *topic.lost)
    }
    return HeldLogs(keys("sound"), keys("damaged"), keys("lost"), missing, directory_of)


def read_unregistration(
    request: pb.UnregisterBrokerRequest, listing: LiveListing
) -> Callable[[RequestHeader], UnregisterBroker]:
    """A broker to forget, and the brokers that were seen alive."""
    broker_id = BrokerId(request.broker_id)
    return lambda header: UnregisterBroker(header, broker_id, listing)


def read_registering(request: pb.RegisterBrokerRequest) -> BrokerImage:
    """The broker as it describes itself."""
    return read_broker(request.broker)


def read_registration(
    request: pb.RegisterBrokerRequest,
    broker: BrokerImage,
    broker_epoch: BrokerEpoch,
    listing: LiveListing,
) -> Callable[[RequestHeader], RegisterBroker]:
    """A broker that was seen alive, with the epoch of its live znode."""
    entitled = replace(
        broker,
        broker_epoch=broker_epoch,
        fenced=False,
        shutting_down=False,
        lease_ms=request.lease_ms,
        internal_topics=tuple(
            InternalTopic(one.name, one.replication_factor, one.min_insync_replicas)
            for one in request.internal_topics
        ),
        boot_id=request.boot_id or broker.boot_id,
        log_dir_ids=tuple(request.log_dir_ids) or broker.log_dir_ids,
    )
    previous_epoch = BrokerEpoch(request.previous_broker_epoch)
    held = read_held(request.held) if request.HasField("held") else None
    cluster_id, clean_stop = request.cluster_id, request.clean_stop
    return lambda header: RegisterBroker(
        header,
        entitled,
        cluster_id,
        listing,
        clean_stop=clean_stop,
        previous_broker_epoch=previous_epoch,
        held=held,
    )


def read_unsound(request: pb.ReportReplicasRequest) -> tuple[UnsoundReplica, ...]:
    """Replicas whose disk failed or lost bytes."""
    return tuple(
        UnsoundReplica(TopicId(item.topic_id), item.partition, item.leader_epoch, item.offline)
        for item in request.replicas
    )


def read_election(request: pb.ElectLeadersRequest) -> tuple[PartitionRef, ...] | None:
    """Partitions of the elections; None: all."""
    if request.all_partitions:
        return None
    return tuple(PartitionRef(item.topic, item.partition) for item in request.partitions)


def read_moves(request: pb.AlterReassignmentsRequest) -> tuple[Move, ...]:
    """Targets of moves. ``replicas`` None: the move under way is cancelled."""
    return tuple(
        Move(
            item.topic,
            item.partition,
            None if item.cancel else tuple(map(BrokerId, item.replicas)),
        )
        for item in request.partitions
    )


def write_altered_partitions(reply: Reply, hint: str) -> pb.AlterPartitionsResponse:
    """Response of AlterPartitions."""
    rows = reply.result.partitions if isinstance(reply.result, AlteredPartitions) else ()
    return pb.AlterPartitionsResponse(
        error_code=reply.error,
        error_message=reply.message,
        controller_hint=hint,
        partitions=map(_altered, rows),
        position=write_position(reply.position),
    )


def _altered(row: AlteredPartition) -> pb.AlterPartitionsResponse.Partition:
    return pb.AlterPartitionsResponse.Partition(
        topic_id=row.topic_id,
        partition=row.partition,
        error_code=row.error,
        state=None if row.state is None else write_partition(row.state),
    )


def write_reported(reply: Reply, hint: str) -> pb.ReportReplicasResponse:
    """Response of ReportReplicas."""
    rows = reply.result.replicas if isinstance(reply.result, ReportedReplicas) else ()
    return pb.ReportReplicasResponse(
        error_code=reply.error,
        error_message=reply.message,
        controller_hint=hint,
        replicas=[
            pb.ReportReplicasResponse.Replica(
                topic_id=row.topic_id, partition=row.partition, error_code=row.error
            )
            for row in rows
        ],
        position=write_position(reply.position),
    )


def _rows(reply: Reply) -> list[pb.PartitionResult]:
    rows = reply.result.partitions if isinstance(reply.result, PartitionResults) else ()
    return list(map(_row, rows))


def _row(row: PartitionResult) -> pb.PartitionResult:
    return pb.PartitionResult(
        topic=row.topic,
        partition=row.partition,
        error_code=row.error,
        error_message=row.message,
    )


def write_elected_leaders(reply: Reply, hint: str) -> pb.ElectLeadersResponse:
    """Response of ElectLeaders."""
    return pb.ElectLeadersResponse(
        error_code=reply.error,
        controller_hint=hint,
        position=write_position(reply.position),
        partitions=_rows(reply),
    )


def write_altered_reassignments(reply: Reply, hint: str) -> pb.AlterReassignmentsResponse:
    """Response of AlterReassignments."""
    return pb.AlterReassignmentsResponse(
        error_code=reply.error,
        controller_hint=hint,
        position=write_position(reply.position),
        partitions=_rows(reply),
    )


def write_shutdown_progress(reply: Reply, hint: str) -> pb.ControlledShutdownResponse:
    """Response of ControlledShutdown; -1 partitions if they were not counted."""
    progress = reply.result if isinstance(reply.result, ShutdownProgress) else ShutdownProgress(-1)
    return pb.ControlledShutdownResponse(
        error_code=reply.error,
        error_message=reply.message,
        controller_hint=hint,
        position=write_position(reply.position),
        partitions_led=progress.partitions_led,
    )
