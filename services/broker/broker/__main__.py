"""The broker process: read the configuration, build the object graph, serve until told to stop."""

import asyncio
import contextlib
import os
import socket
import sys
from typing import Any, NamedTuple

from prometheus_client.registry import CollectorRegistry
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.event_loop import new_event_loop
from tidemark.runtime.metrics import Metrics
from tidemark.runtime.ops_http import OpsServer
from tidemark.runtime.os_disk import kernel_boot_id, raise_descriptor_limit
from tidemark.runtime.server import GrpcServer, make_grpc_server
from tidemark.runtime.service import ServiceError, run_process
from tidemark.runtime.zk_session import ZkSession, ZkUnavailableError

from broker.config import BrokerConfig
from broker.shell.broker_server import BrokerServer
from broker.shell.lease_keeper import LeaseKeeper
from broker.shell.membership import Announcement, Membership
from broker.shell.metrics import BrokerCollector
from broker.shell.rpc import partition_store, transaction_markers, transaction_relay
from broker.shell.shutdown import hand_over
from broker.shell.start import open_directories

SERVICE = "broker"
INCARNATION_BYTES = 16
HAND_OVER_SHARE = 0.4
"""Of the shutdown deadline: how long handing over may take; the rest is for the drain."""


class _Member(NamedTuple):
    membership: Membership
    keeper: LeaseKeeper


async def serve(config: BrokerConfig, stop: asyncio.Event) -> None:
    """One broker's life: disks, listeners, membership, service; on ``stop`` drain and close
    cleanly.
    """
    raise_descriptor_limit()
    if not config.node:  # shown to clients, who plan replica placements by it
        config = config.model_copy(update={"node": socket.gethostname()})
    directories = await asyncio.to_thread(open_directories, config)
    session = ZkSession(
        config.zookeeper_connect, session_timeout_ms=config.zookeeper_session_timeout_ms
    )
    controller = ControllerClient(session)
    server = BrokerServer(config, directories.managers, controller)
    metrics = Metrics(SERVICE)
    metrics.registry.register(BrokerCollector(server.node))
    try:
        async with contextlib.AsyncExitStack() as open_things:
            await open_things.enter_async_context(_ops(config, server, metrics.registry))
            endpoints = await server.open()
            grpc = await open_things.enter_async_context(_grpc(config, server))
            await _start_session(session)
            open_things.push_async_callback(session.stop)
            open_things.push_async_callback(controller.close)
            membership = Membership(
                server.node,
                session,
                controller,
                Announcement(
                    endpoints=endpoints,
                    grpc_endpoint=config.grpc_advertised or str(grpc.address),
                    rack=config.rack,
                    machine=config.node,
                    boot_id=kernel_boot_id(),
                    log_dir_ids=directories.directory_ids,
                    clean_stop=directories.clean_stop,
                    previous_broker_epoch=directories.previous_broker_epoch,
                ),
                incarnation_id=os.urandom(INCARNATION_BYTES),
                cluster_id=directories.cluster_id,
            )
            membership.on_joined = directories.stamp
            keeper = LeaseKeeper(
                session, server.node.clock, lease_ms=config.lease_ms, on_gone=membership.rejoin
            )
            membership.on_live = keeper.made
            server.node.has_lease = keeper.holds
            await _serve_until(stop, server, _Member(membership, keeper), grpc)
    finally:
        await server.close()
        directories.unlock()


async def _serve_until(
    stop: asyncio.Event, server: BrokerServer, member: "_Member", grpc: GrpcServer
) -> None:
    """Membership ends after the drain: until then clients are still answered, and what this broker
    leads is handed over.
    """
    async with asyncio.TaskGroup() as tasks:
        drain = asyncio.Event()
        joined = tasks.create_task(member.membership.run(server.take_image), name="membership")
        serving = tasks.create_task(server.run(drain), name="serve")
        others = [
            tasks.create_task(member.keeper.run(), name="lease"),
            tasks.create_task(_say_ready(server, grpc), name="grpc-health"),
            tasks.create_task(_drain_after(stop, drain, server), name="controlled-shutdown"),
        ]
        await asyncio.wait((joined, serving), return_when=asyncio.FIRST_COMPLETED)
        for task in (joined, *others):
            task.cancel()


async def _drain_after(stop: asyncio.Event, drain: asyncio.Event, server: BrokerServer) -> None:
    """On ``stop`` hand over first."""
    await stop.wait()
    config = server.config
    if config.controlled_shutdown_enable:
        share_ms = int(config.shutdown_deadline_ms * HAND_OVER_SHARE)
        await hand_over(
            server.node, deadline_ms=min(config.controlled_shutdown_deadline_ms, share_ms)
        )
    drain.set()


async def _say_ready(server: BrokerServer, grpc: GrpcServer) -> None:
    await server.wait_ready()
    await grpc.set_serving(serving=True)


def _ops(config: BrokerConfig, server: BrokerServer, registry: CollectorRegistry) -> OpsServer:
    return OpsServer(config.ops_listen, registry, ready=server.not_ready)


def _grpc(config: BrokerConfig, server: BrokerServer) -> GrpcServer:
    in_flight_max = config.grpc_bulk_bytes_in_flight_max
    store = partition_store.PartitionStore(server.node, bytes_in_flight_max=in_flight_max)
    registrations = (
        partition_store.registration(store),
        transaction_markers.registration(transaction_markers.TransactionMarkers(server.node)),
        transaction_relay.registration(transaction_relay.TransactionRelay(server.node)),
    )
    names = [
        module.SERVICE_NAME for module in (partition_store, transaction_markers, transaction_relay)
    ]

    def register(grpc_server: Any) -> None:
        for registration in registrations:
            registration(grpc_server)

    return make_grpc_server(config.grpc_listen, names, register)


async def _start_session(session: ZkSession) -> None:
    try:
        await session.start()
    except ZkUnavailableError as failure:
        raise ServiceError(str(failure)) from failure


def main() -> None:
    """Entry point of ``tidemark-broker`` and ``python -m broker``."""
    sys.exit(run_process(serve, BrokerConfig, service=SERVICE, loop_factory=new_event_loop))


if __name__ == "__main__":
    main()
