"""DescribeClientQuotas (48) and AlterClientQuotas (49): quotas of clients (KIP-546). Changes are
relayed to the controller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import CLUSTER, Operation
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.quotas import (
    FilterPart,
    QuotaEntity,
    QuotaValues,
    RawEntity,
    read_entity,
    read_filter,
    select,
)
from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.cluster.controller_relay import ControllerRelay, caller_of
from broker.shell.cluster.quota_mapping import QuotaAlteration, QuotaResult
from broker.shell.facts import BrokerFacts
from broker.shell.request_context import RequestContext


async def describe(
    facts: BrokerFacts, metadata: MetadataCache, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Describe the entities that the filter selects."""
    if not facts.authorizer.authorize(context.requester, Operation.DESCRIBE_CONFIGS, CLUSTER):
        return _undescribed(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Authorization failed.")
    parts = [FilterPart(one.entity_type, one.match_type, one.match) for one in request.components]
    try:
        wanted = read_filter(parts, strict=request.strict)
    except TidemarkError as refused:
        return _undescribed(refused.code, refused.message)
    return {
        "error_code": int(ErrorCode.NONE),
        "error_message": None,
        "entries": [_described(*one) for one in select(metadata.image.quotas, wanted)],
    }


def _undescribed(code: ErrorCode, message: str) -> dict[str, object]:
    return {"error_code": int(code), "error_message": message, "entries": None}


def _described(entity: QuotaEntity, values: QuotaValues) -> dict[str, object]:
    return {
        "entity": [
            {"entity_type": entity_type, "entity_name": name or None}
            for entity_type, name in entity.parts.items()
        ],
        "values": [{"key": key, "value": value} for key, value in sorted(values.items())],
    }


async def alter(
    facts: BrokerFacts, relay: ControllerRelay, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Set and remove quotas, and answer for each entry, in the order of the request."""
    if not facts.authorizer.authorize(context.requester, Operation.ALTER_CONFIGS, CLUSTER):
        denied = QuotaResult(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Authorization failed.")
        return _written(request.entries, [denied] * len(request.entries))
    read = [_alteration(one) for one in request.entries]
    wanted = _without_repeated(read)
    entries = [one for one in wanted if isinstance(one, QuotaAlteration)]
    relayed = iter(
        await relay.quotas(caller_of(context), entries, validate_only=bool(request.validate_only))
    )
    results = [one if isinstance(one, QuotaResult) else next(relayed) for one in wanted]
    return _written(request.entries, results)


def _alteration(wire: Struct) -> QuotaAlteration | QuotaResult:
    """Return one entry, or INVALID_REQUEST for an entity that cannot be and for a key that is named
    twice.
    """
    times = Counter(op.key for op in wire.ops)
    repeated = [key for key, count in times.items() if count > 1]
    try:
        entity = read_entity(_raw(wire))
    except TidemarkError as refused:
        return QuotaResult(refused.code, refused.message)
    if repeated:
        return QuotaResult(ErrorCode.INVALID_REQUEST, f"Duplicate quota key {repeated[0][:100]}")
    return QuotaAlteration(
        entity,
        {op.key: op.value for op in wire.ops if not op.remove},
        tuple(op.key for op in wire.ops if op.remove),
    )


def _without_repeated(
    read: Sequence[QuotaAlteration | QuotaResult],
) -> list[QuotaAlteration | QuotaResult]:
    """Replace the entries of an entity that several name by INVALID_REQUEST. Kafka makes the change
    of the first one, although its answer for the entity is this error.
    """
    times = Counter(one.entity for one in read if isinstance(one, QuotaAlteration))
    return [
        QuotaResult(ErrorCode.INVALID_REQUEST, "Each entity must appear at most once.")
        if isinstance(one, QuotaAlteration) and times[one.entity] > 1
        else one
        for one in read
    ]


def _raw(wire: Struct) -> RawEntity:
    return [(one.entity_type, one.entity_name) for one in wire.entity]


def _written(entries: Sequence[Struct], results: Sequence[QuotaResult]) -> dict[str, object]:
    return {
        "entries": [
            {
                "error_code": int(result.error_code),
                "error_message": result.error_message,
                "entity": [
                    {"entity_type": entity_type, "entity_name": name}
                    for entity_type, name in _raw(entry)
                ],
            }
            for entry, result in zip(entries, results, strict=True)
        ]
    }
