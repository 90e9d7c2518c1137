"""The long tail: which handler answers which API. What is not here (or hot) is not advertised."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tidemark.kafka.apis import ApiKey

from broker.shell.kafka import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    config_resources,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_transactions,
    offset_commit,
    offset_delete,
    offset_fetch,
    partition_reassignments,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from broker.shell.request_router import Handler

_MODULES: Final = (
    create_topics,
    delete_topics,
    create_partitions,
    delete_records,
    describe_configs,
    alter_configs,
    describe_log_dirs,
    describe_producers,
    init_producer_id,
    describe_cluster,
    describe_topic_partitions,
    config_resources,
    find_coordinator,
    elect_leaders,
    partition_reassignments,
    join_group,
    sync_group,
    heartbeat,
    leave_group,
    offset_commit,
    offset_fetch,
    offset_delete,
    describe_groups,
    list_groups,
    delete_groups,
    txn_offset_commit,
    consumer_group_heartbeat,
    consumer_group_describe,
    add_partitions_to_txn,
    add_offsets_to_txn,
    end_txn,
    write_txn_markers,
    describe_transactions,
    list_transactions,
)

LONG_TAIL: Final[Mapping[ApiKey, Handler]] = MappingProxyType(
    {api_key: handler for module in _MODULES for api_key, handler in module.HANDLED}
)
assert len(LONG_TAIL) == sum(len(module.HANDLED) for module in _MODULES), "an API has two handlers"
