"""DescribeQuorum (55, KIP-595, KIP-836, KIP-853): the active controller, and who follows it.

The log of Kafka's quorum is the metadata feed here: its epoch is that of the controller, and an
offset is a version of the metadata. The voter is the active controller, because ZooKeeper keeps the
metadata and elects; standby controllers keep none. The observers are the brokers, each at the
version that it has applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import CLUSTER, Operation
from tidemark.model.errors import ErrorCode
from tidemark.runtime.service_config import HostPort

from broker.shell.cluster.controller_relay import ControllerRelay, caller_of
from broker.shell.facts import BrokerFacts
from broker.shell.request_context import RequestContext
from broker.shell.wire_mapping import FeedDescription, FeedSubscriber

TOPIC: Final = "__cluster_metadata"
PARTITION: Final = 0
LISTENER: Final = "GRPC"
"""Name of the controller's listener: clients ask it through brokers, over Kafka's protocol."""
UNKNOWN_TIME: Final = -1
_BROKER: Final = "broker-"
"""Beginning of the names of brokers among the subscribers."""


async def handle(
    facts: BrokerFacts, relay: ControllerRelay, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Describe the one partition of the quorum, as the active controller sees it. Raises
    TidemarkError if no controller answers.
    """
    if not facts.authorizer.authorize(context.requester, Operation.DESCRIBE, CLUSTER):
        return _failed(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Authorization failed.")
    named = {
        (topic.topic_name, one.partition_index)
        for topic in request.topics
        for one in topic.partitions
    }
    if named != {(TOPIC, PARTITION)}:
        return {"topics": [_unknown(topic) for topic in request.topics]}
    feed = await relay.feed(caller_of(context))
    if feed.error_code is not ErrorCode.NONE:
        return _failed(feed.error_code, None)
    partition = _partition(feed, facts.clock.wall_ms())
    return {
        "topics": [{"topic_name": TOPIC, "partitions": [partition]}],
        "nodes": [{"node_id": feed.controller_id, "listeners": list(_listeners(feed))}],
    }


def _partition(feed: FeedDescription, now_ms: int) -> dict[str, object]:
    active = _replica(feed.controller_id, feed.position.version, now_ms)
    return {
        "partition_index": PARTITION,
        "leader_id": feed.controller_id,
        "leader_epoch": feed.position.controller_epoch,
        "high_watermark": feed.position.version,
        "current_voters": [active],
        "observers": [
            _replica(
                broker_id,
                _version(feed, one),
                now_ms if one.applied >= feed.position else UNKNOWN_TIME,
            )
            for broker_id, one in sorted(_brokers(feed).items())
        ],
    }


def _brokers(feed: FeedDescription) -> dict[int, FeedSubscriber]:
    """Return the subscribers that are brokers; of two streams of one, the one that is further."""
    found: dict[int, FeedSubscriber] = {}
    for one in sorted(feed.subscribers, key=lambda each: each.applied):
        number = one.name.removeprefix(_BROKER)
        if one.name.startswith(_BROKER) and number.isdecimal():
            found[int(number)] = one
    return found


def _version(feed: FeedDescription, subscriber: FeedSubscriber) -> int:
    """Return the version that a subscriber has applied; 0 for metadata of an earlier controller."""
    is_current = subscriber.applied.controller_epoch == feed.position.controller_epoch
    return subscriber.applied.version if is_current else 0


def _replica(replica_id: int, log_end: int, caught_up_ms: int) -> dict[str, object]:
    return {
        "replica_id": replica_id,
        "log_end_offset": log_end,
        "last_fetch_timestamp": caught_up_ms,
        "last_caught_up_timestamp": caught_up_ms,
    }


def _listeners(feed: FeedDescription) -> Iterator[dict[str, object]]:
    if feed.grpc_endpoint:
        host, port = HostPort.parse(feed.grpc_endpoint)
        yield {"name": LISTENER, "host": host, "port": port}


def _failed(code: ErrorCode, message: str | None) -> dict[str, object]:
    return {"error_code": int(code), "error_message": message}


def _unknown(topic: Struct) -> dict[str, object]:
    code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return {
        "topic_name": topic.topic_name,
        "partitions": [
            {"partition_index": one.partition_index, "error_code": code} for one in topic.partitions
        ],
    }
