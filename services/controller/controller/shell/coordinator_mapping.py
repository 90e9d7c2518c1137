"""Wire to inputs and replies to wire, for requests of coordinator replicas."""

from collections.abc import Callable

from tidemark.model.ids import BrokerEpoch, BrokerId
from tidemark.model.metadata import CoordinatorImage
from tidemark.runtime.metadata_wire import write_position
from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.effects import CoordinatorRegistered, Reply, ShardAcquired
from controller.core.inputs import AcquireShard, AllocateProducerIds, CoordinatorRef, RequestHeader


def read_coordinator(request: pb.RegisterCoordinatorRequest) -> CoordinatorImage:
    """The coordinator as it describes itself, without an epoch."""
    return CoordinatorImage(
        request.kind, request.coordinator_id, request.incarnation_id, request.grpc_endpoint
    )


def read_cluster_id(request: pb.RegisterCoordinatorRequest) -> str:
    """Id of the cluster that the coordinator belongs to; empty: any."""
    return request.cluster_id


def read_acquirer(request: pb.AcquireShardRequest) -> CoordinatorRef:
    """The coordinator that acquires the shard."""
    return CoordinatorRef(request.kind, request.coordinator_id, request.incarnation_id)


def read_acquisition(request: pb.AcquireShardRequest) -> Callable[[RequestHeader], AcquireShard]:
    """A shard whose owner needs a new owner epoch."""
    coordinator, shard = read_acquirer(request), request.shard
    return lambda header: AcquireShard(header, coordinator, shard)


def read_allocation(
    request: pb.AllocateProducerIdsRequest,
) -> Callable[[RequestHeader], AllocateProducerIds]:
    """A block of producer ids for a broker or a coordinator."""
    coordinator = read_asker(request)
    broker_id, broker_epoch = BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch)
    return lambda header: AllocateProducerIds(header, broker_id, broker_epoch, coordinator)


def read_asker(request: pb.AllocateProducerIdsRequest) -> CoordinatorRef | None:
    """The coordinator that sent the request; None: a broker did."""
    if not request.coordinator_kind:
        return None
    return CoordinatorRef(request.coordinator_kind, request.coordinator_id, request.incarnation_id)


def write_coordinator_registered(reply: Reply, hint: str) -> pb.RegisterCoordinatorResponse:
    """Response of RegisterCoordinator."""
    registered = reply.result if isinstance(reply.result, CoordinatorRegistered) else None
    return pb.RegisterCoordinatorResponse(
        error_code=reply.error,
        error_message=reply.message,
        controller_hint=hint,
        coordinator_epoch=-1 if registered is None else registered.coordinator_epoch,
        cluster_id="" if registered is None else registered.cluster_id,
    )


def write_shard_acquired(reply: Reply, hint: str) -> pb.AcquireShardResponse:
    """Response of AcquireShard."""
    acquired = reply.result if isinstance(reply.result, ShardAcquired) else None
    return pb.AcquireShardResponse(
        error_code=reply.error,
        error_message=reply.message,
        controller_hint=hint,
        owner_epoch=-1 if acquired is None else acquired.owner_epoch,
        position=write_position(reply.position),
    )
