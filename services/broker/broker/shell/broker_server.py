"""BrokerServer: the composition root of one broker, without its membership.

The constructor builds the rooms (``rooms.py``) in order of dependency and the listeners over them;
``run`` starts their tasks. Images, from the feed or from a test, are given to ``metadata``; the
first one opens the listeners.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from tidemark.model.metadata_change import Kind, MetadataChange
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.share_state_client import ShareStateClient, share_coordinators
from tidemark.runtime.tls import ServerTls, tls_settings
from tidemark.runtime.worker_pool import WorkerPool

from broker.config import BrokerConfig
from broker.listener_address import Listener
from broker.shell.audit import make_writer, note_login
from broker.shell.client_telemetry.receiver import ClientTelemetry
from broker.shell.cluster.acl_updates import follow_acls
from broker.shell.counters import BrokerCounters
from broker.shell.facts import BrokerFacts
from broker.shell.kafka.apis import make_router
from broker.shell.listener.connection import Connection
from broker.shell.listener.limits import connection_limits
from broker.shell.listener.listener import KafkaListener
from broker.shell.listener.logins import Logins
from broker.shell.metrics.collector import Measured
from broker.shell.request_times import RequestTimes
from broker.shell.rooms import (
    ShareRoom,
    UpkeepRoom,
    WorkerPools,
    build_cluster,
    build_groups,
    build_partitions,
    build_replication,
    build_shares,
    build_transactions,
    build_upkeep,
    make_metadata,
)
from broker.shell.rpc.services import GrpcServices, make_services
from broker.shell.seams import Seams
from broker.shell.settings import BrokerSettings
from broker.shell.subscribers import CLIENT_METRICS, LISTENERS, QUOTAS
from broker.shell.upkeep.descriptor_budget import connections_possible
from broker.storage.log_manager import LogManager

COLD_READERS = 8
SESSION_ID_MAX = 2**31 - 1
RECORD_WORKERS = 2
"""Processes in each of two pools that walk records: the batch of one client does not hold up
another's, and lookups do not hold up appends.
"""
RECORD_WORKER_MEMORY_BYTES = 1024 * 1024 * 1024
"""Memory that one such process may have beyond what it has when it starts. Batches are unfolded in
pieces; the largest frame, its copies in both directions and the largest key need far less.
"""
DRAIN_SHARE = 0.4
"""Share of the shutdown deadline in which open requests may end; the rest is for handing over
before that, and for closing the logs.
"""


def no_lease_needed() -> bool:
    """Return True: without a controller, no other broker could lead."""
    return True


class BrokerServer:
    """One broker without its membership. Built by BrokerService, and handed to nobody else."""

    def __init__(
        self,
        config: BrokerConfig,
        log_managers: Sequence[LogManager],
        seams: Seams,
        failed_directories: Sequence[str] = (),
        has_lease: Callable[[], bool] = no_lease_needed,
        times: RequestTimes | None = None,
    ) -> None:
        """``failed_directories``: directories of log.dirs that could not be opened. ``has_lease``
        returns True while no other broker can lead what this one leads. ``times``: of requests,
        where they become spans too.
        """
        self.config = config
        self.facts = BrokerFacts.of(config, seams.clock, seams.dice.random)
        self.counters = BrokerCounters(times or _times(config, seams))
        self.counters.damage_found = sum(
            report.damage is not None for manager in log_managers for report in manager.reports
        )
        self.counters.throttles = self.facts.quotas.counters
        self.metadata = make_metadata()
        self.metadata.subscribe(QUOTAS, Kind.QUOTAS, self._take_quotas)
        follow_acls(self.metadata, self.facts.authorizer)
        self._pools = WorkerPools(_record_workers(config, seams), _record_workers(config, seams))
        self.cluster = build_cluster(self.facts, self.metadata, self.counters, seams.controller)
        self.partitions = build_partitions(
            self.facts,
            self.metadata,
            self.counters,
            self._pools,
            log_managers=log_managers,
            failed_directories=failed_directories,
            draw_session_id=lambda: seams.dice.randint(1, SESSION_ID_MAX),
            has_lease=has_lease,
        )
        self.replication = build_replication(
            self.facts,
            self.metadata,
            self.counters,
            self.cluster,
            self.partitions,
            seams.connect_leader,
        )
        self.transactions = build_transactions(
            self.facts, self.metadata, self.cluster, seams.channels
        )
        self.groups = build_groups(
            self.facts, self.metadata, self.partitions, self.transactions, seams.channels
        )
        self.shares = self._make_shares(seams.channels)
        self.telemetry = self._make_telemetry()
        self.audit = make_writer(
            self.facts, self.metadata, self.cluster.internal_topics, seams.channels
        )
        settings = BrokerSettings(self.facts, self.metadata)
        self.upkeep = self._make_upkeep(seams, settings)
        self.limits = connection_limits(config)
        settings.follow(partial(self.limits.configure, connections_possible(config)))
        self._cold_readers = seams.make_threads(COLD_READERS, "cold-read")
        self.logins = Logins(self.facts, self.metadata, self.counters, note_login(self.facts))
        self.listeners = self._make_listeners()
        self._after_load = seams.after_load
        self._has_image = asyncio.Event()
        self.metadata.subscribe(LISTENERS, Kind.FIRST, self._let_clients_in)

    def _make_upkeep(self, seams: Seams, settings: BrokerSettings) -> UpkeepRoom:
        return build_upkeep(
            self.facts,
            self.metadata,
            self.counters,
            self.cluster,
            self.partitions,
            self.replication,
            self.groups,
            settings,
            cleaners=seams.make_workers(jobs_max=1),
            opener=seams.opener,
        )

    def _make_shares(self, channels: ChannelPool) -> ShareRoom:
        coordinators = share_coordinators(self.metadata, channels, dice=self.facts.dice)
        return build_shares(
            self.facts,
            self.metadata,
            self.cluster,
            self.partitions,
            self.transactions,
            channels,
            ShareStateClient(coordinators),
            self._pools.inspection,
        )

    def _make_telemetry(self) -> ClientTelemetry | None:
        if not self.config.telemetry_enable:
            return None
        receiver = ClientTelemetry(self.config, self._pools.inspection, self.facts.clock)
        self.metadata.subscribe(CLIENT_METRICS, Kind.CLIENT_METRICS, receiver.follow)
        return receiver

    def _connection_lost(self, connection: Connection) -> None:
        self.shares.partitions.connection_lost(connection)
        if self.telemetry is not None:
            self.telemetry.connection_lost(connection.listener_name, connection.peer)

    def _make_listeners(self) -> list[KafkaListener]:
        config = self.config
        router = make_router(
            self.facts,
            self.metadata,
            self.counters,
            cluster=self.cluster,
            partitions=self.partitions,
            replication=self.replication,
            transactions=self.transactions,
            groups=self.groups,
            shares=self.shares,
            telemetry_receiver=self.telemetry,
        )
        return [
            KafkaListener(
                listener,
                self.logins.router_for(listener, router),
                self._cold_readers,
                config=config,
                limits=self.limits,
                counters=self.counters,
                parked=self.partitions.parked.requests,
                on_unreadable=self.partitions.disks.read_failed,
                on_gone=self._connection_lost,
                quotas=self.facts.quotas,
                turns=self.logins.turns,
                note_login=note_login(self.facts),
                tls=listener_tls(config, listener),
            )
            for listener in config.kafka_listeners()
        ]

    def grpc_services(self) -> GrpcServices:
        """Make the servicers of this broker's gRPC server."""
        return make_services(
            self.facts,
            self.metadata,
            cluster=self.cluster,
            partitions=self.partitions,
            transactions=self.transactions,
            groups=self.groups,
            shares=self.shares,
            counters=self.counters,
        )

    def measured(self) -> Measured:
        """Return the objects whose counters and state ``/metrics`` shows."""
        return Measured(
            counters=self.counters,
            metadata=self.metadata,
            table=self.partitions.table,
            disks=self.partitions.disks,
            log_dirs=self.config.log_dirs,
            turns=self.upkeep.cleaning.turns,
            parked=self.partitions.parked.requests,
            fetch_sessions=self.partitions.fetch_sessions,
            limits=self.limits,
            has_lease=self.partitions.has_lease,
            shares=self.shares.partitions,
            lag=self.groups.lag,
            connections=lambda: {one.name: one.connection_count for one in self.listeners},
            config=self.config,
            telemetry=self.telemetry,
            audit=self.audit,
        )

    async def open(self) -> dict[str, int]:
        """Bind every listener, and return their ports by name. No connection is accepted yet."""
        for listener in self.listeners:
            await listener.open()
        return {one.name: one.port for one in self.listeners}

    def _take_quotas(self, change: MetadataChange) -> None:
        self.facts.quotas.configure(change.image.quotas)

    def _let_clients_in(self, _: MetadataChange) -> None:
        self._after_load()
        self._has_image.set()

    def not_ready(self) -> str | None:
        """Return why clients are not served yet; None when they are."""
        if self.cluster.registration.broker_epoch < 0:
            return "not registered with a controller yet"
        if not all(listener.serving.is_set() for listener in self.listeners):
            return "no metadata from the controller yet"
        if all(manager.fenced is not None for manager in self.partitions.disks.log_managers):
            return "every log directory is fenced"
        own = self.metadata.image.brokers.get(self.facts.broker_id)
        if own is None or own.fenced:
            return "fenced by the controller: nothing is led here"
        if unserved := self.upkeep.hosting.unserved():
            return f"{unserved} partitions that are led here cannot be served"
        return None

    async def wait_ready(self) -> None:
        """Return once the first image has arrived and every listener accepts connections."""
        for listener in self.listeners:
            await listener.serving.wait()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop``, then drain."""
        drain_s = self.config.shutdown_deadline_ms / 1_000 * DRAIN_SHARE
        async with asyncio.TaskGroup() as tasks:
            loops = [
                *self.upkeep.maintenance.start(tasks),
                *self.upkeep.cleaning.start(tasks),
                *self.upkeep.moving.start(tasks),
                tasks.create_task(self.replication.isr_sender.run(), name="isr-sender"),
                tasks.create_task(self.shares.partitions.run(), name="shares"),
            ]
            if self.audit is not None:
                loops.append(tasks.create_task(self.audit.run(), name="audit"))
            groups = tasks.create_task(self.groups.coordinator.run(), name="groups")
            if self.transactions.verifier is not None:
                verifying = self.transactions.verifier.run()
                loops.append(tasks.create_task(verifying, name="txn-verifier"))
            stopping = asyncio.Event()
            following = tasks.create_task(
                self.replication.manager.run(stopping), name="replication"
            )
            serving = [
                tasks.create_task(
                    listener.run(self._has_image, stopping, drain_s=drain_s),
                    name=f"listener-{listener.name}",
                )
                for listener in self.listeners
            ]
            await stop.wait()
            stopping.set()
            if not self._has_image.is_set():
                for one in serving:
                    one.cancel()
            # Before parking ends: a shard that waits for replicas would wait again.
            groups.cancel()
            await asyncio.wait((groups,))
            self.partitions.parked.wake_all()
            await asyncio.wait((*serving, following))
            for loop in loops:
                loop.cancel()
        if self.audit is not None:
            await self.audit.finish()

    async def close(self) -> None:
        """After ``run``: end workers and threads, then close the logs cleanly."""
        await self.transactions.relay.close()
        await self._pools.inspection.close()
        await self._pools.lookups.close()
        await self.upkeep.cleaning.close()
        await asyncio.to_thread(self._cold_readers.shutdown, wait=True)
        high_watermarks = {
            hosted.topic_partition: hosted.partition.high_watermark
            for hosted in self.partitions.table.by_name.values()
        }
        for manager in self.partitions.disks.log_managers:
            if manager.fenced is None:
                manager.checkpoint(high_watermarks)
            manager.close(
                clean=manager.fenced is None, broker_epoch=self.cluster.registration.broker_epoch
            )


def _times(config: BrokerConfig, seams: Seams) -> RequestTimes:
    """Return times of requests without spans."""
    return RequestTimes(
        seams.clock, slow_ms=config.slow_request_ms, kept_max=config.slow_requests_max
    )


def _record_workers(config: BrokerConfig, seams: Seams) -> WorkerPool:
    """Make a pool whose workers yield to the event loop, but are not starved by other processes:
    clients wait for them.
    """
    return seams.make_workers(
        workers=RECORD_WORKERS,
        niceness=1,
        deadline_s=config.batch_inspection_deadline_ms / 1_000,
        memory_max_bytes=RECORD_WORKER_MEMORY_BYTES,
    )


def listener_tls(config: BrokerConfig, listener: Listener) -> ServerTls | None:
    """Return the TLS of a listener; None without it."""
    if not listener.speaks_tls:
        return None
    security = config.security_of(listener.name)
    return ServerTls(tls_settings(security, security.ssl_client_auth))
