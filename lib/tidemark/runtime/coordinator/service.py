"""Process of one coordinator replica: ZooKeeper's session, its node, and its gRPC server."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from tidemark.runtime import supervised
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.clock import Clock
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.coordinator.config import CoordinatorConfig
from tidemark.runtime.coordinator.node import CoordinatorNode
from tidemark.runtime.coordinator_session import CoordinatorSession
from tidemark.runtime.metrics import Metrics
from tidemark.runtime.ops_http import OpsServer
from tidemark.runtime.server import (
    GrpcServer,
    MakeGrpcServer,
    channel_tls,
    make_secured_server,
)
from tidemark.runtime.watchdog import Watchdog
from tidemark.runtime.witness import ProcessZnodes
from tidemark.runtime.zk_metrics import measure_session
from tidemark.runtime.zk_session import ZkSession
from tidemark.runtime.zk_start import start_session

log = logging.getLogger(__name__)

ConfigT = TypeVar("ConfigT", bound=CoordinatorConfig)
NodeT = TypeVar("NodeT", bound=CoordinatorNode[Any])
ConfigT_contra = TypeVar("ConfigT_contra", bound=CoordinatorConfig, contravariant=True)
NodeT_co = TypeVar("NodeT_co", bound=CoordinatorNode[Any], covariant=True)


class MakeNode(Protocol[ConfigT_contra, NodeT_co]):
    """The class of a service's node."""

    def __call__(
        self, config: ConfigT_contra, clock: Clock, metrics: Metrics, *, channels: ChannelPool
    ) -> NodeT_co:
        """Make a node, which closes the channels."""
        ...


@dataclass(frozen=True, slots=True)
class CoordinatorParts(Generic[ConfigT, NodeT]):
    """Parts of one service. ``kind`` is that of its replicas in the metadata."""

    service: str
    kind: str
    make_node: MakeNode[ConfigT, NodeT]
    make_server: Callable[[str, NodeT, MakeGrpcServer], GrpcServer]


async def serve_coordinator(
    config: ConfigT, stop: asyncio.Event, parts: CoordinatorParts[ConfigT, NodeT]
) -> None:
    """Run one replica until ``stop`` is set; then answer the requests under way, and stop."""
    metrics = Metrics(parts.service)
    tls = channel_tls(config)
    node = parts.make_node(config, Clock(), metrics, channels=ChannelPool(tls))
    zookeeper = ZkSession(
        config.zookeeper_connect,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        access=config.zookeeper_access(),
    )
    measure_session(zookeeper, metrics)
    controller = ControllerClient(zookeeper, tls=tls)
    ops = OpsServer(config.ops_listen, metrics.registry, ready=node.problem)
    watchdog = Watchdog(metrics, limit_ms=config.event_loop_stall_ms)
    server = parts.make_server(
        config.grpc_listen, node, make_secured_server(config, takes_clients=False)
    )
    async with watchdog, ops, server as grpc_server:
        if not await start_session(zookeeper, config.zookeeper_connect_timeout_ms, stop):
            return
        session = CoordinatorSession(
            zookeeper,
            controller,
            kind=parts.kind,
            coordinator_id=config.coordinator_id,
            grpc_endpoint=config.grpc_advertised or str(grpc_server.address),
        )
        access = zookeeper.access
        supervised.announce(ProcessZnodes(zookeeper.connect, session.live_path, access=access))
        try:
            await _serve_until(stop, node, session, grpc_server)
        finally:
            await controller.close()
            await zookeeper.stop()


async def _serve_until(
    stop: asyncio.Event,
    node: CoordinatorNode[Any],
    session: CoordinatorSession,
    grpc_server: GrpcServer,
) -> None:
    """Run the node. gRPC health is up from readiness to the end."""
    async with asyncio.TaskGroup() as tasks:
        ready = tasks.create_task(_say_ready(node, grpc_server), name="grpc-health")
        try:
            await node.run(session, stop)
        finally:
            ready.cancel()
    await grpc_server.set_serving(serving=False)


async def _say_ready(node: CoordinatorNode[Any], grpc_server: GrpcServer) -> None:
    await node.wait_ready()
    await grpc_server.set_serving(serving=True)
