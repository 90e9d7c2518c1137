"""The long tail: which handler answers which API. What is not here (or hot) is not advertised."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tidemark.kafka.apis import ApiKey

from broker.shell.kafka import (
    alter_configs,
    config_resources,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    elect_leaders,
    find_coordinator,
    init_producer_id,
    partition_reassignments,
)

if TYPE_CHECKING:
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
)

LONG_TAIL: Final[Mapping[ApiKey, Handler]] = MappingProxyType(
    {api_key: handler for module in _MODULES for api_key, handler in module.HANDLED}
)
assert len(LONG_TAIL) == sum(len(module.HANDLED) for module in _MODULES), "an API has two handlers"
