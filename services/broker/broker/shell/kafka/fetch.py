"""Fetch (1), versions 4 to 18: sessions (KIP-227), long polls, topic ids, records as slices of
files.
"""

from typing import Final

from tidemark.kafka.apis import ApiKey
from tidemark.kafka.fetch import (
    FetchPartition,
    FetchRequest,
    read_fetch_request,
    write_fetch_response_parts,
)
from tidemark.kafka.headers import RequestHeader
from tidemark.model.authorization import CLUSTER, Operation
from tidemark.model.errors import ErrorCode

from broker.core.fetch_sessions import FetchPlan
from broker.shell.kafka.fetching import Fetch, FetchParts
from broker.shell.kafka.near_fetch import NearFetch
from broker.shell.kafka.replica_fetch import ReplicaFetch
from broker.shell.listener.connection import Connection

RACK_FROM: Final = 11
TOPIC_IDS_FROM: Final = 13


def handle(
    parts: FetchParts, connection: Connection, header: RequestHeader, body: memoryview
) -> None:
    """Answer by a session or in full, now or later."""
    request = read_fetch_request(body, header.api_version)
    plan = _plan(parts, connection, header, request)
    if isinstance(plan, ErrorCode):
        parts.counters.request_errors[ApiKey.FETCH] += 1
        pieces = write_fetch_response_parts(header.api_version, error_code=int(plan))
        connection.answer(header, pieces[0])
        return
    if request.replica_id >= 0:
        kind: type[Fetch] = ReplicaFetch
    elif parts.read_replicas is not None and header.api_version >= RACK_FROM:
        kind = NearFetch
    else:
        kind = Fetch
    kind(parts, connection, header, request, plan).start()


def _plan(
    parts: FetchParts, connection: Connection, header: RequestHeader, request: FetchRequest
) -> FetchPlan[FetchPartition] | ErrorCode:
    """Return the plan of what to read, by the request and its session; an error answers the whole
    request.
    """
    if request.replica_id >= 0 and not parts.facts.authorizer.authorize(
        connection.requester, Operation.CLUSTER_ACTION, CLUSTER
    ):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    wanted = [
        ((topic, topic_id, one.partition), one)
        for topic, topic_id, partitions in request.topics
        for one in partitions
    ]
    if request.session_epoch == -1 and request.session_id == 0:
        return FetchPlan(None, incremental=False, named=wanted)
    forgotten = [
        (topic, topic_id, partition)
        for topic, topic_id, partitions in request.forgotten
        for partition in partitions
    ]
    return parts.fetch_sessions.begin(
        request.session_id,
        request.session_epoch,
        wanted,
        forgotten,
        by_id=header.api_version >= TOPIC_IDS_FROM,
        now=parts.facts.clock.now_ms(),
        asker=(
            request.replica_id,
            request.replica_epoch,
            request.isolation_level,
            connection.requester,
        ),
    )
