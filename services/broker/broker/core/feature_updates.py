"""Decision on an update of a finalized feature (KIP-584, KIP-778).

Features are finalized at what every broker of a release supports. So an update to the present
level succeeds and changes nothing, and every other one is refused, with Kafka's message
where Kafka refuses it too.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple


class UpgradeType(IntEnum):
    """Kinds of change that a client allows (numbers of UpdateFeatures)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """One update. ``upgrade_type`` is a number from the wire."""

    feature: str
    level: int
    upgrade_type: int


class FeatureLevels(NamedTuple):
    """Levels of one feature: supported (bounds inclusive), and finalized; 0 if not finalized."""

    supported_min: int
    supported_max: int
    finalized: int


_FIXED: Final = "It is finalized at {level} as long as brokers of this release run."


def refusal(
    update: FeatureUpdate, levels: Mapping[str, FeatureLevels], broker_id: int
) -> str | None:
    """Return the message of a refused update; None: the level is the present one."""
    reason = _reason(update, levels.get(update.feature), broker_id)
    if reason is None:
        return None
    return f"Invalid update version {update.level} for feature {update.feature}. {reason}"


def _reason(update: FeatureUpdate, levels: FeatureLevels | None, broker_id: int) -> str | None:
    if update.upgrade_type not in tuple(UpgradeType):
        return "The controller does not support the given upgrade type."
    if update.level < 0:
        return "A feature version cannot be less than 0."
    if levels is None:
        return f"Broker {broker_id} does not support this feature."
    low, high, finalized = levels
    if not low <= update.level <= high:
        return f"Broker {broker_id} only supports versions {low}-{high}."
    if update.level == finalized:
        return None
    is_upgrade = update.upgrade_type == UpgradeType.UPGRADE
    if update.level < finalized and is_upgrade:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to"
            " either safe or unsafe downgrade."
        )
    if update.level > finalized and not is_upgrade:
        return "Can't downgrade to a newer version."
    return _FIXED.format(level=finalized)
