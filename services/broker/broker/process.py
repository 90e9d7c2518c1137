"""The broker process: read the configuration, build the objects, serve until stopped."""

import asyncio
import contextlib
import socket
import sys

from tidemark.model.metadata import INTERNAL_LISTENER
from tidemark.runtime import supervised
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.event_loop import collect_young_garbage_only, new_event_loop
from tidemark.runtime.metrics import Metrics
from tidemark.runtime.ops_http import OpsServer
from tidemark.runtime.os_disk import raise_descriptor_limit
from tidemark.runtime.server import channel_tls, make_secured_server
from tidemark.runtime.service import run_process
from tidemark.runtime.tls import TlsSettings, tls_settings
from tidemark.runtime.tracing import make_traces
from tidemark.runtime.watchdog import Watchdog
from tidemark.runtime.zk_metrics import measure_session
from tidemark.runtime.zk_session import ZkSession

from broker.config import BrokerConfig
from broker.shell.broker_service import BrokerService
from broker.shell.metrics.collector import BrokerCollector
from broker.shell.metrics.recovery import RecoveryCollector
from broker.shell.recovering import Health, recovered
from broker.shell.request_spans import SpannedTimes
from broker.shell.seams import machine_seams
from broker.shell.start import OpenedDirectories
from broker.shell.upkeep.descriptor_budget import divide, within

SERVICE = "broker"


async def serve(config: BrokerConfig, stop: asyncio.Event) -> None:
    """Run one broker: disks, listeners, membership, service; on ``stop`` drain and close."""
    budget = divide(config, raise_descriptor_limit())
    config = within(config, budget)
    collect_young_garbage_only()
    if not config.node:  # clients see it, and plan replica placement by it
        config = config.model_copy(update={"node": socket.gethostname()})
    metrics = Metrics(SERVICE)
    health = Health(config)
    metrics.registry.register(RecoveryCollector(health.progress))
    watchdog = Watchdog(metrics, limit_ms=config.event_loop_stall_ms)
    # Probes and metrics are served before the logs are recovered, which may take long.
    async with contextlib.AsyncExitStack() as after, watchdog, _ops(config, health, metrics):
        directories = await recovered(config, budget.segments_a_directory, health.progress)
        after.callback(directories.unlock)
        service = _make_service(config, directories, metrics, after)
        health.server = service.server
        await service.run(stop)


def _make_service(
    config: BrokerConfig,
    directories: OpenedDirectories,
    metrics: Metrics,
    after: contextlib.AsyncExitStack,
) -> BrokerService:
    """Build the object graph. ``after`` closes it, in the end."""
    traces = make_traces(SERVICE, file=config.tracing_file) if config.tracing_enable else None
    if traces is not None:
        after.push_async_callback(asyncio.to_thread, traces.close)
    session = ZkSession(
        config.zookeeper_connect,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        access=config.zookeeper_access(),
    )
    tls = channel_tls(config)
    seams = machine_seams(
        session,
        ControllerClient(session, tls=tls),
        tls=tls,
        make_server=make_secured_server(config, takes_clients=True),
        leader_tls=_leader_tls(config),
    )
    kept = {"slow_ms": config.slow_request_ms, "kept_max": config.slow_requests_max}
    times = None if traces is None else SpannedTimes(seams.clock, traces.tracer, **kept)
    service = BrokerService(config, directories, seams, times)
    after.push_async_callback(service.close)
    supervised.announce(service.znodes)
    measure_session(session, metrics)
    metrics.registry.register(BrokerCollector(service.server.measured()))
    return service


def _leader_tls(config: BrokerConfig) -> TlsSettings | None:
    """Return the files of the listener INTERNAL, for the connections to those of others."""
    files = config.security_of(INTERNAL_LISTENER)
    return tls_settings(files) if files.ssl_certificate_location else None


def _ops(config: BrokerConfig, health: Health, metrics: Metrics) -> OpsServer:
    return OpsServer(
        config.ops_listen,
        metrics.registry,
        ready=health.not_ready,
        started=health.not_started,
        refresh=health.refresh,
    )


def main() -> None:
    """Run the process, and exit with its code."""
    sys.exit(run_process(serve, BrokerConfig, service=SERVICE, loop_factory=new_event_loop))
