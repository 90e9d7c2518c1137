"""BrokerService: the whole life of one broker: BrokerServer with its membership, lease, gRPC
services and controlled shutdown.

``__main__`` and the simulator build this class and differ in their ``Seams`` alone.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

from tidemark.model.metadata import Endpoint
from tidemark.runtime import zk_paths
from tidemark.runtime.service import ServiceError
from tidemark.runtime.service_config import HostPort
from tidemark.runtime.witness import ProcessZnodes
from tidemark.runtime.zk_session import ZkUnavailableError
from tidemark.runtime.zk_start import start_session

from broker.config import BrokerConfig
from broker.listener_address import Listener
from broker.shell.broker_server import BrokerServer, listener_tls
from broker.shell.cluster.lease_keeper import LeaseKeeper
from broker.shell.cluster.membership import Announcement, Membership
from broker.shell.cluster.shutdown import HandOver
from broker.shell.request_times import RequestTimes
from broker.shell.rpc.services import CLIENT_SERVICE_NAMES, SERVICE_NAMES, GrpcServices
from broker.shell.seams import Seams, ServesClients, ServesGrpc
from broker.shell.start import OpenedDirectories

INCARNATION_BYTES: Final = 16
HAND_OVER_SHARE: Final = 0.4
"""Share of the shutdown deadline that handing over may take; the rest is for the drain."""


class BrokerService:
    """One broker of a cluster. ``close`` follows ``run``, however that ended."""

    def __init__(
        self,
        config: BrokerConfig,
        directories: OpenedDirectories,
        seams: Seams,
        times: RequestTimes | None = None,
    ) -> None:
        """``times``: of requests, where they become spans too."""
        self._directories = directories
        self._seams = seams
        self._session = seams.session
        self.incarnation_id = seams.dice.randbytes(INCARNATION_BYTES)
        self.keeper = LeaseKeeper(
            seams.session, seams.clock, lease_ms=config.lease_ms, on_gone=self._rejoin
        )
        self.server = BrokerServer(
            config,
            directories.managers,
            seams,
            directories.failed,
            has_lease=self.keeper.holds,
            times=times,
        )
        self.membership = Membership(
            self.server.facts,
            self.server.cluster.registration,
            seams.session,
            seams.controller,
            metadata=self.server.metadata,
            log_managers=self.server.partitions.disks.log_managers,
            incarnation_id=self.incarnation_id,
            cluster_id=directories.cluster_id,
            on_joined=directories.stamp,
            on_live=self.keeper.made,
        )

    @property
    def znodes(self) -> ProcessZnodes:
        """Znodes that this process leaves behind if it ends without closing its session."""
        live = zk_paths.LiveBroker(self.server.facts.broker_id, self.incarnation_id)
        ended = zk_paths.encode({}).decode()
        session = self._session
        return ProcessZnodes(
            session.connect, live.path, live.ended_path, ended, access=session.access
        )

    def _rejoin(self) -> None:
        self.membership.rejoin()

    async def run(self, stop: asyncio.Event) -> None:
        """Run listeners, membership and services; on ``stop`` hand over and drain. Raises
        ServiceError.
        """
        async with contextlib.AsyncExitStack() as open_things:
            ports = await self.server.open()
            services = self.server.grpc_services()
            grpc = await open_things.enter_async_context(self._grpc(services))
            servers: list[ServesGrpc] = [grpc]
            if (listener := self.server.config.grpc_listener()) is not None:
                made = self._grpc_of_clients(services, listener)
                of_clients = await open_things.enter_async_context(made)
                servers.append(of_clients)
                ports[listener.name] = of_clients.address.port
            endpoints = self.server.config.endpoints(ports)
            if not await self._start_session(stop):
                return
            open_things.push_async_callback(self._session.stop)
            open_things.push_async_callback(self._seams.controller.close)
            open_things.callback(services.markers.drained.set)
            await self._serve_until(stop, self._announcement(endpoints, grpc), servers)

    async def close(self) -> None:
        """End workers and threads, and close the logs."""
        await self.server.close()

    def _announcement(self, endpoints: tuple[Endpoint, ...], grpc: ServesGrpc) -> Announcement:
        config, directories = self.server.config, self._directories
        return Announcement(
            endpoints=endpoints,
            grpc_endpoint=config.grpc_advertised or str(grpc.address),
            rack=config.rack,
            machine=config.node,
            boot_id=directories.boot_id,
            log_dir_ids=tuple(directories.directory_ids),
            clean_stop=directories.clean_stop,
            previous_broker_epoch=directories.previous_broker_epoch,
        )

    async def _serve_until(
        self, stop: asyncio.Event, announcement: Announcement, servers: Sequence[ServesGrpc]
    ) -> None:
        """Serve until ``stop``, hand over and drain. Membership ends after the drain: until then
        clients are answered, and what this broker leads is handed over.
        """
        async with asyncio.TaskGroup() as tasks:
            drain = asyncio.Event()
            joined = tasks.create_task(self.membership.run(announcement), name="membership")
            serving = tasks.create_task(self.server.run(drain), name="serve")
            others = [
                tasks.create_task(self.keeper.run(), name="lease"),
                tasks.create_task(self._show_ready(servers), name="grpc-health"),
                tasks.create_task(self._drain_after(stop, drain), name="controlled-shutdown"),
            ]
            await asyncio.wait((joined, serving), return_when=asyncio.FIRST_COMPLETED)
            for task in (joined, *others):
                task.cancel()

    async def _drain_after(self, stop: asyncio.Event, drain: asyncio.Event) -> None:
        """Hand over on ``stop``, then set ``drain``."""
        await stop.wait()
        config = self.server.config
        if config.controlled_shutdown_enable:
            share_ms = int(config.shutdown_deadline_ms * HAND_OVER_SHARE)
            cluster = self.server.cluster
            hand_over = HandOver(
                cluster.registration,
                cluster.controller,
                self.server.facts.clock,
                metadata=self.server.metadata,
                live=cluster.live,
            )
            await hand_over.run(deadline_ms=min(config.controlled_shutdown_deadline_ms, share_ms))
        drain.set()

    async def _show_ready(self, servers: Sequence[ServesGrpc]) -> None:
        await self.server.wait_ready()
        for one in servers:
            await one.set_serving(serving=True)

    async def _start_session(self, stop: asyncio.Event) -> bool:
        limit_ms = self.server.config.zookeeper_connect_timeout_ms
        try:
            return await start_session(self._session, limit_ms, stop)
        except ZkUnavailableError as failure:
            raise ServiceError(str(failure)) from failure

    def _grpc(self, services: GrpcServices) -> AbstractAsyncContextManager[ServesGrpc]:
        listen = self.server.config.grpc_listen
        note = self.server.logins.note_login
        return self._seams.make_grpc_server(
            listen, SERVICE_NAMES, services.register, note_login=note
        )

    def _grpc_of_clients(
        self, services: GrpcServices, listener: Listener
    ) -> AbstractAsyncContextManager[ServesClients]:
        """Make the server of the listener GRPC. Raises TlsError."""
        return self._seams.make_client_server(
            str(HostPort(listener.host, listener.port)),
            CLIENT_SERVICE_NAMES,
            services.register_for_clients,
            tls=listener_tls(self.server.config, listener),
            peers=self.server.logins.grpc_peers(listener),
        )
