"""Types of resources that have configuration, and ListConfigResources (74), which lists them."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import CLUSTER, Operation
from tidemark.model.errors import ErrorCode
from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.facts import BrokerFacts
from broker.shell.request_context import RequestContext


class ConfigResourceType(IntEnum):
    """org.apache.kafka.common.config.ConfigResource.Type."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


LISTED: Final = (
    ConfigResourceType.TOPIC,
    ConfigResourceType.BROKER,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.GROUP,
)

TYPES_FROM: Final = 1
"""First version that names types; version 0 lists client metrics (KIP-1000)."""


async def handle(
    facts: BrokerFacts, metadata: MetadataCache, request: Struct, context: RequestContext
) -> dict[str, object]:
    """List the names of resources, by type and then by name."""
    if not facts.authorizer.authorize(context.requester, Operation.DESCRIBE_CONFIGS, CLUSTER):
        return _answer(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
    asked = {ConfigResourceType.CLIENT_METRICS.value}
    if context.api_version >= TYPES_FROM:
        asked = set(request.resource_types) or {int(listed) for listed in LISTED}
    if not asked <= {int(listed) for listed in LISTED}:
        return _answer(ErrorCode.UNSUPPORTED_VERSION, [])
    named = []
    if ConfigResourceType.TOPIC in asked:
        named += [(ConfigResourceType.TOPIC, name) for name in sorted(metadata.image.topics)]
    for of_brokers in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        if of_brokers in asked:
            named += [(of_brokers, str(broker)) for broker in sorted(metadata.image.brokers)]
    if ConfigResourceType.CLIENT_METRICS in asked:
        subscriptions = sorted(metadata.image.client_metrics)
        named += [(ConfigResourceType.CLIENT_METRICS, name) for name in subscriptions]
    if ConfigResourceType.GROUP in asked:
        named += [(ConfigResourceType.GROUP, name) for name in sorted(metadata.image.group_configs)]
    return _answer(ErrorCode.NONE, named)


def _answer(
    error_code: ErrorCode, named: list[tuple[ConfigResourceType, str]]
) -> dict[str, object]:
    return {
        "error_code": int(error_code),
        "config_resources": [
            {"resource_name": name, "resource_type": int(resource_type)}
            for resource_type, name in named
        ],
    }
