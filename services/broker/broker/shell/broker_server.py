"""BrokerServer: one broker's object graph without its membership: disks, node, listeners,
replication, maintenance.

Images, from the feed or from a test, are given to ``node.metadata``; the first one opens the
listeners.
"""

import asyncio
from collections.abc import Callable, Sequence

from tidemark.model.metadata import Endpoint
from tidemark.model.metadata_change import Kind, MetadataChange
from tidemark.runtime.tls import ServerTls, tls_settings
from tidemark.runtime.worker_pool import WorkerPool

from broker.config import SSL, BrokerConfig
from broker.shell.apis import make_router
from broker.shell.listener import KafkaListener
from broker.shell.node import BrokerNode, no_lease_needed
from broker.shell.partitions.hosting import Hosting
from broker.shell.replication.manager import ReplicationManager
from broker.shell.replication.replica_reports import ReplicaReports
from broker.shell.seams import Seams
from broker.shell.subscribers import LISTENERS
from broker.shell.transactions import producer_ids
from broker.shell.transactions.txn_relay import TxnRelay
from broker.shell.transactions.txn_verifier import TxnVerifier
from broker.shell.upkeep.cleaning import Cleaning
from broker.shell.upkeep.maintenance import Maintenance
from broker.storage.log_manager import LogManager

COLD_READERS = 8
SESSION_ID_MAX = 2**31 - 1
RECORD_WORKERS = 2
"""Processes that look at records, each of two pools: one client's batch does not hold up another's,
nor do lookups hold up produces.
"""
RECORD_WORKER_MEMORY_BYTES = 1024 * 1024 * 1024
"""Of one such process, beyond what it has when it starts. A batch is unfolded by pieces; the
largest frame, a copy of it each way and the largest key are far below.
"""
DRAIN_SHARE = 0.4
"""Of the shutdown deadline: how long open requests may take; the rest is for handing over before,
and for closing the logs.
"""


