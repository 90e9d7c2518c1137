"""DescribeCluster, DescribeTopicPartitions, InitProducerId, and what is answered about partitions
not here.
"""

import pytest
from broker.shell.kafka.describe_topic_partitions import Cursor, TopicPage, page
from hypothesis import given
from hypothesis import strategies as st
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from tidemark_wire.v1 import controller_pb2 as pb
from unit.broker.shell.broker_parts import BrokerParts
from unit.broker.shell.kafka.conftest import Ask, StubController

MASK_NOT_ASKED = -(2**31)


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_described_as_this_listener_s_clients_reach_it(
    ask: Ask, version: int
) -> None:
    answer = ask(ApiKey.DESCRIBE_CLUSTER, {}, version)
    assert (answer.cluster_id, answer.controller_id, answer.error_code) == ("the-cluster", 1, 0)
    brokers = [(one.broker_id, one.host, one.port, one.rack) for one in answer.brokers]
    assert brokers == [(1, "host", 9092, "r1"), (2, "host", 9093, "r2")]
    assert answer.cluster_authorized_operations == MASK_NOT_ASKED


def test_fenced_brokers_and_operations_are_told_when_asked_for(ask: Ask) -> None:
    fields = {"include_fenced_brokers": True, "include_cluster_authorized_operations": True}
    answer = ask(ApiKey.DESCRIBE_CLUSTER, fields)
    assert [(one.broker_id, one.is_fenced) for one in answer.brokers] == [
        (1, False),
        (2, False),
        (3, True),
    ]
    assert answer.cluster_authorized_operations == 8096


@pytest.mark.parametrize(
    ("endpoint_type", "error"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_controllers_are_not_described_here(ask: Ask, endpoint_type: int, error: ErrorCode) -> None:
    assert ask(ApiKey.DESCRIBE_CLUSTER, {"endpoint_type": endpoint_type}).error_code == error


@pytest.mark.feature("H06")
def test_all_topics_are_described_page_by_page(ask: Ask) -> None:
    api = ApiKey.DESCRIBE_TOPIC_PARTITIONS
    first = ask(api, {"topics": [], "response_partition_limit": 2})
    assert [(topic.name, len(topic.partitions)) for topic in first.topics] == [
        ("compacted", 1),
        ("orders", 1),
    ]
    cursor = {"topic_name": first.next_cursor.topic_name, "partition_index": 1}
    rest = ask(api, {"topics": [], "cursor": cursor})
    (orders,) = rest.topics
    assert [(one.partition_index, one.leader_id, one.error_code) for one in orders.partitions] == [
        (1, 2, ErrorCode.NONE),
        (2, -1, ErrorCode.LEADER_NOT_AVAILABLE),
    ]
    assert orders.partitions[1].offline_replicas == [3]
    assert (orders.topic_authorized_operations, rest.next_cursor) == (3576, None)


def test_a_topic_that_is_not_there_is_named_as_unknown(ask: Ask) -> None:
    fields = {"topics": [{"name": "orders"}, {"name": "nowhere"}, {"name": "a/b"}]}
    answer = ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, fields)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", ErrorCode.NONE),
    ]


@given(
    counts=st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(0, 7), max_size=6),
    partitions_max=st.integers(1, 9),
)
def test_pages_one_behind_the_other_are_the_whole_and_none_is_too_large(
    counts: dict[str, int], partitions_max: int
) -> None:
    seen: list[tuple[str, int]] = []
    names = sorted(counts)
    cursor: Cursor | None = None
    while True:
        pages, cursor = page(names, counts, cursor, partitions_max)
        found = [(one.name, number) for one in pages for number in range(one.first, one.end)]
        assert len(found) <= partitions_max
        seen += found
        if cursor is None:
            break
    assert seen == [(name, number) for name in names for number in range(counts[name])]


def test_a_cursor_to_a_topic_that_went_begins_at_the_next_one() -> None:
    assert page(["a", "c"], {"a": 1, "c": 1}, Cursor("b", 4), 9) == ([TopicPage("c", 0, 1)], None)


@pytest.mark.parametrize("version", range(6))
@pytest.mark.feature("K01")
def test_every_idempotent_producer_gets_an_id_of_its_own(
    ask: Ask, controller: StubController, version: int
) -> None:
    controller.answers["AllocateProducerIds"] = pb.AllocateProducerIdsResponse(
        first_producer_id=7_000, count=1_000
    )
    asked = {"transactional_id": None}
    first, second = (ask(ApiKey.INIT_PRODUCER_ID, asked, version) for _ in range(2))
    assert (first.error_code, first.producer_id, first.producer_epoch) == (0, 7_000, 0)
    assert (second.producer_id, len(controller.asked)) == (7_001, 1)
    request = controller.asked[0][1]
    assert (request.broker_id, request.broker_epoch) == (1, 4)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": None, "producer_id": 5}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_gets_no_producer_id_hears_an_error_that_is_final(
    ask: Ask, controller: StubController, fields: dict[str, object], error: ErrorCode
) -> None:
    answer = ask(ApiKey.INIT_PRODUCER_ID, fields)
    assert (answer.error_code, answer.producer_id, controller.asked) == (error, -1, [])
    assert not error.retriable


def test_no_producer_ids_is_an_error_that_clients_retry(
    ask: Ask, controller: StubController
) -> None:
    controller.answers["AllocateProducerIds"] = pb.AllocateProducerIdsResponse(error_code=77)
    answer = ask(ApiKey.INIT_PRODUCER_ID, {"transactional_id": None})
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize(
    ("partition", "error"),
    [(1, ErrorCode.NOT_LEADER_OR_FOLLOWER), (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
)
def test_records_are_deleted_by_the_leader_and_producers_described_where_there_is_a_replica(
    ask: Ask, partition: int, error: ErrorCode
) -> None:
    one = [{"partition_index": partition, "offset": -1}]
    deleted = ask(ApiKey.DELETE_RECORDS, {"topics": [{"name": "orders", "partitions": one}]})
    asked = {"topics": [{"name": "orders", "partition_indexes": [partition]}]}
    described = ask(ApiKey.DESCRIBE_PRODUCERS, asked)
    (result,) = deleted.topics[0].partitions
    assert (result.error_code, result.low_watermark) == (error, -1)
    assert described.topics[0].partitions[0].error_code == error


@pytest.mark.parametrize("version", range(7))
def test_without_a_controller_nobody_coordinates(
    parts: BrokerParts, ask: Ask, version: int
) -> None:
    parts.cluster.live.epochs = {}
    fields = {"coordinator_keys": ["g"]} if version >= 4 else {"key": "g"}
    answer = ask(ApiKey.FIND_COORDINATOR, fields, version)
    told = answer.coordinators[0] if version >= 4 else answer
    assert (told.error_code, told.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


@pytest.mark.parametrize("key_type", [2, 9])
def test_other_kinds_of_coordinators_are_refused_for_good(ask: Ask, key_type: int) -> None:
    answer = ask(ApiKey.FIND_COORDINATOR, {"key": "t", "key_type": key_type}, 3)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
