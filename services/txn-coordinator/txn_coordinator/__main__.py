"""Build the object graph of one txn-coordinator replica, and run it."""

import asyncio
import logging
import sys

from tidemark.model.metadata import TXN
from tidemark.runtime.clock import Clock
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.coordinator_session import CoordinatorSession
from tidemark.runtime.event_loop import new_event_loop
from tidemark.runtime.metrics import Metrics
from tidemark.runtime.ops_http import OpsServer
from tidemark.runtime.server import GrpcServer
from tidemark.runtime.service import run_process
from tidemark.runtime.telemetry import fields
from tidemark.runtime.watchdog import Watchdog
from tidemark.runtime.zk_session import ZkSession

from txn_coordinator.config import SERVICE, TxnCoordinatorConfig
from txn_coordinator.shell.node import TxnCoordinatorNode
from txn_coordinator.shell.server import make_server

log = logging.getLogger(__name__)


async def serve(config: TxnCoordinatorConfig, stop: asyncio.Event) -> None:
    """Run one replica until ``stop`` is set; then answer the requests under way, and stop."""
    metrics = Metrics(SERVICE)
    node = TxnCoordinatorNode(config, Clock(), metrics)
    zookeeper = ZkSession(
        config.zookeeper_connect, session_timeout_ms=config.zookeeper_session_timeout_ms
    )
    controller = ControllerClient(zookeeper)
    ops = OpsServer(config.ops_listen, metrics.registry, ready=node.problem)
    watchdog = Watchdog(metrics, limit_ms=config.event_loop_stall_ms)
    async with watchdog, ops, make_server(config.grpc_listen, node) as grpc_server:
        if not await _started(zookeeper, config, stop):
            return
        session = CoordinatorSession(
            zookeeper,
            controller,
            kind=TXN,
            coordinator_id=config.coordinator_id,
            grpc_endpoint=config.grpc_advertised or str(grpc_server.address),
        )
        try:
            await _serve_until(stop, node, session, grpc_server)
        finally:
            await controller.close()
            await zookeeper.stop()


async def _started(zookeeper: ZkSession, config: TxnCoordinatorConfig, stop: asyncio.Event) -> bool:
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
    stop: asyncio.Event, node: TxnCoordinatorNode, session: CoordinatorSession, grpc: GrpcServer
) -> None:
    """Run the node. gRPC health is up from readiness to the end."""
    async with asyncio.TaskGroup() as tasks:
        ready = tasks.create_task(_say_ready(node, grpc), name="grpc-health")
        try:
            await node.run(session, stop)
        finally:
            ready.cancel()
    await grpc.set_serving(serving=False)


async def _say_ready(node: TxnCoordinatorNode, grpc: GrpcServer) -> None:
    await node.wait_ready()
    await grpc.set_serving(serving=True)


def main() -> None:
    """Entry point of ``tidemark-txn-coordinator`` and ``python -m txn_coordinator``."""
    sys.exit(run_process(serve, TxnCoordinatorConfig, service=SERVICE, loop_factory=new_event_loop))


if __name__ == "__main__":
    main()
