"""The responses ShareFetch (78) and ShareAcknowledge (79), versions 1 and 2, written by a broker.

A ShareFetch response is written in pieces between which sendfile sends records.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidemark.kafka.primitives import (
    INT16,
    INT32,
    NodeEndpoint,
    compact_count_bytes,
    compact_string_bytes,
    node_endpoints_bytes,
    uvarint,
)

NO_LEADER: Final = (0, 0)
"""Current leader of a partition whose error does not concern it: the defaults of Kafka."""
_LOCK_MS_FROM: Final = 2
"""First version of the ShareAcknowledge response with the duration of locks."""

_HEAD: Final = struct.Struct(">ih")
_RESULT: Final = struct.Struct(">ih")
_LEADER: Final = struct.Struct(">iib")
_ACQUIRED: Final = struct.Struct(">qqhb")
_WITHOUT_MESSAGES: Final = struct.Struct(">ihBhBiib")
"""Result of a partition whose messages are null, up to its leader."""
_NULL: Final = compact_string_bytes(None)
_NO_ENDPOINTS: Final = node_endpoints_bytes(())
_NO_TAGS: Final = b"\x00"


class ShareFetchResult(NamedTuple):
    """Result for one partition, without its records.

    ``current_leader``: (leader id, leader epoch); ``acquired``: (first offset, last offset,
    delivery count).
    """

    partition: int
    error_code: int = 0
    error_message: str | None = None
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    current_leader: tuple[int, int] = NO_LEADER
    acquired: Sequence[tuple[int, int, int]] = ()
    records_bytes: int = 0


class ShareAcknowledgeResult(NamedTuple):
    """Result for one partition."""

    partition: int
    error_code: int = 0
    error_message: str | None = None
    current_leader: tuple[int, int] = NO_LEADER


def write_share_fetch_response_parts(
    *,
    error_code: int = 0,
    error_message: str | None = None,
    throttle_time_ms: int = 0,
    lock_ms: int = 0,
    topics: Sequence[tuple[bytes, Sequence[ShareFetchResult]]] = (),
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[bytes]:
    """Return N + 1 pieces for N partitions. Piece i precedes partition i's ``records_bytes`` of
    records; the last piece ends the response. ``topics``: (topic id, results).
    """
    pieces: list[bytes] = []
    pending = _HEAD.pack(throttle_time_ms, error_code)
    pending += _NULL if error_message is None else compact_string_bytes(error_message)
    pending += INT32.pack(lock_ms) + uvarint(len(topics) + 1)
    for topic_id, results in topics:
        pending += topic_id + uvarint(len(results) + 1)
        for one in results:
            pieces.append(pending + _before_records(one))
            pending = uvarint(len(one.acquired) + 1)
            for first, last, delivery_count in one.acquired:
                pending += _ACQUIRED.pack(first, last, delivery_count, 0)
            pending += _NO_TAGS
        pending += _NO_TAGS
    if node_endpoints:
        pieces.append(pending + node_endpoints_bytes(node_endpoints) + _NO_TAGS)
    else:
        pieces.append(pending + _NO_ENDPOINTS + _NO_TAGS)
    return pieces


def _before_records(one: ShareFetchResult) -> bytes:
    partition, code, message, acknowledge_code, acknowledge_message, leader, _, size_bytes = one
    if message is None and acknowledge_message is None:
        head = _WITHOUT_MESSAGES.pack(partition, code, 0, acknowledge_code, 0, *leader, 0)
        return head + uvarint(size_bytes + 1)
    return (
        _RESULT.pack(partition, code)
        + compact_string_bytes(message)
        + INT16.pack(acknowledge_code)
        + compact_string_bytes(acknowledge_message)
        + _LEADER.pack(*leader, 0)
        + uvarint(size_bytes + 1)
    )


def write_share_acknowledge_response(
    version: int,
    *,
    error_code: int = 0,
    error_message: str | None = None,
    throttle_time_ms: int = 0,
    lock_ms: int = 0,
    topics: Sequence[tuple[bytes, Sequence[ShareAcknowledgeResult]]] = (),
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """Return the body of a response. ``topics``: (topic id, results)."""
    pieces = [_HEAD.pack(throttle_time_ms, error_code), compact_string_bytes(error_message)]
    if version >= _LOCK_MS_FROM:
        pieces.append(INT32.pack(lock_ms))
    pieces.append(compact_count_bytes(len(topics)))
    for topic_id, results in topics:
        pieces += (topic_id, compact_count_bytes(len(results)))
        for one in results:
            pieces += (
                _RESULT.pack(one.partition, one.error_code),
                compact_string_bytes(one.error_message),
                _LEADER.pack(*one.current_leader, 0),
                _NO_TAGS,
            )
        pieces.append(_NO_TAGS)
    pieces += (node_endpoints_bytes(node_endpoints), _NO_TAGS)
    return b"".join(pieces)
