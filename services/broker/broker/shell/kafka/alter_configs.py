"""IncrementalAlterConfigs (44, KIP-339) and AlterConfigs (33): relayed to the controller, which
validates values. Levels of loggers are this broker's own, and changed here (KIP-412).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import CLUSTER, Operation, group_resource, topic_resource
from tidemark.model.client_metrics_configs import MATCH
from tidemark.model.config_values import InvalidConfigError
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.group_configs import split
from tidemark.model.share_group_configs import DEAD_LETTER_TOPIC
from tidemark.runtime.metadata_cache import MetadataCache

from broker.core.client_metrics.subscription import Subscription
from broker.core.share.letter_queue import name_problem
from broker.shell.cluster.controller_relay import ControllerRelay, caller_of
from broker.shell.facts import BrokerFacts
from broker.shell.groups.coordinator import Groups
from broker.shell.kafka.broker_configs import CLUSTER_WIDE
from broker.shell.kafka.broker_loggers import alter_levels, check_broker
from broker.shell.kafka.config_resources import ConfigResourceType
from broker.shell.request_context import RequestContext
from broker.shell.wire_mapping import AlterationResult, ConfigAlteration, ConfigChange

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
OPERATIONS: Final = range(4)

ReadAlteration = Callable[[Struct], ConfigAlteration]


async def handle_incremental(
    facts: BrokerFacts,
    metadata: MetadataCache,
    relay: ControllerRelay,
    groups: Groups,
    request: Struct,
    context: RequestContext,
) -> dict[str, object]:
    """Change only the named keys."""
    return await _relay(facts, metadata, relay, groups, request, context, _incremental)


async def handle_replace(
    facts: BrokerFacts,
    metadata: MetadataCache,
    relay: ControllerRelay,
    groups: Groups,
    request: Struct,
    context: RequestContext,
) -> dict[str, object]:
    """Set the named keys and remove every other override of the resource."""
    return await _relay(facts, metadata, relay, groups, request, context, _replacing)


async def _relay(
    facts: BrokerFacts,
    metadata: MetadataCache,
    relay: ControllerRelay,
    groups: Groups,
    request: Struct,
    context: RequestContext,
    read: ReadAlteration,
) -> dict[str, object]:
    """Return one result for each resource, in the order of the request; a resource given twice is
    refused once.
    """
    times = Counter((one.resource_type, one.resource_name) for one in request.resources)
    answers: dict[tuple[int, str], AlterationResult] = {}
    wanted = []
    for resource in request.resources:
        named = (resource.resource_type, resource.resource_name)
        answers[named] = AlterationResult(*named, ErrorCode.NONE)
        try:
            if times[named] > 1:
                raise TidemarkError(
                    ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
                )
            if _is_logger(resource) and read is _incremental:
                _alter_loggers(facts, resource, context, validate_only=request.validate_only)
                continue
            _check_resource(facts, resource, context)
            alteration = read(resource)
            if alteration.resource_type == ConfigResourceType.GROUP:
                _check_group_configs(facts, groups, _group_after(metadata, alteration))
            if alteration.resource_type == ConfigResourceType.CLIENT_METRICS:
                _check_patterns(alteration)
            wanted.append(alteration)
        except TidemarkError as refused:
            answers[named] = AlterationResult(*named, refused.code, refused.message)
    for result in await relay.alterations(
        caller_of(context), wanted, validate_only=request.validate_only
    ):
        answers[result.resource_type, result.resource_name] = result
    return {
        "responses": [
            {
                "error_code": int(result.error_code),
                "error_message": result.error_message,
                "resource_type": result.resource_type,
                "resource_name": result.resource_name,
            }
            for result in answers.values()
        ]
    }


def _is_logger(resource: Struct) -> bool:
    return bool(resource.resource_type == ConfigResourceType.BROKER_LOGGER)


def _alter_loggers(
    facts: BrokerFacts, resource: Struct, context: RequestContext, *, validate_only: bool
) -> None:
    """Raises TidemarkError if the levels are not altered."""
    if not facts.authorizer.authorize(context.requester, Operation.ALTER_CONFIGS, CLUSTER):
        raise TidemarkError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Authorization failed.")
    check_broker(resource.resource_name, facts.broker_id)
    _check_keys(resource, [])
    alter_levels(resource.configs, validate_only=validate_only)


def _check_resource(facts: BrokerFacts, resource: Struct, context: RequestContext) -> None:
    """Raises TidemarkError if the caller may not alter the resource, or it cannot be altered."""
    authorize = facts.authorizer.authorize
    name = resource.resource_name
    if resource.resource_type == ConfigResourceType.TOPIC:
        if not authorize(context.requester, Operation.ALTER_CONFIGS, topic_resource(name)):
            raise TidemarkError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        return
    if resource.resource_type == ConfigResourceType.GROUP:
        _check_group(facts, name, context)
        return
    if resource.resource_type == ConfigResourceType.CLIENT_METRICS:
        if not authorize(context.requester, Operation.ALTER_CONFIGS, CLUSTER):
            raise TidemarkError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Authorization failed.")
        return
    if resource.resource_type != ConfigResourceType.BROKER:
        raise TidemarkError(
            ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}"
        )
    if not authorize(context.requester, Operation.ALTER_CONFIGS, CLUSTER):
        raise TidemarkError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Authorization failed.")
    if name != CLUSTER_WIDE and not (name.isascii() and name.isdigit()):
        raise TidemarkError(
            ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}"
        )


def _check_group(facts: BrokerFacts, name: str, context: RequestContext) -> None:
    if not name:
        raise TidemarkError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    if not facts.authorizer.authorize(
        context.requester, Operation.ALTER_CONFIGS, group_resource(name)
    ):
        raise TidemarkError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Authorization failed.")


def _check_group_configs(facts: BrokerFacts, groups: Groups, configs: Mapping[str, str]) -> None:
    """Raises TidemarkError INVALID_CONFIG for values that this broker's bounds do not allow."""
    consumer, share = split(configs)
    groups.check_configs(consumer)
    try:
        facts.config.share_group_options().check_of_group(share)
    except InvalidConfigError as refused:
        raise TidemarkError(ErrorCode.INVALID_CONFIG, str(refused)) from None
    queue = share.get(DEAD_LETTER_TOPIC, "")
    problem = name_problem(queue, facts.config.errors_deadletterqueue_topic_name_prefix)
    if queue and problem is not None:
        raise TidemarkError(ErrorCode.INVALID_CONFIG, problem)


