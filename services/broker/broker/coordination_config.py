"""Options of a broker as a group coordinator, and of what it makes for the coordinators: Kafka's
names and defaults.
"""

from typing import Self

from pydantic import Field, model_validator
from tidemark.runtime.service_config import CommaList, ServiceConfig

from broker.core.groups.settings import GroupSettings

_MIB = 1024 * 1024
_INT_MAX = 2**31 - 1


class CoordinationConfig(ServiceConfig):
    """The part of a broker's configuration that is about groups and transactions."""

    offsets_topic_num_partitions: int = Field(
        50, ge=1, description="partitions of __consumer_offsets; not to be changed once it is made"
    )
    offsets_topic_replication_factor: int = Field(
        3,
        ge=1,
        description="of __consumer_offsets: it is made once there are so many brokers, and one with"
        " fewer replicas gets more",
    )
    offsets_topic_segment_bytes: int = Field(
        100 * _MIB, ge=1, description="segment.bytes of __consumer_offsets: it is loaded whole"
    )
    offsets_commit_timeout_ms: int = Field(
        5_000, ge=1, description="an offset commit that is not replicated by then has failed"
    )
    offsets_retention_minutes: int = Field(
        10_080, ge=1, description="how long offsets outlive their group's last member"
    )
    offsets_retention_check_interval_ms: int = Field(
        600_000, ge=1, description="how often expired offsets are looked for"
    )
    offset_metadata_max_bytes: int = Field(
        4_096, ge=0, description="of the text that a client may commit with an offset"
    )
    group_min_session_timeout_ms: int = Field(
        6_000, ge=1, description="the shortest session.timeout.ms of a member, classic protocol"
    )
    group_max_session_timeout_ms: int = Field(
        1_800_000, ge=1, description="the longest session.timeout.ms of a member, classic protocol"
    )
    group_initial_rebalance_delay_ms: int = Field(
        3_000, ge=0, description="how long an empty group waits for more members to join"
    )
    group_max_size: int = Field(_INT_MAX, ge=1, description="members of one classic group")
    group_consumer_session_timeout_ms: int = Field(
        45_000, ge=1, description="a member of the consumer protocol silent for so long is gone"
    )
    group_consumer_min_session_timeout_ms: int = Field(
        45_000, ge=1, description="the shortest consumer.session.timeout.ms that a group may set"
    )
    group_consumer_max_session_timeout_ms: int = Field(
        60_000, ge=1, description="the longest consumer.session.timeout.ms that a group may set"
    )
    group_consumer_heartbeat_interval_ms: int = Field(
        5_000, ge=1, description="how often members of the consumer protocol are told to call"
    )
    group_consumer_min_heartbeat_interval_ms: int = Field(
        5_000, ge=1, description="the least consumer.heartbeat.interval.ms that a group may set"
    )
    group_consumer_max_heartbeat_interval_ms: int = Field(
        15_000, ge=1, description="the greatest consumer.heartbeat.interval.ms that a group may set"
    )
    group_consumer_max_size: int = Field(
        _INT_MAX, ge=1, description="members of one group of the consumer protocol"
    )
    group_consumer_assignors: CommaList = Field(
        ("uniform", "range"),
        min_length=1,
        description="server-side assignors that members may name; the first is the default",
    )

    transaction_state_log_num_partitions: int = Field(
        50, ge=1, description="partitions of __transaction_state; not to be changed once it is made"
    )
    transaction_state_log_replication_factor: int = Field(
        3,
        ge=1,
        description="of __transaction_state: it is made once there are so many brokers, and one"
        " with fewer replicas gets more",
    )
    transaction_state_log_min_isr: int = Field(
        2,
        ge=1,
        description="min.insync.replicas of __transaction_state; a lower one on the topic is raised"
        " to it once so many of its replicas are in sync",
    )
    transaction_state_log_segment_bytes: int = Field(
        100 * _MIB, ge=1, description="segment.bytes of __transaction_state: it is loaded whole"
    )
    transaction_partition_verification_enable: bool = Field(
        default=True,
        description="whether a partition asks the coordinator before a transaction begins in it",
    )

    add_partitions_to_txn_retry_backoff_ms: int = Field(
        20, ge=1, description="between two questions whether a transaction's predecessor has ended"
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = Field(
        100, ge=0, description="how long a broker asks before it tells the producer to try again"
    )

    @model_validator(mode="after")
    def _groups_have_a_choice(self) -> Self:
        for what in ("session_timeout_ms", "heartbeat_interval_ms"):
            low: int = getattr(self, f"group_consumer_min_{what}")
            high: int = getattr(self, f"group_consumer_max_{what}")
            if low > high:
                dotted = what.replace("_", ".")
                raise ValueError(
                    f"group.consumer.min.{dotted} is {low}, more than"
                    f" group.consumer.max.{dotted}, which is {high}"
                )
        return self

    def group_settings(self) -> GroupSettings:
        """What the group coordinator's core is told."""
        return GroupSettings(
            group_min_session_timeout_ms=self.group_min_session_timeout_ms,
            group_max_session_timeout_ms=self.group_max_session_timeout_ms,
            group_initial_rebalance_delay_ms=self.group_initial_rebalance_delay_ms,
            group_max_size=self.group_max_size,
            offset_metadata_max_bytes=self.offset_metadata_max_bytes,
            offsets_retention_minutes=self.offsets_retention_minutes,
            offsets_retention_check_interval_ms=self.offsets_retention_check_interval_ms,
            group_consumer_session_timeout_ms=self.group_consumer_session_timeout_ms,
            group_consumer_min_session_timeout_ms=self.group_consumer_min_session_timeout_ms,
            group_consumer_max_session_timeout_ms=self.group_consumer_max_session_timeout_ms,
            group_consumer_heartbeat_interval_ms=self.group_consumer_heartbeat_interval_ms,
            group_consumer_min_heartbeat_interval_ms=self.group_consumer_min_heartbeat_interval_ms,
            group_consumer_max_heartbeat_interval_ms=self.group_consumer_max_heartbeat_interval_ms,
            group_consumer_max_size=self.group_consumer_max_size,
            group_consumer_assignors=self.group_consumer_assignors,
        )
