"""Processes of a cluster with transactions: a txn-coordinator, and brokers that relay to it."""

import asyncio
import random
from functools import cache

from broker.config import BrokerConfig
from tidemark.model.metadata import TXN
from tidemark.runtime.coordinator_session import CoordinatorSession
from tidemark.runtime.metrics import Metrics
from txn_coordinator.config import SERVICE, TxnCoordinatorConfig
from txn_coordinator.shell import server
from txn_coordinator.shell.node import TxnCoordinatorNode

from sim.cluster.network import Host, Network
from sim.cluster.processes import SimClock, Timing, broker_config, new_loop
from sim.cluster.rpc import Directory, SimChannelPool, SimControllerClient
from sim.dice import Dice
from sim.zk_adapter import SimZkSession
from sim.zookeeper import SimSession, SimZooKeeper

SESSION_MS = 600
"""Session time-out of a group's member."""
HEARTBEAT_MS = 50
"""Heartbeat interval that KIP-848's coordinators give; members send one before each poll."""


@cache
def coordinating_config(number: int, timing: Timing) -> BrokerConfig:
    """Return the configuration of one broker, with shorter retries and time-outs."""
    changed = {
        "offsets_commit_timeout_ms": 1_000,
        "group_min_session_timeout_ms": SESSION_MS,
        "group_initial_rebalance_delay_ms": 0,
        "group_consumer_session_timeout_ms": SESSION_MS,
        "group_consumer_min_session_timeout_ms": SESSION_MS,
        "group_consumer_heartbeat_interval_ms": HEARTBEAT_MS,
        "group_consumer_min_heartbeat_interval_ms": HEARTBEAT_MS,
        "offsets_retention_check_interval_ms": 10_000_000,
    }
    return broker_config(number, timing).model_copy(update=changed)


@cache
def coordinator_config(number: int, timing: Timing) -> TxnCoordinatorConfig:
    """Return the configuration of one txn-coordinator."""
    return TxnCoordinatorConfig(
        coordinator_id=number,
        zookeeper_session_timeout_ms=timing.session_ms,
        transaction_state_log_append_timeout_ms=600,
        request_timeout_ms=1_500,
        marker_request_timeout_ms=250,
        shutdown_deadline_ms=1_000,
    )


class CoordinatorProcess:
    """Process of one replica of the txn-coordinator, from start to end."""

    def __init__(
        self,
        host: Host,
        directory: Directory,
        zookeeper: SimZooKeeper,
        dice: Dice,
        number: int,
        timing: Timing,
    ) -> None:
        self.host = host
        host.begin()
        self.loop = new_loop(host, dice)
        self.session: SimSession = zookeeper.connect(host.name, timeout_ms=timing.session_ms)
        zk = SimZkSession(self.session)
        chance = random.Random(dice.throws(1)[0]).random
        self.node = TxnCoordinatorNode(
            coordinator_config(number, timing),
            SimClock(host, 1_000),
            Metrics(SERVICE),
            channels=SimChannelPool(directory, host),
            dice=chance,
        )
        self.member = CoordinatorSession(
            zk,
            SimControllerClient(zk, directory, host, chance),
            kind=TXN,
            coordinator_id=number,
            grpc_endpoint=f"{host.name}:3",
            incarnation_id=bytes(dice.throws(1)[0].to_bytes(8, "big")),
        )
        self.services = {server.SERVICE_NAME: server.TransactionCoordinatorService(self.node)}
        self.is_stopping = asyncio.Event()
        self.task = self.loop.create_task(self._run())

    async def _run(self) -> None:
        await self.node.run(self.member, self.is_stopping)
        self.session.stop()

    def kill(self, network: Network) -> None:
        """Kill it (kill -9)."""
        self.session.kill()
        network.process_ended(self.host, is_silent=False)
        self.host.end()
