"""DescribeCluster (60, KIP-700): the brokers as this listener's clients reach them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import CLUSTER, OPERATIONS_NOT_REQUESTED
from tidemark.model.errors import ErrorCode
from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.facts import BrokerFacts
from broker.shell.request_context import RequestContext

BROKERS: Final = 1
CONTROLLERS: Final = 2
FENCED_FROM: Final = 2
"""First version that can mark a broker as fenced (KIP-1073)."""


async def handle(
    facts: BrokerFacts, metadata: MetadataCache, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Describe live brokers, and on request the fenced ones. The controller id names a broker that
    relays to the controller.
    """
    refused = _refusal(request)
    if refused is not None:
        error_code, message = refused
        return {"error_code": int(error_code), "error_message": message, "brokers": []}
    with_fenced = context.api_version >= FENCED_FROM and request.include_fenced_brokers
    operations = OPERATIONS_NOT_REQUESTED
    if request.include_cluster_authorized_operations:
        operations = facts.authorizer.authorized_operations(context.requester, CLUSTER)
    return {
        "error_code": int(ErrorCode.NONE),
        "error_message": None,
        "endpoint_type": BROKERS,
        "cluster_id": metadata.image.cluster_id,
        "controller_id": int(facts.broker_id),
        "brokers": list(_brokers(metadata, context.listener, with_fenced=with_fenced)),
        "cluster_authorized_operations": operations,
    }


def _refusal(request: Struct) -> tuple[ErrorCode, str] | None:
    if request.endpoint_type == CONTROLLERS:
        return (
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "controllers are asked over gRPC and REST; this endpoint describes brokers",
        )
    if request.endpoint_type != BROKERS:
        return (
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            f"Unsupported endpoint type {request.endpoint_type}",
        )
    return None


def _brokers(
    metadata: MetadataCache, listener: str, *, with_fenced: bool
) -> Iterator[dict[str, object]]:
    for broker_id, broker in sorted(metadata.image.brokers.items()):
        endpoint = broker.endpoint(listener)
        if endpoint is None or (broker.fenced and not with_fenced):
            continue
        yield {
            "broker_id": int(broker_id),
            "host": endpoint.host,
            "port": endpoint.port,
            "rack": broker.rack or None,
            "is_fenced": broker.fenced,
        }