def _check_patterns(alteration: ConfigAlteration) -> None:
    """Raises TidemarkError INVALID_CONFIG for new patterns of a subscription with errors, which the
    controller does not find.
    """
    for change in alteration.changes:
        if change.name == MATCH and change.operation in (SET, APPEND):
            Subscription.of({MATCH: change.value})


def _group_after(metadata: MetadataCache, alteration: ConfigAlteration) -> dict[str, str]:
    """Return the group's configuration after the change. This broker checks its bounds and
    defaults, the controller everything else.
    """
    present = metadata.image.group_configs.get(alteration.resource_name, {})
    after = {} if alteration.replace_all else dict(present)
    for change in alteration.changes:
        if change.operation == SET:
            after[change.name] = change.value
        elif change.operation == DELETE:
            after.pop(change.name, None)
    return after


def _incremental(resource: Struct) -> ConfigAlteration:
    _check_keys(resource, [one for one in resource.configs if one.config_operation != DELETE])
    unknown = [one for one in resource.configs if one.config_operation not in OPERATIONS]
    if unknown:
        raise TidemarkError(
            ErrorCode.INVALID_REQUEST,
            f"Unknown operation type {unknown[0].config_operation} for config {unknown[0].name}",
        )
    return ConfigAlteration(
        resource.resource_type,
        resource.resource_name,
        tuple(
            ConfigChange(one.name, one.config_operation, one.value or "")
            for one in resource.configs
        ),
        replace_all=False,
    )


def _replacing(resource: Struct) -> ConfigAlteration:
    _check_keys(resource, resource.configs)
    return ConfigAlteration(
        resource.resource_type,
        resource.resource_name,
        tuple(ConfigChange(one.name, SET, one.value) for one in resource.configs),
        replace_all=True,
    )


def _check_keys(resource: Struct, valued: list[Struct]) -> None:
    """Raises TidemarkError if a key is named twice, or one of ``valued`` has no value."""
    names = [one.name for one in resource.configs]
    if len(set(names)) != len(names):
        raise TidemarkError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    valueless = [one.name for one in valued if one.value is None]
    if valueless:
        raise TidemarkError(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(valueless)}"
        )
