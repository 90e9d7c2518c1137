"""BrokerParts: the rooms of a broker, built as BrokerServer builds them, without listeners, upkeep
and a machine. A test may put another object in place of any.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, cast

from broker.config import BrokerConfig
from broker.core.cleaning_turns import CleaningTurns
from broker.shell.broker_server import no_lease_needed
from broker.shell.client_telemetry.receiver import ClientTelemetry
from broker.shell.counters import BrokerCounters
from broker.shell.facts import BrokerFacts
from broker.shell.kafka.api_versions import finalized_features
from broker.shell.kafka.apis import (
    cluster_apis,
    feature_apis,
    group_apis,
    make_router,
    partition_apis,
    share_group_apis,
    telemetry_apis,
    topic_apis,
    transaction_apis,
)
from broker.shell.listener.limits import connection_limits
from broker.shell.listener.request_router import Handler, HotHandler, RequestRouter
from broker.shell.metrics.collector import Measured
from broker.shell.replication.leader_connection import LeaderConnection
from broker.shell.rooms import (
    WorkerPools,
    build_cluster,
    build_groups,
    build_partitions,
    build_replication,
    build_shares,
    build_transactions,
    make_metadata,
)
from broker.shell.rpc.services import GrpcServices, make_services
from broker.shell.share.state import ShareState
from broker.storage.log_manager import LogManager
from tidemark.kafka.apis import ApiKey
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.clock import Clock
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.worker_pool import WorkerPool

Kind = TypeVar("Kind")


def absent(kind: type[Kind]) -> Kind:
    """Where a broker wants something that the tests never reach: None, so that a use of it
    fails.
    """
    return cast("Kind", None)


_NO_STATE = cast("ShareState", None)


class BrokerParts:
    """Facts and rooms of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        log_managers: Sequence[LogManager] = (),
        *,
        clock: Clock,
        controller: ControllerClient | None = None,
        workers: WorkerPool | None = None,
        has_lease: Callable[[], bool] = no_lease_needed,
        share_state: ShareState | None = None,
    ) -> None:
        pool = workers or absent(WorkerPool)
        self.facts = BrokerFacts.of(config, clock, random.random)
        self.counters = BrokerCounters()
        self.metadata = make_metadata()
        self.limits = connection_limits(config)
        self.cluster = build_cluster(
            self.facts, self.metadata, self.counters, controller or absent(ControllerClient)
        )
        self.partitions = build_partitions(
            self.facts,
            self.metadata,
            self.counters,
            WorkerPools(pool, pool),
            log_managers=log_managers,
            failed_directories=(),
            draw_session_id=lambda: 1,
            has_lease=has_lease,
        )
        self.replication = build_replication(
            self.facts,
            self.metadata,
            self.counters,
            self.cluster,
            self.partitions,
            connect_leader=_nobody,
        )
        channels = ChannelPool()
        self.transactions = build_transactions(self.facts, self.metadata, self.cluster, channels)
        self.groups = build_groups(
            self.facts, self.metadata, self.partitions, self.transactions, channels
        )
        self.shares = build_shares(
            self.facts,
            self.metadata,
            self.cluster,
            self.partitions,
            self.transactions,
            channels,
            share_state or _NO_STATE,
            pool,
        )
        self.telemetry = ClientTelemetry(config, pool, clock)

    def router(self) -> RequestRouter:
        """Every handler, bound to the parts as they are now."""
        return make_router(
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

    def hot(self, api_key: ApiKey) -> HotHandler:
        """Handler of a hot API, bound to the parts as they are now."""
        return self.router()._hot[int(api_key)]

    def long_tail(self) -> Mapping[ApiKey, Handler]:
        """Handlers of the long tail, bound to the parts as they are now."""
        return {
            **topic_apis(self.facts, self.metadata, self.cluster),
            **cluster_apis(self.facts, self.metadata, self.cluster, self.groups),
            **partition_apis(self.facts, self.partitions, self.replication, self.groups),
            **transaction_apis(self.facts, self.metadata, self.cluster, self.transactions),
            **group_apis(self.facts, self.metadata, self.groups),
            **feature_apis(self.facts, finalized_features(verifies=True)),
            **share_group_apis(self.facts, self.metadata, self.cluster, self.groups),
            **telemetry_apis(self.telemetry),
        }

    def services(self) -> GrpcServices:
        """The gRPC services, bound to the parts as they are now."""
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
        """Objects that ``/metrics`` shows."""
        return Measured(
            counters=self.counters,
            metadata=self.metadata,
            table=self.partitions.table,
            disks=self.partitions.disks,
            log_dirs=self.facts.config.log_dirs[: len(self.partitions.disks.log_managers)],
            turns=CleaningTurns(),
            parked=self.partitions.parked.requests,
            fetch_sessions=self.partitions.fetch_sessions,
            limits=self.limits,
            has_lease=self.partitions.has_lease,
            shares=self.shares.partitions,
            lag=self.groups.lag,
            connections=dict,
            config=self.facts.config,
            telemetry=self.telemetry,
            audit=None,
        )


async def _nobody(*_: object, **__: object) -> LeaderConnection:
    raise AssertionError("no leader is followed here")
