"""Process of one coordinator replica: ZooKeeper's session, its node, and its gRPC server."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tidemark.runtime import supervised
from tidemark.runtime.clock import Clock
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.coordinator.config import CoordinatorConfig
from tidemark.runtime.coordinator.node import CoordinatorNode
from tidemark.runtime.coordinator_session import CoordinatorSession
from tidemark.runtime.metrics import Metrics
from tidemark.runtime.ops_http import OpsServer
from tidemark.runtime.server import GrpcServer
from tidemark.runtime.telemetry import fields
from tidemark.runtime.watchdog import Watchdog
from tidemark.runtime.witness import ProcessZnodes
from tidemark.runtime.zk_metrics import measure_session
from tidemark.runtime.zk_session import ZkSession

log = logging.getLogger(__name__)

ConfigT = TypeVar("ConfigT", bound=CoordinatorConfig)
NodeT = TypeVar("NodeT", bound=CoordinatorNode[Any])


@dataclass(frozen=True, slots=True)
class CoordinatorParts(Generic[ConfigT, NodeT]):
    """Parts of one service. ``kind`` is that of its replicas in the metadata."""

    service: str
    kind: str
    make_node: Callable[[ConfigT, Clock, Metrics], NodeT]
    make_server: Callable[[str, NodeT], GrpcServer]


async def serve_coordinator(
    config: ConfigT, stop: asyncio.Event, parts: CoordinatorParts[ConfigT, NodeT]
) -> None:
    """Run one replica until ``stop`` is set; then answer the requests under way, and stop."""
    metrics = Metrics(parts.service)
    node = parts.make_node(config, Clock(), metrics)
    zookeeper = ZkSession(
        config.zookeeper_connect, session_timeout_ms=config.zookeeper_session_timeout_ms
    )
    measure_session(zookeeper, metrics)
    controller = ControllerClient(zookeeper)
    ops = OpsServer(config.ops_listen, metrics.registry, ready=node.problem)
    watchdog = Watchdog(metrics, limit_ms=config.event_loop_stall_ms)
    async with watchdog, ops, parts.make_server(config.grpc_listen, node) as grpc_server:
        if not await _started(zookeeper, config, stop):
            return
        session = CoordinatorSession(
            zookeeper,
            controller,
            kind=parts.kind,
            coordinator_id=config.coordinator_id,
            grpc_endpoint=config.grpc_advertised or str(grpc_server.address),
        )
        supervised.announce(ProcessZnodes(zookeeper.connect, session.live_path))
        try:
            await _serve_until(stop, node, session, grpc_server)
        finally:
            await controller.close()
            await zookeeper.stop()


async def _started(zookeeper: ZkSession, config: CoordinatorConfig, stop: asyncio.Event) -> bool:
    """Wait for ZooKeeper. False if ``stop`` is set first. Raises ZkUnavailableError."""
    log.info("waiting for ZooKeeper", extra=fields(connect=zookeeper.connect))
    async with asyncio.TaskGroup() as tasks:
        starting = tasks.create_task(
            zookeeper.start(config.zookeeper_connect_timeout_ms / 1_000), name="zookeeper"
        )
        stopping = tasks.create_task(stop.wait(), name="stop")
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()
        stopping.cancel()
    if starting.cancelled():
        await zookeeper.stop()
        return False
    return True


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
