"""ElectLeaders (43): preferred or unclean elections (KIP-460); relayed to the controller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import CLUSTER, Operation
from tidemark.model.errors import ErrorCode
from tidemark_wire.v1 import controller_pb2 as pb

from broker.shell.cluster.controller_relay import ControllerRelay, by_topic, caller_of
from broker.shell.facts import BrokerFacts
from broker.shell.request_context import RequestContext
from broker.shell.wire_mapping import write_caller

PREFERRED: Final = 0
UNCLEAN: Final = 1


async def handle(
    facts: BrokerFacts, relay: ControllerRelay, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Return one result for each partition; for a request about all, only partitions whose leader
    is not the preferred one.
    """
    named = request.topic_partitions
    if not facts.authorizer.authorize(context.requester, Operation.ALTER, CLUSTER):
        return _failed(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Authorization failed.", named)
    election_type = getattr(request, "election_type", PREFERRED) or PREFERRED
    if election_type not in (PREFERRED, UNCLEAN):
        words = f"Unknown election type {election_type}"
        return _failed(ErrorCode.INVALID_REQUEST, words, named)
    message = pb.ElectLeadersRequest(
        caller=write_caller(caller_of(context)),
        election_type=election_type,
        all_partitions=named is None,
        partitions=[
            pb.ElectLeadersRequest.Partition(topic=topic.topic, partition=partition)
            for topic in named or ()
            for partition in topic.partitions
        ],
        timeout_ms=request.timeout,
    )
    relayed = await relay.partitions("ElectLeaders", message, request.timeout)
    if relayed.error_code is not ErrorCode.NONE and not relayed.partitions:
        return _failed(relayed.error_code, relayed.message, named)
    return {
        "error_code": int(relayed.error_code),
        "replica_election_results": [
            {
                "topic": topic,
                "partition_result": [
                    {
                        "partition_id": one.partition,
                        "error_code": int(one.error_code),
                        "error_message": one.message,
                    }
                    for one in answers
                ],
            }
            for topic, answers in by_topic(relayed.partitions).items()
        ],
    }


def _failed(
    code: ErrorCode, message: str | None, named: Sequence[Struct] | None
) -> dict[str, object]:
    """Return the answer to a request that failed as a whole. The partitions named have its error
    too: version 0 has no other place for it.
    """
    return {
        "error_code": int(code),
        "replica_election_results": [
            {
                "topic": topic.topic,
                "partition_result": [
                    {"partition_id": partition, "error_code": int(code), "error_message": message}
                    for partition in topic.partitions
                ],
            }
            for topic in named or ()
        ],
    }
