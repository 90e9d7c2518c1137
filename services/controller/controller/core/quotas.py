"""Decisions on client quotas (KIP-546). Each entity succeeds or fails alone."""

from typing import Final

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.metadata import ClusterDelta
from tidemark.model.quotas import (
    DEFAULT,
    QuotaEntity,
    QuotaValues,
    check_key,
    read_entity,
    read_value,
)

from controller.core.cluster import Change, Cluster
from controller.core.effects import QuotaResult, QuotaResults
from controller.core.inputs import AlterQuotas, QuotaAlteration

ENTITIES_MAX: Final = 10_000
"""Number of entities with quotas. All of them are part of every snapshot."""


def decide_quotas(cluster: Cluster, request: AlterQuotas) -> tuple[Change | None, QuotaResults]:
    """Return the change of quotas, if any, and a result for each entry, in order."""
    present = cluster.image.quotas
    draft: dict[QuotaEntity, QuotaValues] = {}
    results = []
    for entry in request.entries:
        try:
            entity = _checked(entry.entity)
            after = _after(draft.get(entity, present.get(entity, {})), entry)
            if after and entity not in present and entity not in draft:
                _check_count(len(present) + len(draft))
            draft[entity] = after
        except TidemarkError as refused:
            results.append(QuotaResult(refused.code, refused.message))
        else:
            results.append(QuotaResult())
    made = {entity: after for entity, after in draft.items() if after != present.get(entity, {})}
    change = Change(ClusterDelta(quotas_changed=made)) if made else None
    return None if request.validate_only else change, QuotaResults(tuple(results))


def _checked(entity: QuotaEntity) -> QuotaEntity:
    """Return the entity in its usual form. Raises INVALID_REQUEST."""
    return read_entity(
        [(one, None if name == DEFAULT else name) for one, name in entity.parts.items()]
    )


def _after(before: QuotaValues, entry: QuotaAlteration) -> QuotaValues:
    """Return the values of an entity after an alteration. Raises INVALID_REQUEST."""
    after = dict(before)
    for key in (*entry.removed, *entry.values):
        check_key(entry.entity, key)
    for key in entry.removed:
        after.pop(key, None)
    for key, value in entry.values.items():
        after[key] = read_value(key, value)
    return after


def _check_count(count: int) -> None:
    if count >= ENTITIES_MAX:
        raise TidemarkError(
            ErrorCode.INVALID_REQUEST,
            f"{ENTITIES_MAX} entities have quotas: remove some, or use defaults",
        )
