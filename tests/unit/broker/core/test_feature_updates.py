"""Updates of finalized features."""

import pytest
from broker.core.feature_updates import FeatureLevels, FeatureUpdate, UpgradeType, refusal

LEVELS = {"transaction.version": FeatureLevels(0, 2, 2), "other.version": FeatureLevels(0, 1, 0)}
UP, SAFE, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE


@pytest.mark.parametrize(
    ("feature", "level", "kind", "words"),
    [
        ("transaction.version", 3, UP, "Broker 1 only supports versions 0-2."),
        ("transaction.version", 1, UP, "without setting the upgrade type to either safe or unsafe"),
        ("transaction.version", 1, SAFE, "finalized at 2 as long as brokers of this release run"),
        ("transaction.version", 0, UNSAFE, "finalized at 2 as long as"),
        ("transaction.version", -1, SAFE, "A feature version cannot be less than 0."),
        ("transaction.version", 2, 0, "does not support the given upgrade type"),
        ("other.version", 1, SAFE, "Can't downgrade to a newer version."),
        ("other.version", 1, UP, "finalized at 0 as long as"),
        ("metadata.version", 1, UP, "Broker 1 does not support this feature."),
    ],
)
def test_a_change_is_refused_with_the_reason(
    feature: str, level: int, kind: int, words: str
) -> None:
    refused = refusal(FeatureUpdate(feature, level, kind), LEVELS, 1)
    assert refused is not None
    assert refused.startswith(f"Invalid update version {level} for feature {feature}. ")
    assert words in refused


@pytest.mark.parametrize("kind", UpgradeType)
def test_the_present_level_may_be_asked_for(kind: UpgradeType) -> None:
    assert refusal(FeatureUpdate("transaction.version", 2, kind), LEVELS, 1) is None
