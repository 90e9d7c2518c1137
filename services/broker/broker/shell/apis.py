"""All APIs of this broker's Kafka listeners: the hot ones, and the long tail."""

from tidemark.kafka.apis import ApiKey

from broker.shell.kafka import (
    api_versions,
    fetch,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from broker.shell.kafka.registry import LONG_TAIL
from broker.shell.node import BrokerNode
from broker.shell.request_router import RequestRouter


def make_router(node: BrokerNode) -> RequestRouter:
    """The router with every handler there is."""
    return RequestRouter(
        node,
        hot={
            ApiKey.PRODUCE: produce.handle,
            ApiKey.FETCH: fetch.handle,
            ApiKey.LIST_OFFSETS: list_offsets.handle,
            ApiKey.METADATA: metadata.handle,
            ApiKey.API_VERSIONS: api_versions.handle,
        },
        long_tail={**LONG_TAIL, **dict(offset_for_leader_epoch.HANDLED)},
    )
