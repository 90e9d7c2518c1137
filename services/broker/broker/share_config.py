"""Options of a broker for share groups. Names and defaults are Kafka's."""

from typing import Self

from pydantic import Field, model_validator
from tidemark.model.share_group_configs import SHARE_GROUP_CONFIG_KEYS, ShareGroupOptions
from tidemark.runtime.service_config import dotted
from tidemark.runtime.share_membership_config import ShareMembershipConfig

_HOUR_MS = 3_600_000


class ShareConfig(ShareMembershipConfig):
    """Options of a broker that leads partitions of share groups."""

    group_share_record_lock_duration_ms: int = Field(
        30_000,
        ge=1_000,
        le=_HOUR_MS,
        description="time after which an acquired record is available again, unless its group sets"
        " share.record.lock.duration.ms",
    )
    group_share_min_record_lock_duration_ms: int = Field(
        15_000,
        ge=1_000,
        le=30_000,
        description="lower bound of a group's share.record.lock.duration.ms",
    )
    group_share_max_record_lock_duration_ms: int = Field(
        60_000,
        ge=30_000,
        le=_HOUR_MS,
        description="upper bound of a group's share.record.lock.duration.ms",
    )
    group_share_delivery_count_limit: int = Field(
        5,
        ge=2,
        le=10,
        description="number of deliveries after which a record is archived, unless its group sets"
        " share.delivery.count.limit",
    )
    group_share_min_delivery_count_limit: int = Field(
        2, ge=2, le=5, description="lower bound of a group's share.delivery.count.limit"
    )
    group_share_max_delivery_count_limit: int = Field(
        10, ge=5, le=25, description="upper bound of a group's share.delivery.count.limit"
    )
    group_share_partition_max_record_locks: int = Field(
        2_000,
        ge=100,
        le=10_000,
        description="maximum number of records from the start to the end of a share-partition's"
        " window, which bounds its memory, unless its group sets share.partition.max.record.locks",
    )
    share_record_lock_partition_limit: int | None = Field(
        None,
        ge=100,
        le=10_000,
        description="earlier name of group.share.partition.max.record.locks",
    )
    group_share_min_partition_max_record_locks: int = Field(
        100,
        ge=100,
        le=2_000,
        description="lower bound of a group's share.partition.max.record.locks",
    )
    group_share_max_partition_max_record_locks: int = Field(
        10_000,
        ge=2_000,
        le=20_000,
        description="upper bound of a group's share.partition.max.record.locks",
    )
    group_share_max_share_sessions: int = Field(
        2_000,
        ge=1,
        le=100_000,
        description="maximum number of share sessions of this broker; a member has one with each"
        " broker that it reads from",
    )
    group_share_max_share_session_partitions: int = Field(
        200_000,
        ge=1,
        description="maximum number of partitions of all share sessions of this broker together,"
        " which bounds their memory",
    )
    errors_deadletterqueue_topic_name_prefix: str = Field(
        "dlq.",
        description="beginning of the names of topics that share groups may name as their"
        " dead-letter queue, because the broker writes there on behalf of producers that need no"
        " right to; empty: any name",
    )
    errors_deadletterqueue_append_timeout_ms: int = Field(
        20_000,
        ge=100,
        description="time to wait until the in-sync replicas of a dead-letter queue have the copies"
        " of one transaction; after it the transaction is aborted, and the copies are made again",
    )
    share_coordinator_write_timeout_ms: int = Field(
        5_000,
        ge=1,
        description="time to wait for a share-coordinator; an acknowledgement that was not written"
        " by then fails, and its records stay acquired",
    )

    @model_validator(mode="after")
    def _share_groups_have_a_choice(self) -> Self:
        for key in SHARE_GROUP_CONFIG_KEYS.values():
            low, high = (
                getattr(self, option.replace(".", "_"), 0)
                for option in (key.low_option, key.high_option)
            )
            if key.bounded and low > high:
                raise ValueError(
                    f"{key.low_option} is {low}, more than {key.high_option}, which is {high}"
                )
        self._check_lock_limit()
        return self

    def _check_lock_limit(self) -> None:
        name = "group_share_partition_max_record_locks"
        both = {"share_record_lock_partition_limit", name} <= self.model_fields_set
        limit = self.share_record_lock_partition_limit
        if both and limit not in (None, self.group_share_partition_max_record_locks):
            raise ValueError(
                f"share.record.lock.partition.limit is {limit}, {dotted(name)} is"
                f" {self.group_share_partition_max_record_locks}: they are one option, set one"
            )

    def share_group_options(self) -> ShareGroupOptions:
        """Return the options in force where a group sets nothing, and bounds of groups' own."""
        values = {name: getattr(self, name) for name in ShareGroupOptions.__dataclass_fields__}
        if self.share_record_lock_partition_limit is not None:
            values["group_share_partition_max_record_locks"] = (
                self.share_record_lock_partition_limit
            )
        return ShareGroupOptions(**values)
