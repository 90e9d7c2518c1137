"""UpdateFeatures."""

import pytest
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from unit.broker.shell.kafka.conftest import Ask


def update(feature: str, level: int, **more: object) -> dict[str, object]:
    return {"feature": feature, "max_version_level": level, **more}


@pytest.mark.parametrize("version", [0, 1])
def test_each_feature_has_its_result(ask: Ask, version: int) -> None:
    updates = [update("group.version", 1), update("nothing", 1)]
    answer = ask(ApiKey.UPDATE_FEATURES, {"feature_updates": updates}, version)
    assert answer.error_code == 0
    assert [(one.feature, one.error_code) for one in answer.results] == [
        ("group.version", 0),
        ("nothing", ErrorCode.INVALID_UPDATE_VERSION),
    ]


@pytest.mark.parametrize(
    ("allow", "words"), [(True, "as long as brokers of this release run"), (False, "without")]
)
def test_the_oldest_clients_allow_a_downgrade_or_not(ask: Ask, allow: bool, words: str) -> None:
    updates = [update("group.version", 0, allow_downgrade=allow)]
    (result,) = ask(ApiKey.UPDATE_FEATURES, {"feature_updates": updates}, 0).results
    assert words in result.error_message


def test_all_features_are_refused_together_from_version_two_on(ask: Ask) -> None:
    updates = [update("group.version", 1), update("nothing", 1), update("nothing more", 1)]
    answer = ask(ApiKey.UPDATE_FEATURES, {"feature_updates": updates}, 2)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "since the following feature had an error: Invalid update" in answer.error_message


def test_present_levels_are_no_change(ask: Ask) -> None:
    updates = [update("group.version", 1), update("share.version", 1)]
    assert ask(ApiKey.UPDATE_FEATURES, {"feature_updates": updates}, 2).error_code == 0