class BrokerServer:
    """One broker; the subscribers of its metadata act on each image."""

    def __init__(
        self,
        config: BrokerConfig,
        log_managers: Sequence[LogManager],
        seams: Seams,
        failed_directories: Sequence[str] = (),
        has_lease: Callable[[], bool] = no_lease_needed,
    ) -> None:
        """``failed_directories``: those of log.dirs that could not be opened. ``has_lease``:
        whether no other broker can lead what this one leads.
        """
        self.config = config
        self.workers, self.lookups = _record_workers(config, seams), _record_workers(config, seams)
        self._after_load = seams.after_load
        self.node = BrokerNode(
            config,
            log_managers,
            clock=seams.clock,
            controller=seams.controller,
            channels=seams.channels,
            producer_ids=producer_ids.from_controller(seams.controller, self._registration),
            workers=self.workers,
            lookups=self.lookups,
            draw_session_id=lambda: seams.dice.randint(1, SESSION_ID_MAX),
            failed_directories=failed_directories,
            dice=seams.dice.random,
            has_lease=has_lease,
            make_verifier=self._make_verifier,
        )
        self.node.counters.damage_found = sum(
            report.damage is not None for manager in log_managers for report in manager.reports
        )
        self.replication = ReplicationManager(self.node.fetcher_parts(), seams.connect_leader)
        self.cleaning = Cleaning(
            self.node.facts,
            seams.make_workers(jobs_max=1),
            seams.opener,
            table=self.node.table,
            disks=self.node.disks,
        )
        self.hosting = self._make_hosting()
        self.maintenance = self._make_maintenance()
        self._cold_readers = seams.make_threads(COLD_READERS, "cold-read")
        router = make_router(self.node)
        tls = ServerTls(tls_settings(config)) if config.speaks_tls else None
        self.listeners = [
            KafkaListener(
                listener,
                router,
                self._cold_readers,
                config=config,
                limits=self.node.limits,
                counters=self.node.counters,
                parked=self.node.parked,
                on_unreadable=self.node.disks.read_failed,
                tls=tls if listener.security_protocol == SSL else None,
            )
            for listener in config.parsed_listeners()
        ]
        self._has_image = asyncio.Event()
        self.node.metadata.subscribe(LISTENERS, Kind.FIRST, self._let_clients_in)

    def _make_hosting(self) -> Hosting:
        node = self.node
        return Hosting(
            node.facts,
            self.replication,
            metadata=node.metadata,
            table=node.table,
            disks=node.disks,
            parked=node.parked,
            group_commits=node.group_commits,
            counters=node.counters,
            on_new_log=self.cleaning.forget,
        )

    def _make_maintenance(self) -> Maintenance:
        node = self.node
        reports = ReplicaReports(
            node.facts,
            node.registration,
            node.controller,
            metadata=node.metadata,
            live=node.live,
            table=node.table,
            disks=node.disks,
            suspects=node.suspects,
            hosting=self.hosting,
        )
        return Maintenance(
            node.facts,
            self.hosting,
            reports,
            table=node.table,
            disks=node.disks,
            log_moves=node.log_moves,
            group_commits=node.group_commits,
            on_replica_synced=self.replication.synced,
        )

    def _make_verifier(self, relay: TxnRelay) -> TxnVerifier | None:
        config = self.config
        if not config.transaction_partition_verification_enable:
            return None
        return relay.make_verifier(
            config.add_partitions_to_txn_retry_backoff_ms,
            config.add_partitions_to_txn_retry_backoff_max_ms,
        )

    def _registration(self) -> tuple[int, int]:
        return self.node.registration.current()

    async def open(self) -> tuple[Endpoint, ...]:
        """Bind every listener; answers what is to be advertised. Nothing is accepted yet."""
        for listener in self.listeners:
            await listener.open()
        return self.config.endpoints({one.name: one.port for one in self.listeners})

    def _let_clients_in(self, _: MetadataChange) -> None:
        self._after_load()
        self._has_image.set()

    def not_ready(self) -> str | None:
        """Why clients are not served yet; None when they are."""
        if self.node.registration.broker_epoch < 0:
            return "not registered with a controller yet"
        if not all(listener.serving.is_set() for listener in self.listeners):
            return "no metadata from the controller yet"
        if all(manager.fenced is not None for manager in self.node.disks.log_managers):
            return "every log directory is fenced"
        return None

    async def wait_ready(self) -> None:
        """Return once the first image is here and every listener accepts connections."""
        for listener in self.listeners:
            await listener.serving.wait()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop``, then drain."""
        drain_s = self.config.shutdown_deadline_ms / 1_000 * DRAIN_SHARE
        async with asyncio.TaskGroup() as tasks:
            loops = [
                *self.maintenance.start(tasks),
                *self.cleaning.start(tasks),
                tasks.create_task(self.node.isr_sender.run(), name="isr-sender"),
            ]
            groups = tasks.create_task(self.node.groups.run(), name="groups")
            if self.node.txn_verifier is not None:
                verifying = self.node.txn_verifier.run()
                loops.append(tasks.create_task(verifying, name="txn-verifier"))
            stopping = asyncio.Event()
            following = tasks.create_task(self.replication.run(stopping), name="replication")
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
            # Before nothing parks any more: a shard that waits for replicas would wait again.
            groups.cancel()
            await asyncio.wait((groups,))
            self.node.parked.wake_all()
            await asyncio.wait((*serving, following))
            for loop in loops:
                loop.cancel()

    async def close(self) -> None:
        """After ``run``: end workers and threads, then close the logs cleanly."""
        await self.node.txn.close()
        await self.workers.close()
        await self.lookups.close()
        await self.cleaning.close()
        await asyncio.to_thread(self._cold_readers.shutdown, wait=True)
        high_watermarks = {
            hosted.topic_partition: hosted.partition.high_watermark
            for hosted in self.node.table.by_name.values()
        }
        for manager in self.node.disks.log_managers:
            if manager.fenced is None:
                manager.checkpoint(high_watermarks)
            manager.close(
                clean=manager.fenced is None, broker_epoch=self.node.registration.broker_epoch
            )


def _record_workers(config: BrokerConfig, seams: Seams) -> WorkerPool:
    """Clients wait for them: they yield to the loop, but are not starved by whatever else runs."""
    return seams.make_workers(
        workers=RECORD_WORKERS,
        niceness=1,
        deadline_s=config.batch_inspection_deadline_ms / 1_000,
        memory_max_bytes=RECORD_WORKER_MEMORY_BYTES,
    )
