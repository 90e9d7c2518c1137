"""Settings of one shard of share groups."""

from dataclasses import dataclass, field, fields

from tidemark.model.share_group_configs import ShareGroupOptions

from share_coordinator.core.assignors import ASSIGNORS


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSettings:
    """Kafka's names (dots are underscores here) and defaults, where Kafka has the option."""

    options: ShareGroupOptions = field(default_factory=ShareGroupOptions)
    """In force for groups that set nothing, and bounds for those that do."""
    group_share_max_size: int = 200
    group_share_assignors: tuple[str, ...] = ("simple",)
    """The first one assigns."""
    group_share_assignment_interval_ms: int = 1_000
    """Least time between two assignments of a group."""
    share_coordinator_snapshot_update_records_per_snapshot: int = 500
    share_coordinator_cold_partition_snapshot_interval_ms: int = 300_000
    share_coordinator_state_topic_prune_interval_ms: int = 300_000

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            assert not isinstance(value, int) or value > 0, setting.name
        assert self.group_share_assignors, "there must be an assignor"
        assert set(self.group_share_assignors) <= set(ASSIGNORS), self.group_share_assignors

    @property
    def assignor_name(self) -> str:
        """Assignor of all groups."""
        return self.group_share_assignors[0]
