"""DescribeConfigs (32): the configuration of topics, of groups, of subscriptions to client metrics,
of this broker, and of all brokers together, and the levels of this broker's loggers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import CLUSTER, Operation, group_resource, topic_resource
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.topics import topic_name_problem
from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.facts import BrokerFacts
from broker.shell.kafka.broker_configs import (
    CLUSTER_WIDE,
    ConfigSource,
    Setting,
    ShownConfig,
    broker_configs_shown,
    client_metrics_configs_shown,
    cluster_configs_shown,
    group_configs_shown,
    topic_configs_shown,
)
from broker.shell.kafka.broker_loggers import check_broker, logger_levels
from broker.shell.kafka.config_resources import ConfigResourceType
from broker.shell.request_context import RequestContext

_UNTYPED: Final = 0
"""Type of a logger's level, as in Kafka."""


async def handle(
    facts: BrokerFacts, metadata: MetadataCache, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Return one result for each resource; an error in one does not affect the others."""
    results = []
    for resource in request.resources:
        answer: dict[str, object] = {
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
            "error_message": None,
        }
        try:
            shown = _shown(facts, metadata, resource, context)
        except TidemarkError as refused:
            answer |= {"error_code": int(refused.code), "error_message": refused.message}
            answer["configs"] = []
        else:
            answer["error_code"] = int(ErrorCode.NONE)
            answer["configs"] = [
                _entry(
                    config,
                    with_settings=request.include_synonyms,
                    with_doc=request.include_documentation,
                )
                for config in _wanted(shown, resource.configuration_keys)
            ]
        results.append(answer)
    return {"results": results}


def _shown(
    facts: BrokerFacts, metadata: MetadataCache, resource: Struct, context: RequestContext
) -> list[ShownConfig]:
    """Return every key of one resource. Raises TidemarkError if there is no such resource here."""
    if resource.resource_type == ConfigResourceType.TOPIC:
        return _topic_shown(facts, metadata, resource.resource_name, context)
    if resource.resource_type == ConfigResourceType.BROKER:
        return _broker_shown(facts, metadata, resource.resource_name, context)
    if resource.resource_type == ConfigResourceType.GROUP:
        return _group_shown(facts, metadata, resource.resource_name, context)
    if resource.resource_type == ConfigResourceType.CLIENT_METRICS:
        return _subscription_shown(facts, metadata, resource.resource_name, context)
    if resource.resource_type == ConfigResourceType.BROKER_LOGGER:
        return _loggers_shown(facts, resource.resource_name, context)
    raise TidemarkError(
        ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}"
    )


def _topic_shown(
    facts: BrokerFacts, metadata: MetadataCache, name: str, context: RequestContext
) -> list[ShownConfig]:
    allowed = facts.authorizer.authorize(
        context.requester, Operation.DESCRIBE_CONFIGS, topic_resource(name)
    )
    if not allowed:
        raise TidemarkError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
    problem = topic_name_problem(name)
    if problem is not None:
        raise TidemarkError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    topic = metadata.image.topics.get(name)
    if topic is None:
        raise TidemarkError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic named {name!r}"
        )
    return topic_configs_shown(facts.config, metadata.image, facts.broker_id, topic.configs)


def _broker_shown(
    facts: BrokerFacts, metadata: MetadataCache, name: str, context: RequestContext
) -> list[ShownConfig]:
    if not facts.authorizer.authorize(context.requester, Operation.DESCRIBE_CONFIGS, CLUSTER):
        raise TidemarkError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Authorization failed.")
    if name == CLUSTER_WIDE:
        return cluster_configs_shown(type(facts.config), metadata.image)
    if name != str(facts.broker_id):
        # Clients ask each broker for the settings of its start.
        raise TidemarkError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {facts.broker_id} or empty string,"
            f" but received {name!r}",
        )
    return broker_configs_shown(facts.config, metadata.image, facts.broker_id)


def _loggers_shown(facts: BrokerFacts, name: str, context: RequestContext) -> list[ShownConfig]:
    if not facts.authorizer.authorize(context.requester, Operation.DESCRIBE_CONFIGS, CLUSTER):
        raise TidemarkError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Authorization failed.")
    check_broker(name, facts.broker_id)
    return [
        ShownConfig(
            logger,
            (Setting(logger, level, ConfigSource.DYNAMIC_BROKER_LOGGER),),
            _UNTYPED,
            "",
            read_only=False,
            is_sensitive=False,
        )
        for logger, level in logger_levels().items()
    ]


def _group_shown(
    facts: BrokerFacts, metadata: MetadataCache, name: str, context: RequestContext
) -> list[ShownConfig]:
    """Return the keys of a group of any name: its settings are in force from its first member
    on.
    """
    if not name:
        raise TidemarkError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    if not facts.authorizer.authorize(
        context.requester, Operation.DESCRIBE_CONFIGS, group_resource(name)
    ):
        raise TidemarkError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Authorization failed.")
    overrides = metadata.image.group_configs.get(name, {})
    return group_configs_shown(facts.config, metadata.image, facts.broker_id, overrides)


def _subscription_shown(
    facts: BrokerFacts, metadata: MetadataCache, name: str, context: RequestContext
) -> list[ShownConfig]:
    """Return the keys of a subscription of any name, as Kafka does."""
    if not facts.authorizer.authorize(context.requester, Operation.DESCRIBE_CONFIGS, CLUSTER):
        raise TidemarkError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Authorization failed.")
    if not name:
        raise TidemarkError(
            ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"
        )
    return client_metrics_configs_shown(metadata.image.client_metrics.get(name, {}))


def _wanted(shown: Sequence[ShownConfig], names: Sequence[str] | None) -> Sequence[ShownConfig]:
    """Return the keys asked for; all of them for an empty list, as for a null list."""
    if not names:
        return shown
    wanted = frozenset(names)
    return [config for config in shown if config.name in wanted]


def _entry(config: ShownConfig, *, with_settings: bool, with_doc: bool) -> dict[str, object]:
    return {
        "name": config.name,
        "value": config.value,
        "read_only": config.read_only,
        "config_source": int(config.source),
        "is_sensitive": config.is_sensitive,
        "synonyms": [
            {
                "name": setting.name,
                "value": None if config.is_sensitive else setting.value,
                "source": int(setting.source),
            }
            for setting in config.settings
        ]
        if with_settings and config.source is not ConfigSource.DYNAMIC_BROKER_LOGGER
        else [],
        "config_type": config.type_number,
        "documentation": config.doc if with_doc else None,
    }
