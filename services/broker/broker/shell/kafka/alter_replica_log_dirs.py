"""AlterReplicaLogDirs (34): moves replicas of this broker to other log directories (KIP-113)."""

from __future__ import annotations

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import CLUSTER, Operation
from tidemark.model.errors import ErrorCode

from broker.shell.facts import BrokerFacts
from broker.shell.partitions.directory_moves import DirectoryMoves
from broker.shell.request_context import RequestContext


async def handle(
    facts: BrokerFacts, moves: DirectoryMoves, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Begin the moves, and answer for each partition. The answer does not wait for the copies."""
    authorized = facts.authorizer.authorize(context.requester, Operation.ALTER, CLUSTER)
    results: dict[str, list[dict[str, object]]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            answers = results.setdefault(topic.name, [])
            for partition in topic.partitions:
                error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                if authorized:
                    error_code = moves.alter(directory.path, topic.name, partition)
                answers.append({"partition_index": partition, "error_code": int(error_code)})
    return {
        "results": [
            {"topic_name": name, "partitions": answers} for name, answers in results.items()
        ]
    }
