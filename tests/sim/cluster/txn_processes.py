"""Processes of a cluster with transactions: a txn-coordinator, and brokers that relay to it."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from broker.config import BrokerConfig
from tidemark.model.metadata import TXN
from tidemark.runtime.clock import Clock
from tidemark.runtime.metrics import Metrics
from txn_coordinator.config import SERVICE, TxnCoordinatorConfig
from txn_coordinator.shell import server
from txn_coordinator.shell.node import TxnCoordinatorNode

from sim.cluster.coordinator_process import CoordinatorProcess
from sim.cluster.processes import Timing, broker_config
from sim.cluster.rpc import SimChannelPool

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


class TxnCoordinatorProcess(CoordinatorProcess):
    """Process of one replica of the txn-coordinator."""

    kind = TXN

    def make_node(
        self,
        number: int,
        timing: Timing,
        clock: Clock,
        channels: SimChannelPool,
        chance: Callable[[], float],
    ) -> TxnCoordinatorNode:
        """See CoordinatorProcess."""
        config = coordinator_config(number, timing)
        return TxnCoordinatorNode(config, clock, Metrics(SERVICE), channels=channels, dice=chance)

    def make_services(self) -> Mapping[str, Any]:
        """See CoordinatorProcess."""
        assert isinstance(self.node, TxnCoordinatorNode)
        return server.services(self.node)
