"""DescribeConfigs (32): the configuration of topics, of groups, of this broker, and of all brokers
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.topics import topic_name_problem

from broker.core.authorizer import CLUSTER, Operation, group_resource, topic_resource
from broker.shell.broker_configs import (
    CLUSTER_WIDE,
    ShownConfig,
    broker_configs_shown,
    cluster_configs_shown,
    group_configs_shown,
    topic_configs_shown,
)
from broker.shell.kafka.config_resources import ConfigResourceType
from broker.shell.node import BrokerNode
from broker.shell.request_context import RequestContext


async def handle(node: BrokerNode, request: Struct, context: RequestContext) -> dict[str, object]:
    """One result for each resource asked for; a mistake in one leaves the others answered."""
    results = []
    for resource in request.resources:
        answer: dict[str, object] = {
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
            "error_message": None,
        }
        try:
            shown = _shown(node, resource, context)
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


def _shown(node: BrokerNode, resource: Struct, context: RequestContext) -> list[ShownConfig]:
    """Every key of one resource. Raises TidemarkError when there is no such resource here."""
    if resource.resource_type == ConfigResourceType.TOPIC:
        return _topic_shown(node, resource.resource_name, context)
    if resource.resource_type == ConfigResourceType.BROKER:
        return _broker_shown(node, resource.resource_name, context)
    if resource.resource_type == ConfigResourceType.GROUP:
        return _group_shown(node, resource.resource_name, context)
    raise TidemarkError(
        ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}"
    )


def _topic_shown(node: BrokerNode, name: str, context: RequestContext) -> list[ShownConfig]:
    allowed = node.authorizer.authorize(
        context.principal, Operation.DESCRIBE_CONFIGS, topic_resource(name)
    )
    if not allowed:
        raise TidemarkError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
    problem = topic_name_problem(name)
    if problem is not None:
        raise TidemarkError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    topic = node.image.topics.get(name)
    if topic is None:
        raise TidemarkError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic named {name!r}"
        )
    return topic_configs_shown(node.config, node.image, node.broker_id, topic.configs)


def _broker_shown(node: BrokerNode, name: str, context: RequestContext) -> list[ShownConfig]:
    if not node.authorizer.authorize(context.principal, Operation.DESCRIBE_CONFIGS, CLUSTER):
        raise TidemarkError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Authorization failed.")
    if name == CLUSTER_WIDE:
        return cluster_configs_shown(type(node.config), node.image)
    if name != str(node.broker_id):
        # Only a broker itself knows what it was started with: clients ask each for its own.
        raise TidemarkError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {node.broker_id} or empty string,"
            f" but received {name!r}",
        )
    return broker_configs_shown(node.config, node.image, node.broker_id)


def _group_shown(node: BrokerNode, name: str, context: RequestContext) -> list[ShownConfig]:
    """Of any name: what a group sets is in force from its first member on."""
    if not name:
        raise TidemarkError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    if not node.authorizer.authorize(
        context.principal, Operation.DESCRIBE_CONFIGS, group_resource(name)
    ):
        raise TidemarkError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Authorization failed.")
    overrides = node.image.group_configs.get(name, {})
    return group_configs_shown(node.config, node.image, node.broker_id, overrides)


def _wanted(shown: Sequence[ShownConfig], names: Sequence[str] | None) -> Sequence[ShownConfig]:
    """No names ask for all keys, as a null list does."""
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
        if with_settings
        else [],
        "config_type": config.type_number,
        "documentation": config.doc if with_doc else None,
    }


HANDLED: Final = ((ApiKey.DESCRIBE_CONFIGS, handle),)
