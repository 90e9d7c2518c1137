"""Processes of a cluster with share groups: a share-coordinator, and brokers with short times."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from broker.config import BrokerConfig
from share_coordinator.config import SERVICE, ShareCoordinatorConfig
from share_coordinator.shell import server
from share_coordinator.shell.node import ShareCoordinatorNode
from tidemark.model.metadata import SHARE
from tidemark.runtime.clock import Clock
from tidemark.runtime.metrics import Metrics

from sim.cluster.coordinator_process import CoordinatorProcess
from sim.cluster.processes import Timing
from sim.cluster.rpc import SimChannelPool
from sim.cluster.txn_processes import coordinating_config

SHARE_SESSION_MS: Final = 800
"""Session time-out of members."""
SHARE_HEARTBEAT_MS: Final = 150
LOCK_MS: Final = 350
LIMIT: Final = 3
"""Greatest delivery count."""


@cache
def sharing_config(number: int, timing: Timing) -> BrokerConfig:
    """Return the configuration of one broker, with short locks."""
    changed = {
        "group_share_record_lock_duration_ms": LOCK_MS,
        "group_share_min_record_lock_duration_ms": LOCK_MS,
        "group_share_delivery_count_limit": LIMIT,
        "share_coordinator_write_timeout_ms": 900,
        "errors_deadletterqueue_append_timeout_ms": 1_200,
    }
    return coordinating_config(number, timing).model_copy(update=changed)


@cache
def share_coordinator_config(number: int, timing: Timing) -> ShareCoordinatorConfig:
    """Return the configuration of one share-coordinator."""
    made = ShareCoordinatorConfig(
        coordinator_id=number,
        zookeeper_session_timeout_ms=timing.session_ms,
        share_coordinator_write_timeout_ms=600,
        share_coordinator_snapshot_update_records_per_snapshot=5,
        share_coordinator_state_topic_prune_interval_ms=1_000,
        share_coordinator_cold_partition_snapshot_interval_ms=1_500,
        group_share_assignment_interval_ms=50,
        shutdown_deadline_ms=1_000,
    )
    changed = {
        "group_share_session_timeout_ms": SHARE_SESSION_MS,
        "group_share_heartbeat_interval_ms": SHARE_HEARTBEAT_MS,
        "group_share_min_session_timeout_ms": SHARE_SESSION_MS,
        "group_share_min_heartbeat_interval_ms": SHARE_HEARTBEAT_MS,
    }
    return made.model_copy(update=changed)


class ShareCoordinatorProcess(CoordinatorProcess):
    """Process of one replica of the share-coordinator."""

    kind = SHARE

    def make_node(
        self,
        number: int,
        timing: Timing,
        clock: Clock,
        channels: SimChannelPool,
        chance: Callable[[], float],
    ) -> ShareCoordinatorNode:
        """See CoordinatorProcess."""
        config = share_coordinator_config(number, timing)
        return ShareCoordinatorNode(config, clock, Metrics(SERVICE), channels=channels, dice=chance)

    def make_services(self) -> Mapping[str, Any]:
        """See CoordinatorProcess."""
        assert isinstance(self.node, ShareCoordinatorNode)
        return {server.SERVICE_NAME: server.ShareCoordinatorService(self.node)}
