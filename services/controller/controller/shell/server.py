"""The controller's gRPC service: each method hands over to its own file under rpc/."""

from collections.abc import AsyncIterator, Callable
from typing import Final

from tidemark.runtime.server import GrpcServer, make_grpc_server
from tidemark_wire.v1 import controller_pb2 as pb
from tidemark_wire.v1 import controller_pb2_grpc

from controller.shell.node import ControllerNode
from controller.shell.rpc import (
    acquire_shard,
    allocate_producer_ids,
    alter_configs,
    alter_partitions,
    alter_reassignments,
    controlled_shutdown,
    create_partitions,
    create_topics,
    delete_topics,
    elect_leaders,
    register_broker,
    register_coordinator,
    report_replicas,
    watch_metadata,
)
from controller.shell.rpc.call import Context

add_service: Callable[[object, object], None] = controller_pb2_grpc.add_ControllerServicer_to_server
SERVICE_NAME: Final = pb.DESCRIPTOR.services_by_name["Controller"].full_name


class ControllerService(controller_pb2_grpc.ControllerServicer):
    """The RPCs by their names on the wire."""

    def __init__(self, node: ControllerNode) -> None:
        self._node = node

    async def RegisterBroker(  # noqa: N802
        self, request: pb.RegisterBrokerRequest, context: Context
    ) -> pb.RegisterBrokerResponse:
        """See rpc/register_broker.py."""
        return await register_broker.handle(self._node, request, context)

    async def WatchMetadata(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.WatchMetadataRequest], context: Context
    ) -> None:
        """See rpc/watch_metadata.py."""
        await watch_metadata.handle(self._node, request_iterator, context)

    async def CreateTopics(  # noqa: N802
        self, request: pb.CreateTopicsRequest, context: Context
    ) -> pb.CreateTopicsResponse:
        """See rpc/create_topics.py."""
        return await create_topics.handle(self._node, request, context)

    async def DeleteTopics(  # noqa: N802
        self, request: pb.DeleteTopicsRequest, context: Context
    ) -> pb.DeleteTopicsResponse:
        """See rpc/delete_topics.py."""
        return await delete_topics.handle(self._node, request, context)

    async def CreatePartitions(  # noqa: N802
        self, request: pb.CreatePartitionsRequest, context: Context
    ) -> pb.CreatePartitionsResponse:
        """See rpc/create_partitions.py."""
        return await create_partitions.handle(self._node, request, context)

    async def AlterConfigs(  # noqa: N802
        self, request: pb.AlterConfigsRequest, context: Context
    ) -> pb.AlterConfigsResponse:
        """See rpc/alter_configs.py."""
        return await alter_configs.handle(self._node, request, context)

    async def AllocateProducerIds(  # noqa: N802
        self, request: pb.AllocateProducerIdsRequest, context: Context
    ) -> pb.AllocateProducerIdsResponse:
        """See rpc/allocate_producer_ids.py."""
        return await allocate_producer_ids.handle(self._node, request, context)

    async def AlterPartitions(  # noqa: N802
        self, request: pb.AlterPartitionsRequest, context: Context
    ) -> pb.AlterPartitionsResponse:
        """See rpc/alter_partitions.py."""
        return await alter_partitions.handle(self._node, request, context)

    async def ReportReplicas(  # noqa: N802
        self, request: pb.ReportReplicasRequest, context: Context
    ) -> pb.ReportReplicasResponse:
        """See rpc/report_replicas.py."""
        return await report_replicas.handle(self._node, request, context)

    async def ElectLeaders(  # noqa: N802
        self, request: pb.ElectLeadersRequest, context: Context
    ) -> pb.ElectLeadersResponse:
        """See rpc/elect_leaders.py."""
        return await elect_leaders.handle(self._node, request, context)

    async def AlterReassignments(  # noqa: N802
        self, request: pb.AlterReassignmentsRequest, context: Context
    ) -> pb.AlterReassignmentsResponse:
        """See rpc/alter_reassignments.py."""
        return await alter_reassignments.handle(self._node, request, context)

    async def ControlledShutdown(  # noqa: N802
        self, request: pb.ControlledShutdownRequest, context: Context
    ) -> pb.ControlledShutdownResponse:
        """See rpc/controlled_shutdown.py."""
        return await controlled_shutdown.handle(self._node, request, context)

    async def RegisterCoordinator(  # noqa: N802
        self, request: pb.RegisterCoordinatorRequest, context: Context
    ) -> pb.RegisterCoordinatorResponse:
        """See rpc/register_coordinator.py."""
        return await register_coordinator.handle(self._node, request, context)

    async def AcquireShard(  # noqa: N802
        self, request: pb.AcquireShardRequest, context: Context
    ) -> pb.AcquireShardResponse:
        """See rpc/acquire_shard.py."""
        return await acquire_shard.handle(self._node, request, context)


def make_server(listen: str, node: ControllerNode) -> GrpcServer:
    """The gRPC server of one replica; enter it to listen."""
    service = ControllerService(node)
    return make_grpc_server(
        listen,
        [SERVICE_NAME],
        lambda server: add_service(service, server),
    )
