"""ListOffsets (2), versions 1 to 11: marks at once, times through a worker."""

from collections import Counter
from typing import Final

from tidemark.kafka.headers import RequestHeader
from tidemark.kafka.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResult,
    ListOffsetsTopicResult,
    is_unknown_mark,
    read_list_offsets_request,
    write_list_offsets_response,
)
from tidemark.model.authorization import Operation, topic_resource
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID

from broker.core.list_offsets import FoundOffset, at_mark, at_replica_mark
from broker.shell.facts import BrokerFacts
from broker.shell.kafka.fetching import READ_COMMITTED
from broker.shell.listener.connection import Connection
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.partitions.offset_lookup import OffsetLookup
from broker.shell.partitions.table import PartitionTable

NOT_AVAILABLE_FROM: Final = 5
DEBUGGING_REPLICA: Final = -2
"""With this replica id any replica answers about its own log."""

Timed = tuple[list[ListOffsetsResult], int, HostedPartition, int]
"""Question that must be looked up: place of its answer (list, index), its partition, and the
time.
"""


def handle(
    facts: BrokerFacts,
    table: PartitionTable,
    lookup: OffsetLookup,
    connection: Connection,
    header: RequestHeader,
    body: memoryview,
) -> None:
    """Answer now if every question is about a mark, otherwise when the last one is looked up."""
    version = header.api_version
    request = read_list_offsets_request(body, version)
    topics: list[ListOffsetsTopicResult] = []
    timed: list[Timed] = []
    asked = Counter(
        (topic, query.partition) for topic, queries in request.topics for query in queries
    )
    for topic, queries in request.topics:
        results: list[ListOffsetsResult] = []
        topics.append((topic, results))
        allowed = facts.authorizer.authorize(
            connection.requester, Operation.DESCRIBE, topic_resource(topic)
        )
        for query in queries:
            if not allowed:
                found: FoundOffset | None = FoundOffset(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif asked[topic, query.partition] > 1:
                found = FoundOffset(ErrorCode.INVALID_REQUEST)
            elif is_unknown_mark(query.timestamp, version):
                found = FoundOffset(ErrorCode.UNSUPPORTED_VERSION)
            else:
                hosted = table.find(topic, NO_TOPIC_ID, query.partition)
                found = _at_once(hosted, query, request)
                if found is None and not isinstance(hosted, ErrorCode):
                    timed.append((results, len(results), hosted, query.timestamp))
            results.append(_result(version, query.partition, found or FoundOffset()))
    if not timed:
        throttle_ms = facts.quotas.request_ms(connection.requester.principal, header.client_id)
        connection.answer(header, write_list_offsets_response(version, topics, throttle_ms))
        return
    reply = connection.later(header)
    committed = request.isolation_level == READ_COMMITTED

    async def look_up() -> None:
        for results, index, hosted, timestamp in timed:
            found = await lookup.at_time(
                hosted, timestamp, lane=connection, read_committed=committed
            )
            results[index] = _result(version, results[index].partition, found)
        throttle_ms = facts.quotas.request_ms(connection.requester.principal, header.client_id)
        reply.send([write_list_offsets_response(version, topics, throttle_ms)])

    connection.start(look_up())


def _at_once(
    hosted: HostedPartition | ErrorCode, query: ListOffsetsPartition, request: ListOffsetsRequest
) -> FoundOffset | None:
    """Return the answer, or None if the log must be read."""
    if isinstance(hosted, ErrorCode):
        return FoundOffset(hosted)
    if request.replica_id == DEBUGGING_REPLICA:
        own = at_replica_mark(
            hosted.partition,
            query.timestamp,
            leader_epoch_expected=query.current_leader_epoch,
        )
        if own is not None:
            return own
    return at_mark(
        hosted.partition,
        query.timestamp,
        leader_epoch_expected=query.current_leader_epoch,
        read_committed=request.isolation_level == READ_COMMITTED,
    )


def _result(version: int, partition: int, found: FoundOffset) -> ListOffsetsResult:
    error_code, offset, timestamp, leader_epoch = found
    if error_code is ErrorCode.OFFSET_NOT_AVAILABLE and version < NOT_AVAILABLE_FROM:
        error_code = ErrorCode.LEADER_NOT_AVAILABLE  # retriable for older clients as well (KIP-207)
    return ListOffsetsResult(partition, int(error_code), timestamp, offset, leader_epoch)
