"""Configuration of a share-coordinator. Keys have Kafka's names where Kafka has one."""

from typing import Any, Final

from pydantic import Field, field_validator
from tidemark.model.share_group_configs import ShareGroupOptions
from tidemark.runtime.coordinator.config import CoordinatorConfig
from tidemark.runtime.service_config import Address
from tidemark.runtime.share_membership_config import ShareMembershipConfig

from share_coordinator.core.assignors import ASSIGNORS
from share_coordinator.core.settings import ShareSettings

SERVICE: Final = "share-coordinator"


class ShareCoordinatorConfig(CoordinatorConfig, ShareMembershipConfig):
    """All options of a share-coordinator, with unit, bounds, default and meaning."""

    grpc_listen: Address = Field("127.0.0.1:19290", description="address of the gRPC server")
    group_share_max_size: int = Field(
        200, ge=1, le=1_000, description="maximum number of members of a share group"
    )
    group_share_assignors: str = Field(
        "simple",
        description="assignors of share groups, separated by commas, of which the first one is"
        " used: simple (evenly over members) or load (more members where the share lag is)",
    )
    group_share_assignment_interval_ms: int = Field(
        1_000,
        ge=1,
        le=60_000,
        description="least time between two assignments of a group: members that join together"
        " cost one",
    )
    group_share_lag_interval_ms: int = Field(
        10_000,
        ge=100,
        description="interval at which the lag of share groups is measured, for the assignor load",
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = Field(
        500,
        ge=1,
        le=10_000,
        description="number of updates of a share-partition after which its whole state is written",
    )
    share_coordinator_cold_partition_snapshot_interval_ms: int = Field(
        300_000,
        ge=1_000,
        description="interval of the checks for old records that keep the rest of the state topic"
        " from being deleted; they are written again",
    )
    share_coordinator_state_topic_prune_interval_ms: int = Field(
        300_000,
        ge=1_000,
        description="interval at which records of the state topic that are no longer needed are"
        " deleted",
    )
    share_coordinator_write_timeout_ms: int = Field(
        5_000,
        ge=1,
        description="a write to __share_group_state that is not committed after this time fails,"
        " and its shard is loaded again",
    )
    share_coordinator_append_linger_ms: int = Field(
        0,
        ge=0,
        le=1_000,
        description="time to wait for further writes to append together; 0: an append holds only"
        " the writes that arrived during the one before it",
    )

    @field_validator("group_share_assignors")
    @classmethod
    def _know_the_assignors(cls, text: str) -> str:
        """Refuse an unknown assignor by name."""
        names = _names(text)
        unknown = [name for name in names if name not in ASSIGNORS]
        if unknown or not names:
            known = ", ".join(ASSIGNORS)
            raise ValueError(f"{unknown[0] if unknown else text!r}: the assignors are {known}")
        return text

    def settings(self) -> ShareSettings:
        """Settings of a shard, from these options."""
        options = {
            name: getattr(self, name)
            for name in ShareGroupOptions.__dataclass_fields__
            if name in ShareCoordinatorConfig.model_fields
        }
        own: dict[str, Any] = {
            name: getattr(self, name)
            for name in ShareSettings.__dataclass_fields__
            if name in ShareCoordinatorConfig.model_fields and name != "group_share_assignors"
        }
        return ShareSettings(
            options=ShareGroupOptions(**options),
            group_share_assignors=_names(self.group_share_assignors),
            **own,
        )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
