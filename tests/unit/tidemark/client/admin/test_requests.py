import pytest
from tidemark.client.admin import requests as admin_requests
from tidemark.client.admin.types import AlterConfig, ConfigResource, NewTopic
from tidemark.kafka import long_tail
from tidemark.kafka.apis import APIS, ApiKey
from tidemark.model.topics import TopicPartition

ORDERS = ConfigResource("topic", "orders")

REQUESTS = {
    ApiKey.CREATE_TOPICS: admin_requests.create_topics(
        [
            NewTopic("orders", 3, 1, {"retention.ms": "1000"}),
            NewTopic("placed", assignments=[[1, 2]]),
        ],
        timeout_ms=100,
        validate_only=False,
    ),
    ApiKey.DELETE_TOPICS: admin_requests.delete_topics(["orders"], timeout_ms=100),
    ApiKey.CREATE_PARTITIONS: admin_requests.create_partitions(
        {"orders": 6}, timeout_ms=100, validate_only=True
    ),
    ApiKey.DESCRIBE_CONFIGS: admin_requests.describe_configs([ORDERS], with_documentation=True),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: admin_requests.alter_configs(
        {ORDERS: [AlterConfig("retention.ms", "5"), AlterConfig("flush", operation="delete")]},
        validate_only=False,
    ),
    ApiKey.DELETE_RECORDS: admin_requests.delete_records(
        {TopicPartition("orders", 1): 7}, timeout_ms=100
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: admin_requests.alter_partition_reassignments(
        {TopicPartition("orders", 1): [1, 2], TopicPartition("orders", 2): None},
        allow_replication_factor_change=True,
        timeout_ms=100,
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: admin_requests.list_partition_reassignments(
        [TopicPartition("orders", 1)], timeout_ms=100
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: admin_requests.alter_replica_log_dirs(
        {TopicPartition("orders", 1): "/a", TopicPartition("orders", 2): "/a"}
    ),
    ApiKey.DESCRIBE_PRODUCERS: admin_requests.describe_producers([TopicPartition("orders", 1)]),
}
CASES = [
    (key, version) for key in REQUESTS for version in range(APIS[key].served_min, APIS[key].max + 1)
]


@pytest.mark.parametrize(("key", "version"), CASES, ids=[f"{k.name}-{v}" for k, v in CASES])
def test_every_request_can_be_written_in_every_version(key: ApiKey, version: int) -> None:
    body = long_tail.write_request(key, version, REQUESTS[key])
    assert long_tail.read_request(key, version, memoryview(body)) is not None


@pytest.mark.feature("A04")
def test_assignments_decide_the_counts() -> None:
    key, version = ApiKey.CREATE_TOPICS, 7
    body = long_tail.write_request(key, version, REQUESTS[key])
    counted, assigned = long_tail.read_request(key, version, memoryview(body)).topics
    assert (counted.num_partitions, counted.replication_factor) == (3, 1)
    assert (assigned.num_partitions, assigned.replication_factor) == (-1, -1)
    assert assigned.assignments[0].broker_ids == [1, 2]


def test_changes_of_configurations_carry_their_operation() -> None:
    key, version = ApiKey.INCREMENTAL_ALTER_CONFIGS, 1
    body = long_tail.write_request(key, version, REQUESTS[key])
    (resource,) = long_tail.read_request(key, version, memoryview(body)).resources
    assert [(c.name, c.config_operation, c.value) for c in resource.configs] == [
        ("retention.ms", 0, "5"),
        ("flush", 1, None),
    ]
