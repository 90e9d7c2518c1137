"""Build the object graph of one controller replica, and run it."""

import asyncio
import sys

from tidemark.runtime.clock import Clock
from tidemark.runtime.metrics import Metrics
from tidemark.runtime.ops_http import HttpServer, OpsServer
from tidemark.runtime.server import make_secured_server
from tidemark.runtime.service import run_process
from tidemark.runtime.tls import ServerTls
from tidemark.runtime.watchdog import Watchdog
from tidemark.runtime.zk_metrics import measure_session
from tidemark.runtime.zk_session import ZkSession
from tidemark.runtime.zk_start import start_session

from controller.admin.gate_metrics import GateMetrics
from controller.admin.initial_users import initial_users
from controller.admin.lost_nodes import duties
from controller.admin.service import AdminService
from controller.config import SERVICE, ControllerConfig
from controller.rest.application import make_application
from controller.shell.metrics import measure
from controller.shell.node import ControllerNode
from controller.shell.server import make_server


async def serve(config: ControllerConfig, stop: asyncio.Event) -> None:
    """Run one replica until ``stop`` is set; then resign, and stop."""
    session = ZkSession(
        config.zookeeper_connect,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        access=config.zookeeper_access(),
    )
    clock = Clock()
    node = ControllerNode(config, session, clock)
    metrics = Metrics(SERVICE)
    measure(node, metrics)
    measure_session(session, metrics)
    work = duties(config, node, clock, metrics) | initial_users(config.initial_users_file, node)
    work |= node.audit.duties(lambda: admin.shared.image(), metrics)
    admin = AdminService(config, node, session, clock, work, GateMetrics(metrics))
    rest = HttpServer(
        make_application(admin, config, node, metrics),
        config.rest_listen,
        key="rest.listen",
        tls=None if config.rest_tls is None else ServerTls(config.rest_tls),
    )
    ops = OpsServer(config.ops_listen, metrics.registry, ready=node.problem)
    watchdog = Watchdog(metrics, limit_ms=config.event_loop_stall_ms)
    server = make_server(config.grpc_listen, node, make_secured_server(config, takes_clients=False))
    async with watchdog, ops, rest, server as grpc_server:
        if not await start_session(session, config.zookeeper_connect_timeout_ms, stop):
            return
        await grpc_server.set_serving(serving=True)
        node.election.grpc_endpoint = config.grpc_advertised or str(grpc_server.address)
        try:
            async with admin:
                await node.run(stop)
        finally:
            await session.stop()


def main() -> None:
    """Run the process, and exit with its code."""
    sys.exit(run_process(serve, ControllerConfig, service=SERVICE))
