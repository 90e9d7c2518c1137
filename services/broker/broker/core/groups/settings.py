"""What a group coordinator is told from outside: its settings, and the topics that there are."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from tidemark.model.ids import TopicId


class Topics(Protocol):
    """What a coordinator must know of the cluster's topics, as this broker's feed last said."""

    @property
    def position(self) -> int:
        """Rises whenever topics may have changed."""
        ...

    def topic_id_of(self, name: str) -> TopicId | None:
        """None: there is no such topic, as far as is known."""
        ...

    def name_of(self, topic_id: TopicId) -> str | None:
        """None: there is no such topic, as far as is known."""
        ...

    def partition_count(self, name: str) -> int:
        """0 where there is no such topic."""
        ...

    def names(self) -> Collection[str]:
        """Of all topics, internal ones too."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Kafka's broker settings of the same names, with its defaults (dots are underscores here)."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 7 * 24 * 60
    offsets_retention_check_interval_ms: int = 600_000
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = 2**31 - 1
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The first is the default."""

    def __post_init__(self) -> None:
        assert 0 < self.group_min_session_timeout_ms <= self.group_max_session_timeout_ms
        assert self.group_initial_rebalance_delay_ms >= 0
        assert self.group_max_size > 0
        assert self.group_consumer_max_size > 0
        assert self.group_consumer_heartbeat_interval_ms < self.group_consumer_session_timeout_ms
        assert self.group_consumer_assignors, "there must be a default assignor"

    @property
    def offsets_retention_ms(self) -> int:
        """How long an offset outlives its group's last member."""
        return self.offsets_retention_minutes * 60_000
