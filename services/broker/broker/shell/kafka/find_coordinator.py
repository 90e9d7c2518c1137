"""FindCoordinator (10): the coordinator of a group or a transaction.

A group's coordinator is the broker that leads its partition of __consumer_offsets. Share groups and
transactions belong to coordinators to which every broker relays. For a share group the same broker
is named as for any group. For a transactional id a broker is named by the id's hash, so that the
clients of one id use one broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidemark.codec.java_hash import shard_for_name
from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation, group_resource, transactional_id_resource
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerId
from tidemark.model.metadata import BrokerImage
from tidemark.model.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.cluster.internal_topics import InternalTopics
from broker.shell.cluster.live_brokers import LiveBrokers
from broker.shell.facts import BrokerFacts
from broker.shell.request_context import RequestContext

BATCHED_FROM: Final = 4
"""Several keys in a request (KIP-699)."""
GROUP: Final = 0
TRANSACTION: Final = 1
_TOPICS: Final = {GROUP: CONSUMER_OFFSETS, TRANSACTION: TRANSACTION_STATE}


async def handle(
    facts: BrokerFacts,
    metadata: MetadataCache,
    internal_topics: InternalTopics,
    live: LiveBrokers,
    request: Struct,
    context: RequestContext,
) -> dict[str, object]:
    """Return one answer for each key."""
    if context.api_version >= BATCHED_FROM:
        keys = request.coordinator_keys
        found = await _coordinators(
            facts, metadata, internal_topics, live, context, request.key_type, keys
        )
        return {"coordinators": [{"key": key, **one} for key, one in zip(keys, found, strict=True)]}
    (found_one,) = await _coordinators(
        facts, metadata, internal_topics, live, context, request.key_type, [request.key]
    )
    return found_one


async def _coordinators(
    facts: BrokerFacts,
    metadata: MetadataCache,
    internal_topics: InternalTopics,
    live: LiveBrokers,
    context: RequestContext,
    key_type: int,
    keys: Sequence[str],
) -> list[dict[str, object]]:
    topic = _TOPICS.get(key_type)
    if topic is None:
        words = f"key type {key_type}? A group of any type has the key type {GROUP}."
        return [_nobody(ErrorCode.INVALID_REQUEST, words) for _ in keys]
    refused = [_refused(facts, context, key_type, key) for key in keys]
    # Who may ask for no coordinator makes no topic.
    missing = None if all(refused) else await internal_topics.ensure(context, topic)
    if missing is not None:
        nobody = _nobody(missing.code, missing.message)
        return [refusal or nobody for refusal in refused]
    return [
        refusal or _coordinator(metadata, live, context, key_type, key)
        for key, refusal in zip(keys, refused, strict=True)
    ]


def _refused(
    facts: BrokerFacts, context: RequestContext, key_type: int, key: str
) -> dict[str, object] | None:
    resource, code = (
        (group_resource(key), ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if key_type == GROUP
        else (transactional_id_resource(key), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    )
    allowed = facts.authorizer.authorize(context.requester, Operation.DESCRIBE, resource)
    return None if allowed else _nobody(code, "")


def _coordinator(
    metadata: MetadataCache, live: LiveBrokers, context: RequestContext, key_type: int, key: str
) -> dict[str, object]:
    if key_type == GROUP:
        broker = coordinator_of_group(metadata, key)
    else:
        broker = broker_of_transactional_id(metadata, live, key)
    # Never a fenced broker, as in Metadata: a client that gave the broker up would take it as the
    # coordinator again.
    endpoint = None if broker is None or broker.fenced else broker.endpoint(context.listener)
    if broker is None or endpoint is None:
        return _nobody(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no leader at the moment; ask again.")
    return {
        "error_code": int(ErrorCode.NONE),
        "error_message": "",
        "node_id": broker.broker_id,
        "host": endpoint.host,
        "port": endpoint.port,
    }


def coordinator_of_group(metadata: MetadataCache, group_id: str) -> BrokerImage | None:
    """Return the broker that leads a group's partition of __consumer_offsets, or None."""
    topic = metadata.image.topics.get(CONSUMER_OFFSETS)
    if topic is None:
        return None
    leader: BrokerId = topic.partitions[shard_for_name(group_id, len(topic.partitions))].leader
    return metadata.image.brokers.get(leader)


def broker_of_transactional_id(
    metadata: MetadataCache, live: LiveBrokers, transactional_id: str
) -> BrokerImage | None:
    """Return the broker that is named for a transactional id: any could serve it, but all clients
    of one id use one broker. None while no broker is live.
    """
    brokers = sorted(live.epochs)
    if not brokers:
        return None
    return metadata.image.brokers[brokers[shard_for_name(transactional_id, len(brokers))]]


def _nobody(code: ErrorCode, words: str) -> dict[str, object]:
    return {
        "error_code": int(code),
        "error_message": words,
        "node_id": -1,
        "host": "",
        "port": -1,
    }
