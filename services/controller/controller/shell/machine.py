"""The machine of a controller replica, as its configuration wants it."""

from controller.config import ControllerConfig
from controller.core.controller import Controller
from controller.core.limits import Limits
from controller.core.topics import TopicDefaults


def new_machine(config: ControllerConfig, store_ops_max: int) -> Controller:
    """Return a standby. ``store_ops_max`` bounds the operations of one ZooKeeper transaction."""
    defaults = TopicDefaults(
        config.num_partitions,
        config.default_replication_factor,
        config.partitions_per_request_max,
        may_delete=config.delete_topic_enable,
    )
    return Controller(defaults, _limits(config, store_ops_max))


def _limits(config: ControllerConfig, store_ops_max: int) -> Limits:
    return Limits(
        elections_at_once=store_ops_max - 1,  # one is the check of the epoch
        requests_waiting_max=config.requests_waiting_max,
        lease_ms=config.lease_ms,
        feed_lost_fence_ms=config.feed_lost_fence_ms,
        no_subscriber_resign_ms=config.feed_deserted_resign_ms,
        rebalance_interval_ms=(
            config.leader_imbalance_check_interval_seconds * 1_000
            if config.auto_leader_rebalance_enable
            else 0
        ),
    )
