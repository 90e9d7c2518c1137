"""ShareFetch and ShareAcknowledge as a broker reads and writes them, against the general codec."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import read_response, write_request
from tidemark.kafka.primitives import MalformedRequestError, NodeEndpoint
from tidemark.kafka.share_requests import (
    AcknowledgedBatch,
    SharePartitionRequest,
    read_share_acknowledge_request,
    read_share_fetch_request,
)
from tidemark.kafka.share_responses import (
    ShareAcknowledgeResult,
    ShareFetchResult,
    write_share_acknowledge_response,
    write_share_fetch_response_parts,
)

FETCH, ACKNOWLEDGE = int(ApiKey.SHARE_FETCH), int(ApiKey.SHARE_ACKNOWLEDGE)
TOPIC_ID = bytes(range(16))
VERSIONS = [1, 2]
INT32S, INT64S = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
NAMES = st.one_of(st.none(), st.text(max_size=8))
BATCHES = st.lists(
    st.tuples(INT64S, INT64S, st.binary(max_size=4), st.just(0) | INT32S, st.booleans()), max_size=3
)
TOPICS = st.lists(
    st.tuples(
        st.binary(min_size=16, max_size=16), st.lists(st.tuples(INT32S, BATCHES), max_size=3)
    ),
    max_size=3,
)


def plain_topics(topics: Any) -> list[dict[str, Any]]:
    """Topics in the fields of the general codec."""
    return [
        {
            "topic_id": topic_id,
            "partitions": [
                {
                    "partition_index": number,
                    "acknowledgement_batches": [
                        {
                            "first_offset": first,
                            "last_offset": last,
                            "acknowledge_types": [one - 256 * (one > 127) for one in types],
                            "release_delay": delay,
                            "is_unseen": is_unseen,
                        }
                        for first, last, types, delay, is_unseen in batches
                    ],
                }
                for number, batches in partitions
            ],
        }
        for topic_id, partitions in topics
    ]


def named_topics(topics: Any) -> list[Any]:
    return [
        (
            topic_id,
            [
                SharePartitionRequest(number, [AcknowledgedBatch(*batch) for batch in batches])
                for number, batches in partitions
            ],
        )
        for topic_id, partitions in topics
    ]


@pytest.mark.parametrize("version", VERSIONS)
@given(NAMES, NAMES, st.lists(INT32S, min_size=6, max_size=6), TOPICS, st.booleans())
def test_a_fetch_request_is_read_as_it_was_written(
    version: int, group: Any, member: Any, head: list[int], topics: Any, renews: bool
) -> None:
    names = (
        "share_session_epoch",
        "max_wait",
        "min_bytes",
        "max_bytes",
        "max_records",
        "batch_size",
    )
    fields: dict[str, Any] = dict(zip(names, head, strict=True))
    fields |= {"group_id": group, "member_id": member, "topics": plain_topics(topics)}
    fields["forgotten_topics_data"] = [{"topic_id": TOPIC_ID, "partitions": [4, 5]}]
    if version >= 2:
        fields |= {"share_acquire_mode": 1, "is_renew_ack": renews}
    body = memoryview(write_request(FETCH, version, fields))
    found = read_share_fetch_request(body, version)
    assert found[:8] == (group, member, *head)
    assert found[8:10] == ((1, renews) if version >= 2 else (0, False))
    assert found.topics == named_topics(topics)
    assert found.forgotten == [(TOPIC_ID, [4, 5])]


@pytest.mark.parametrize("version", VERSIONS)
@given(NAMES, NAMES, INT32S, TOPICS, st.booleans())
def test_an_acknowledge_request_is_read_as_it_was_written(
    version: int, group: Any, member: Any, epoch: int, topics: Any, renews: bool
) -> None:
    fields: dict[str, Any] = {"group_id": group, "member_id": member}
    fields |= {"share_session_epoch": epoch, "topics": plain_topics(topics)}
    if version >= 2:
        fields["is_renew_ack"] = renews
    body = memoryview(write_request(ACKNOWLEDGE, version, fields))
    found = read_share_acknowledge_request(body, version)
    assert found[:4] == (group, member, epoch, renews and version >= 2)
    assert found.topics == named_topics(topics)


@given(st.binary(max_size=200))
def test_hostile_bytes_are_malformed_and_nothing_else(body: bytes) -> None:
    for read in (read_share_fetch_request, read_share_acknowledge_request):
        for version in VERSIONS:
            try:
                read(memoryview(body), version)
            except MalformedRequestError:
                continue


def test_a_request_with_too_many_elements_is_malformed() -> None:
    partitions = [{"partition_index": 0, "acknowledgement_batches": []}] * (1 << 17)
    topics = [{"topic_id": TOPIC_ID, "partitions": partitions}]
    body = memoryview(write_request(ACKNOWLEDGE, 1, {"member_id": "m", "topics": topics}))
    with pytest.raises(MalformedRequestError, match="elements"):
        read_share_acknowledge_request(body, 1)


def test_a_request_with_too_many_acknowledge_types_is_malformed() -> None:
    batches = [(0, 2**17 - 1, bytes(2**17), 0, False)]
    fields = {"member_id": "m", "topics": plain_topics([(TOPIC_ID, [(0, batches)])])}
    body = memoryview(write_request(ACKNOWLEDGE, 1, fields))
    with pytest.raises(MalformedRequestError, match="elements"):
        read_share_acknowledge_request(body, 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fetch_response_has_its_records_between_its_pieces(version: int) -> None:
    results = [
        ShareFetchResult(0, acquired=[(5, 9, 1), (10, 12, 2)], records_bytes=3),
        ShareFetchResult(1, 6, "not here", 121, "no", (3, 7)),
    ]
    pieces = write_share_fetch_response_parts(
        lock_ms=30_000,
        topics=[(TOPIC_ID, results)],
        node_endpoints=[NodeEndpoint(3, "h", 9, None)],
    )
    body = pieces[0] + b"abc" + pieces[1] + pieces[2]
    found = read_response(FETCH, version, memoryview(body))
    assert (found.acquisition_lock_timeout, found.node_endpoints[0].host) == (30_000, "h")
    first, second = found.responses[0].partitions
    acquired = [(one.first_offset, one.delivery_count) for one in first.acquired_records]
    assert (bytes(first.records), acquired) == (b"abc", [(5, 1), (10, 2)])
    assert (second.error_code, second.acknowledge_error_code) == (6, 121)
    assert (second.error_message, second.current_leader.leader_epoch) == ("not here", 7)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_acknowledge_response_is_read_as_it_was_written(version: int) -> None:
    results = [ShareAcknowledgeResult(0), ShareAcknowledgeResult(1, 6, "not here", (3, 7))]
    body = write_share_acknowledge_response(
        version, error_code=0, lock_ms=30_000, topics=[(TOPIC_ID, results)]
    )
    found = read_response(ACKNOWLEDGE, version, memoryview(body))
    assert [one.error_code for one in found.responses[0].partitions] == [0, 6]
    assert found.responses[0].partitions[1].current_leader.leader_id == 3
    if version >= 2:
        assert found.acquisition_lock_timeout == 30_000
