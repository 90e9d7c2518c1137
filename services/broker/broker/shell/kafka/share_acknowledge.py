"""ShareAcknowledge (79), versions 1 and 2: answered once the acknowledgements are written."""

from functools import partial

from tidemark.kafka.apis import ApiKey
from tidemark.kafka.headers import RequestHeader
from tidemark.kafka.share_requests import ShareAcknowledgeRequest, read_share_acknowledge_request
from tidemark.kafka.share_responses import (
    NO_LEADER,
    ShareAcknowledgeResult,
    write_share_acknowledge_response,
)
from tidemark.model.ids import TopicId

from broker.core.share.acknowledgement import DONE
from broker.core.share.sessions import SessionKey, SessionRefusal, ShareSession
from broker.shell.kafka.share_parts import (
    ShareParts,
    acknowledge,
    endpoints_of,
    leader_of,
    refused_request,
)
from broker.shell.listener.connection import Connection
from broker.shell.share.answers import PendingAnswers


def handle(
    parts: ShareParts, connection: Connection, header: RequestHeader, body: memoryview
) -> None:
    """Apply all acknowledgements now; answer when the last of them is written."""
    request = read_share_acknowledge_request(body, header.api_version)
    session = _session(parts, connection, request)
    if isinstance(session, SessionRefusal):
        parts.counters.request_errors[ApiKey.SHARE_ACKNOWLEDGE] += 1
        connection.answer(
            header,
            write_share_acknowledge_response(
                header.api_version,
                error_code=int(session.error_code),
                error_message=session.message,
            ),
        )
        return
    answers = acknowledge(
        parts, connection, header.api_version, session, request.topics, renews=request.renews
    )
    if session.is_closing:
        parts.shares.close(session)
    write = partial(_answer, parts, connection, header, request, answers)
    if answers.is_complete:
        connection.answer(header, write())
        return
    reply = connection.later(header)
    answers.on_complete = lambda: reply.send([write()])
    reply.on_gone = partial(_forget, answers)


def _forget(answers: PendingAnswers) -> None:
    answers.on_complete = None


def _session(
    parts: ShareParts, connection: Connection, request: ShareAcknowledgeRequest
) -> ShareSession | SessionRefusal:
    refused = refused_request(parts, connection, request.group_id, request.member_id)
    if refused is not None:
        return refused
    assert request.group_id is not None, "it was checked"
    assert request.member_id is not None, "it was checked"
    key = SessionKey(request.group_id, request.member_id)
    return parts.shares.sessions.acknowledge(key, request.session_epoch, connection)


def _answer(
    parts: ShareParts,
    connection: Connection,
    header: RequestHeader,
    request: ShareAcknowledgeRequest,
    answers: PendingAnswers,
) -> bytes:
    assert request.group_id is not None, "it was checked"
    topics: dict[bytes, list[ShareAcknowledgeResult]] = {}
    leaders: set[int] = set()
    for topic_id, partitions in request.topics:
        for partition, _ in partitions:
            key = (TopicId(topic_id), partition)
            code, message = answers.answers.get(key, DONE)
            leader = leader_of(parts, key, code)
            if leader is not NO_LEADER:
                leaders.add(leader[0])
            result = ShareAcknowledgeResult(partition, int(code), message, leader)
            topics.setdefault(topic_id, []).append(result)
    return write_share_acknowledge_response(
        header.api_version,
        throttle_time_ms=parts.facts.quotas.request_ms(
            connection.requester.principal, header.client_id
        ),
        lock_ms=parts.shares.config_of(request.group_id).record_lock_duration_ms,
        topics=list(topics.items()),
        node_endpoints=endpoints_of(parts, connection, leaders),
    )
