"""AlterPartitionReassignments (45), relayed to the controller, and ListPartitionReassignments (46),
from this broker's metadata (KIP-455).
"""

from __future__ import annotations

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import CLUSTER, Operation
from tidemark.model.errors import ErrorCode
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark_wire.v1 import controller_pb2 as pb

from broker.shell.cluster.controller_relay import ControllerRelay, by_topic, caller_of
from broker.shell.facts import BrokerFacts
from broker.shell.request_context import RequestContext
from broker.shell.wire_mapping import write_caller


async def alter(
    facts: BrokerFacts, relay: ControllerRelay, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Return one result for each partition; null replicas cancel."""
    if not facts.authorizer.authorize(context.requester, Operation.ALTER, CLUSTER):
        return _refused("responses")
    allow = getattr(request, "allow_replication_factor_change", True)
    message = pb.AlterReassignmentsRequest(
        caller=write_caller(caller_of(context)),
        partitions=[
            pb.AlterReassignmentsRequest.Partition(
                topic=topic.name,
                partition=one.partition_index,
                replicas=one.replicas or (),
                cancel=one.replicas is None,
            )
            for topic in request.topics
            for one in topic.partitions
        ],
        timeout_ms=request.timeout,
        allow_replication_factor_change=allow is None or bool(allow),
    )
    relayed = await relay.partitions("AlterReassignments", message, request.timeout)
    return {
        "allow_replication_factor_change": message.allow_replication_factor_change,
        "error_code": int(relayed.error_code),
        "error_message": relayed.message,
        "responses": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": one.partition,
                        "error_code": int(one.error_code),
                        "error_message": one.message,
                    }
                    for one in answers
                ],
            }
            for topic, answers in by_topic(relayed.partitions).items()
        ],
    }


async def list_ongoing(
    facts: BrokerFacts, metadata: MetadataCache, request: Struct, context: RequestContext
) -> dict[str, object]:
    """List the reassignments under way, of the partitions named, or of all."""
    if not facts.authorizer.authorize(context.requester, Operation.DESCRIBE, CLUSTER):
        return _refused("topics")
    wanted = None
    if request.topics is not None:
        wanted = {(one.name, index) for one in request.topics for index in one.partition_indexes}
    topics: list[dict[str, object]] = []
    for topic in metadata.image.topics.values():
        moving = [
            {
                "partition_index": one.partition,
                "replicas": list(one.replicas),
                "adding_replicas": list(one.adding),
                "removing_replicas": list(one.removing),
            }
            for one in topic.partitions
            if one.is_reassigning and (wanted is None or (topic.name, one.partition) in wanted)
        ]
        if moving:
            topics.append({"name": topic.name, "partitions": moving})
    return {"error_code": 0, "error_message": None, "topics": topics}


def _refused(results: str) -> dict[str, object]:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return {"error_code": int(code), "error_message": "Authorization failed.", results: []}
