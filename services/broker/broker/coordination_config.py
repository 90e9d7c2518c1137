"""Options of a broker as a group coordinator, and of the coordinators' internal topics. Names and
defaults are Kafka's.
"""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from tidemark.runtime.service_config import CommaList, ServiceConfig, split_list

from broker.core.groups.settings import GroupSettings, MigrationPolicy

_MIB = 1024 * 1024
_INT_MAX = 2**31 - 1


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


PolicyName = Annotated[
    Literal["disabled", "upgrade", "downgrade", "bidirectional"], BeforeValidator(_lower)
]
"""Name of a MigrationPolicy; case does not count, as in Kafka."""

GroupProtocol = Literal["classic", "consumer", "share", "streams"]
"""A protocol of groups, by Kafka's name."""


class CoordinationConfig(ServiceConfig):
    """Options of a broker for groups and transactions."""

    offsets_topic_num_partitions: int = Field(
        50,
        ge=1,
        description="partitions of __consumer_offsets; cannot be changed after the topic was"
        " created",
    )
    offsets_topic_replication_factor: int = Field(
        3,
        ge=1,
        description="replicas of __consumer_offsets: the topic is created when there are that"
        " many brokers, and gets more replicas if it has fewer",
    )
    offsets_topic_segment_bytes: int = Field(
        100 * _MIB,
        ge=1,
        description="segment.bytes of __consumer_offsets; small segments are compacted sooner,"
        " and the topic loads faster",
    )
    offsets_commit_timeout_ms: int = Field(
        5_000, ge=1, description="an offset commit that is not replicated after this time fails"
    )
    offsets_retention_minutes: int = Field(
        10_080,
        ge=1,
        description="time for which offsets are kept after the last member left their group",
    )
    offsets_retention_check_interval_ms: int = Field(
        600_000, ge=1, description="interval of the checks for expired offsets"
    )
    offset_metadata_max_bytes: int = Field(
        4_096, ge=0, description="maximum size of the metadata that a client commits with an offset"
    )
    group_min_session_timeout_ms: int = Field(
        6_000, ge=1, description="lower bound of session.timeout.ms, classic protocol"
    )
    group_max_session_timeout_ms: int = Field(
        1_800_000, ge=1, description="upper bound of session.timeout.ms, classic protocol"
    )
    group_initial_rebalance_delay_ms: int = Field(
        3_000, ge=0, description="time that an empty group waits for more members to join"
    )
    group_max_size: int = Field(
        _INT_MAX, ge=1, description="maximum number of members of a classic group"
    )
    group_consumer_session_timeout_ms: int = Field(
        45_000,
        ge=1,
        description="a member of the consumer protocol without a heartbeat for this long is"
        " removed",
    )
    group_consumer_min_session_timeout_ms: int = Field(
        45_000, ge=1, description="lower bound of a group's consumer.session.timeout.ms"
    )
    group_consumer_max_session_timeout_ms: int = Field(
        60_000, ge=1, description="upper bound of a group's consumer.session.timeout.ms"
    )
    group_consumer_heartbeat_interval_ms: int = Field(
        5_000, ge=1, description="heartbeat interval of members of the consumer protocol"
    )
    group_consumer_min_heartbeat_interval_ms: int = Field(
        5_000, ge=1, description="lower bound of a group's consumer.heartbeat.interval.ms"
    )
    group_consumer_max_heartbeat_interval_ms: int = Field(
        15_000, ge=1, description="upper bound of a group's consumer.heartbeat.interval.ms"
    )
    group_consumer_max_size: int = Field(
        _INT_MAX, ge=1, description="maximum number of members of a group of the consumer protocol"
    )
    group_consumer_assignors: CommaList = Field(
        ("uniform", "range"),
        min_length=1,
        description="assignors on the broker that members may select; the first is the default",
    )
    group_consumer_regex_refresh_interval_ms: int = Field(
        600_000,
        ge=10_000,
        le=_INT_MAX,
        description="time after which a group's regular expressions are matched again though no"
        " topic is new, since the topics that its members may describe may have changed",
    )
    group_consumer_migration_policy: PolicyName = Field(
        "bidirectional",
        description="conversions of groups with members: upgrade converts a classic group when a"
        " member of the consumer protocol joins, downgrade converts it back when the last such"
        " member is gone; a group without members is always converted",
    )

    group_coordinator_rebalance_protocols: Annotated[
        tuple[GroupProtocol, ...], BeforeValidator(split_list)
    ] = Field(
        ("classic", "consumer", "streams"),
        description="protocols that groups may use: classic is required; without consumer, requests"
        " of that protocol (KIP-848) are refused with UNSUPPORTED_VERSION; share and streams change"
        " nothing, since share groups are always served, and streams groups never",
    )

    transaction_state_log_num_partitions: int = Field(
        50,
        ge=1,
        description="partitions of __transaction_state; cannot be changed after the topic was"
        " created",
    )
    transaction_state_log_replication_factor: int = Field(
        3,
        ge=1,
        description="replicas of __transaction_state: the topic is created when there are that"
        " many brokers, and gets more replicas if it has fewer",
    )
    transaction_state_log_min_isr: int = Field(
        2,
        ge=1,
        description="min.insync.replicas of __transaction_state; a lower value on the topic is"
        " raised when that many replicas are in sync",
    )
    transaction_state_log_segment_bytes: int = Field(
        100 * _MIB,
        ge=1,
        description="segment.bytes of __transaction_state; small segments are compacted sooner,"
        " and the topic loads faster",
    )
    share_coordinator_state_topic_num_partitions: int = Field(
        50,
        ge=1,
        description="partitions of __share_group_state; cannot be changed after the topic was"
        " created",
    )
    share_coordinator_state_topic_replication_factor: int = Field(
        3,
        ge=1,
        description="replicas of __share_group_state: the topic is created when there are that"
        " many brokers, and gets more replicas if it has fewer",
    )
    share_coordinator_state_topic_min_isr: int = Field(
        2,
        ge=1,
        description="min.insync.replicas of __share_group_state; a lower value on the topic is"
        " raised when that many replicas are in sync",
    )
    share_coordinator_state_topic_segment_bytes: int = Field(
        100 * _MIB,
        ge=1,
        description="segment.bytes of __share_group_state; records that are no longer needed are"
        " deleted with whole segments",
    )

    transaction_partition_verification_enable: bool = Field(
        default=True,
        description="verify with the coordinator that a partition belongs to a transaction,"
        " before the transaction begins in it",
    )

    add_partitions_to_txn_retry_backoff_ms: int = Field(
        20,
        ge=1,
        description="pause between two requests to add a partition while the previous"
        " transaction is ending",
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = Field(
        100,
        ge=0,
        description="time for which such requests are repeated; after that the producer is"
        " asked to retry",
    )

    @model_validator(mode="after")
    def _classic_is_served(self) -> Self:
        if "classic" not in self.group_coordinator_rebalance_protocols:
            raise ValueError(
                "classic cannot be disabled: add it to group.coordinator.rebalance.protocols"
            )
        return self

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

    @property
    def serves_consumer_protocol(self) -> bool:
        """True if groups may use the consumer protocol (KIP-848)."""
        return "consumer" in self.group_coordinator_rebalance_protocols

    def group_settings(self) -> GroupSettings:
        """Return the settings of the group coordinator's core."""
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
            group_consumer_regex_refresh_interval_ms=self.group_consumer_regex_refresh_interval_ms,
            group_consumer_migration_policy=MigrationPolicy(self.group_consumer_migration_policy),
        )
