"""UpdateFeatures (57, KIP-584): answered by this broker, since no level can be changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tidemark.kafka.api_versions import FinalizedFeature
from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import CLUSTER, Operation
from tidemark.model.errors import ErrorCode

from broker.core.feature_updates import FeatureLevels, FeatureUpdate, UpgradeType, refusal
from broker.shell.facts import BrokerFacts
from broker.shell.kafka.api_versions import SUPPORTED
from broker.shell.request_context import RequestContext

TYPED_FROM: Final = 1
"""First version with a type of upgrade; before, a downgrade is allowed or not."""
ALL_OR_NONE_FROM: Final = 2
"""First version without a result for each feature."""


async def handle(
    facts: BrokerFacts,
    finalized: Sequence[FinalizedFeature],
    request: Struct,
    context: RequestContext,
) -> dict[str, object]:
    """Answer with the refusal of each feature, or from version 2 with the first one.
    ``finalized``: what ApiVersions shows.
    """
    if not facts.authorizer.authorize(context.requester, Operation.ALTER, CLUSTER):
        code = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return {"error_code": code, "error_message": "Authorization failed."}
    levels = _levels(finalized)
    outcomes = [
        (update.feature, refusal(update, levels, facts.broker_id))
        for update in _updates(request, context.api_version)
    ]
    if context.api_version < ALL_OR_NONE_FROM:
        return {"results": [_result(feature, refused) for feature, refused in outcomes]}
    first = next((refused for _, refused in outcomes if refused is not None), None)
    if first is None:
        return {}
    return {
        "error_code": int(ErrorCode.INVALID_UPDATE_VERSION),
        "error_message": "The update failed for all features since the following feature had an"
        f" error: {first}",
    }


def _levels(finalized: Sequence[FinalizedFeature]) -> dict[str, FeatureLevels]:
    level_of = {one.name: one.max_version_level for one in finalized}
    return {
        one.name: FeatureLevels(one.min_version, one.max_version, level_of.get(one.name, 0))
        for one in SUPPORTED
    }


def _updates(request: Struct, version: int) -> Iterator[FeatureUpdate]:
    for one in request.feature_updates:
        kind = one.upgrade_type
        if version < TYPED_FROM:
            kind = UpgradeType.SAFE_DOWNGRADE if one.allow_downgrade else UpgradeType.UPGRADE
        yield FeatureUpdate(one.feature, one.max_version_level, kind)


def _result(feature: str, refused: str | None) -> dict[str, object]:
    code = ErrorCode.NONE if refused is None else ErrorCode.INVALID_UPDATE_VERSION
    return {"feature": feature, "error_code": int(code), "error_message": refused}
