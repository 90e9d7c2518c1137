"""Options for members of share groups, which share-coordinators and brokers both have."""

from typing import Self

from pydantic import Field, model_validator

from tidemark.runtime.service_config import ServiceConfig


class ShareMembershipConfig(ServiceConfig):
    """Times of members, and bounds of what a group may set. Share-coordinators apply them, brokers
    show and check configurations of groups by them: both are configured alike.
    """

    group_share_session_timeout_ms: int = Field(
        45_000,
        ge=1,
        description="a member of a share group without a heartbeat for this long is removed, unless"
        " its group sets share.session.timeout.ms; the same at brokers and share-coordinators",
    )
    group_share_min_session_timeout_ms: int = Field(
        45_000, ge=1, description="lower bound of a group's share.session.timeout.ms"
    )
    group_share_max_session_timeout_ms: int = Field(
        60_000, ge=1, description="upper bound of a group's share.session.timeout.ms"
    )
    group_share_heartbeat_interval_ms: int = Field(
        5_000,
        ge=1,
        description="heartbeat interval of members of share groups, unless their group sets"
        " share.heartbeat.interval.ms; less than the session timeout; the same at brokers and"
        " share-coordinators",
    )
    group_share_min_heartbeat_interval_ms: int = Field(
        5_000, ge=1, description="lower bound of a group's share.heartbeat.interval.ms"
    )
    group_share_max_heartbeat_interval_ms: int = Field(
        15_000, ge=1, description="upper bound of a group's share.heartbeat.interval.ms"
    )

    @model_validator(mode="after")
    def _sessions_outlast_heartbeats(self) -> Self:
        if self.group_share_heartbeat_interval_ms >= self.group_share_session_timeout_ms:
            raise ValueError(
                "group.share.heartbeat.interval.ms must be less than group.share.session.timeout.ms"
            )
        for name in ("session_timeout_ms", "heartbeat_interval_ms"):
            low = getattr(self, f"group_share_min_{name}")
            high = getattr(self, f"group_share_max_{name}")
            if low > high:
                key = name.replace("_", ".")
                raise ValueError(
                    f"group.share.min.{key} is {low}, more than group.share.max.{key}, which is"
                    f" {high}"
                )
        return self
