"""Settings of the group coordinator."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from tidemark.model.config_values import InvalidConfigError
from tidemark.model.group_configs import (
    GROUP_CONFIG_KEYS,
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
    check_pair,
    group_config,
)


class MigrationPolicy(StrEnum):
    """Conversions of a group with members from one protocol to the other; Kafka's words."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    """A classic group becomes one of KIP-848 when a member of that protocol joins."""
    DOWNGRADE = "downgrade"
    """A group of KIP-848 becomes a classic one when only members of that protocol remain."""
    BIDIRECTIONAL = "bidirectional"

    @property
    def upgrades(self) -> bool:
        """True if classic groups are converted."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        """True if groups of KIP-848 are converted."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Kafka's broker settings of the same names (with underscores for dots), and its defaults."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 7 * 24 * 60
    offsets_retention_check_interval_ms: int = 600_000
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_max_size: int = 2**31 - 1
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """Server-side assignors; the first is the default."""
    group_consumer_regex_refresh_interval_ms: int = 600_000
    """Time after which patterns are matched again, as permissions may have changed."""
    group_consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL

    def __post_init__(self) -> None:
        assert 0 < self.group_min_session_timeout_ms <= self.group_max_session_timeout_ms
        assert self.group_initial_rebalance_delay_ms >= 0
        assert self.group_max_size > 0
        assert self.group_consumer_max_size > 0
        assert self.group_consumer_regex_refresh_interval_ms > 0
        assert self.group_consumer_heartbeat_interval_ms < self.group_consumer_session_timeout_ms
        for key in GROUP_CONFIG_KEYS.values():
            low, high = self._at(key.low_name), self._at(key.high_name)
            assert 0 < low <= high, key.name
        assert self.group_consumer_assignors, "there must be a default assignor"

    @property
    def offsets_retention_ms(self) -> int:
        """Time that an offset is kept after its group became empty."""
        return self.offsets_retention_minutes * 60_000

    def of_group(self, configs: Mapping[str, str]) -> "GroupSettings":
        """Return the settings in force for a group that sets ``configs``.

        Unknown names (of a newer release) are ignored. If the values contradict this broker's own
        settings, all of them are ignored: they never leave a group without a coordinator.
        """
        own = {name: text for name, text in configs.items() if name in GROUP_CONFIG_KEYS}
        if not own:
            return self
        try:
            session_ms, heartbeat_ms = self._in_force(group_config(own))
            check_pair(session_ms, heartbeat_ms)
        except InvalidConfigError:
            return self
        return replace(
            self,
            group_consumer_session_timeout_ms=session_ms,
            group_consumer_heartbeat_interval_ms=heartbeat_ms,
        )

    def check_of_group(self, configs: Mapping[str, str]) -> None:
        """Check that a group may set ``configs``. Raises InvalidConfigError in Kafka's words."""
        values = group_config(configs)
        for name, value in values.items():
            key = GROUP_CONFIG_KEYS[name]
            if value < self._at(key.low_name):
                raise InvalidConfigError(f"{name} must be greater than or equal to {key.low_name}")
            if value > self._at(key.high_name):
                raise InvalidConfigError(f"{name} must be less than or equal to {key.high_name}")
        if values:
            check_pair(*self._in_force(values))

    def _in_force(self, values: Mapping[str, int]) -> tuple[int, int]:
        """Return the session timeout and the heartbeat interval in force."""
        return (
            values.get(SESSION_TIMEOUT, self.group_consumer_session_timeout_ms),
            values.get(HEARTBEAT_INTERVAL, self.group_consumer_heartbeat_interval_ms),
        )

    def _at(self, broker_name: str) -> int:
        """Return a setting by its name in the broker's configuration."""
        value: int = getattr(self, broker_name.replace(".", "_"))
        return value
