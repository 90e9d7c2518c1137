"""What ApiVersions says that clients may rely on."""

import pytest
from broker.shell.kafka.api_versions import SUPPORTED, features_epoch, finalized_features
from tidemark.model.ids import ControllerEpoch
from tidemark.model.metadata import START_OF_FEED, FeedPosition


@pytest.mark.feature("L16")
def test_transactions_v2_are_for_brokers_that_verify() -> None:
    always = [("group.version", 1, 1), ("share.version", 1, 1)]
    assert [tuple(one) for one in finalized_features(verifies=False)] == always
    levels = {one.name: one.max_version_level for one in finalized_features(verifies=True)}
    assert levels == {"group.version": 1, "share.version": 1, "transaction.version": 2}


def test_brokers_name_their_own_extensions_as_a_feature_that_is_not_finalized() -> None:
    assert "tidemark.share.version" in {one.name for one in SUPPORTED}
    names = {one.name for one in finalized_features(verifies=True)}
    assert not any(name.startswith("tidemark.") for name in names)


def test_the_epoch_of_features_rises_over_a_change_of_controllers() -> None:
    positions = [
        START_OF_FEED,
        FeedPosition(ControllerEpoch(1), 1),
        FeedPosition(ControllerEpoch(1), 900),
        FeedPosition(ControllerEpoch(2), 0),
    ]
    epochs = [features_epoch(one) for one in positions]
    assert epochs == sorted(set(epochs))
    assert epochs[0] >= 0
