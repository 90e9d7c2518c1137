"""Configuration of topics, brokers, groups and the cluster: values in force, and their sources."""

import hashlib
import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from pydantic import Field
from tidemark.client.admin import requests as admin_requests
from tidemark.client.admin.types import ConfigEntry, ConfigResource
from tidemark.client.errors import error_for
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation, group_resource, topic_resource

from controller.admin.brokers import require_broker
from controller.admin.context import AdminContext
from controller.admin.errors import AdminError, from_cluster, not_found
from controller.admin.models import Model

CLUSTER_WIDE: Final = ""
RESOURCES_PER_CALL_MAX: Final = 25
"""More in one answer would hold up the event loops of the broker and of the controller."""
_VIEWS_KEPT: Final = 4_096

_SOURCES: Final = {
    "topic": "DYNAMIC_TOPIC_CONFIG",
    "broker": "DYNAMIC_BROKER_CONFIG",
    "cluster default": "DYNAMIC_DEFAULT_BROKER_CONFIG",
    "broker file": "STATIC_BROKER_CONFIG",
    "default": "DEFAULT_CONFIG",
    "broker logger": "DYNAMIC_BROKER_LOGGER_CONFIG",
    "subscription": "DYNAMIC_CLIENT_METRICS_CONFIG",
    "group": "GROUP_CONFIG",
}


class ConfigSynonym(Model):
    """Source of a value, in order of precedence."""

    name: str = Field(examples=["log.retention.ms"])
    value: str | None = Field(examples=["604800000"])
    source: str = Field(examples=["DEFAULT_CONFIG"])


class ConfigView(Model):
    """Setting in force. ``value`` is null for secrets."""

    name: str = Field(examples=["retention.ms"])
    value: str | None = Field(examples=["604800000"])
    is_default: bool = Field(examples=[True])
    is_read_only: bool = Field(examples=[False])
    is_sensitive: bool = Field(examples=[False])
    source: str = Field(examples=["DEFAULT_CONFIG"])
    synonyms: list[ConfigSynonym]
    type: str = Field(examples=["long"])
    documentation: str | None = Field(examples=["time for which records are kept"])


async def topic_configs(ctx: AdminContext, name: str) -> list[ConfigView]:
    """Return all settings of a topic, by name. Raises AdminError."""
    ctx.topic(name)
    ctx.require(Operation.DESCRIBE_CONFIGS, topic_resource(name))
    found = (await describe(ctx, [ConfigResource("topic", name)]))[name]
    if isinstance(found, AdminError):
        raise found
    return found


async def broker_configs(ctx: AdminContext, broker_id: int) -> list[ConfigView]:
    """Return all settings of one broker, by name. Raises AdminError."""
    ctx.require(Operation.DESCRIBE_CONFIGS)
    require_broker(ctx, broker_id)
    found = (await describe(ctx, [ConfigResource("broker", str(broker_id))], at=broker_id))[
        str(broker_id)
    ]
    if isinstance(found, AdminError):
        raise found
    return found


async def cluster_configs(ctx: AdminContext) -> list[ConfigView]:
    """Return the settings that hold for all brokers, by name. Raises AdminError."""
    ctx.require(Operation.DESCRIBE_CONFIGS)
    found = (await describe(ctx, [ConfigResource("broker", CLUSTER_WIDE)]))[CLUSTER_WIDE]
    if isinstance(found, AdminError):
        raise found
    return found


async def group_configs(ctx: AdminContext, group_id: str) -> list[ConfigView]:
    """Return all settings of a group, which need not exist. Raises AdminError."""
    ctx.require(Operation.DESCRIBE_CONFIGS, group_resource(group_id))
    found = (await describe(ctx, [ConfigResource("group", group_id)]))[group_id]
    if isinstance(found, AdminError):
        raise found
    return found


async def many_topics(
    ctx: AdminContext, names: Iterable[str]
) -> dict[str, list[ConfigView] | AdminError]:
    """Return the settings of several topics, or the error of each that has none, or whose settings
    the caller may not see. Raises AdminError if no broker answers.
    """
    refused: dict[str, list[ConfigView] | AdminError] = {}
    asked = []
    for name in names:
        try:
            ctx.require(Operation.DESCRIBE_CONFIGS, topic_resource(name))
        except AdminError as refusal:
            refused[name] = refusal
        else:
            asked.append(ConfigResource("topic", name))
    return {**refused, **await describe(ctx, asked)}


async def one_config(configs: list[ConfigView], name: str) -> ConfigView:
    """Return one setting of a list. Raises AdminError."""
    for config in configs:
        if config.name == name:
            return config
    raise not_found(
        f"there is no configuration {name!r} here",
        field="name",
        remedy="the list of all configurations is one path segment above",
    )


async def describe(
    ctx: AdminContext, resources: list[ConfigResource], *, at: int | None = None
) -> dict[str, list[ConfigView] | AdminError]:
    """Return the settings of resources of one kind, by name; asked at a live broker, or at ``at``.
    Raises AdminError if no broker answers.
    """
    found: dict[str, list[ConfigView] | AdminError] = {}
    for first in range(0, len(resources), RESOURCES_PER_CALL_MAX):
        some = resources[first : first + RESOURCES_PER_CALL_MAX]
        fields = admin_requests.describe_configs(some, with_documentation=True)
        answer = await (_any(ctx, fields) if at is None else _at(ctx, at, fields))
        for result in answer.results:
            name = result.resource_name
            if result.error_code:
                detail = result.error_message
                found[name] = from_cluster(
                    error_for(result.error_code, f"describing {name!r} failed", detail=detail)
                )
                continue
            entries = admin_requests.read_configs(result)
            found[name] = [config_view(entries[key]) for key in sorted(entries)]
    return found


async def _at(ctx: AdminContext, broker_id: int, fields: admin_requests.Fields) -> Struct:
    return await ctx.brokers.ask(broker_id, ApiKey.DESCRIBE_CONFIGS, fields)


async def _any(ctx: AdminContext, fields: admin_requests.Fields) -> Struct:
    return await ctx.brokers.ask_any(ApiKey.DESCRIBE_CONFIGS, fields)


@lru_cache(_VIEWS_KEPT)
def config_view(entry: ConfigEntry) -> ConfigView:
    """Return the view of one setting. Most settings of most topics are equal."""
    return ConfigView(
        name=entry.name,
        value=None if entry.is_sensitive else entry.value,
        is_default=entry.is_default,
        is_read_only=entry.is_read_only,
        is_sensitive=entry.is_sensitive,
        source=_SOURCES.get(entry.source, "UNKNOWN"),
        synonyms=[
            ConfigSynonym(
                name=each.name,
                value=None if entry.is_sensitive else each.value,
                source=_SOURCES.get(each.source, "UNKNOWN"),
            )
            for each in entry.synonyms
        ],
        type=entry.kind,
        documentation=entry.documentation,
    )


def etag(configs: Iterable[ConfigView]) -> str:
    """Return the ETag of settings: it changes with every value and source."""
    content = [(one.name, one.value, one.source) for one in configs]
    digest = hashlib.sha256(json.dumps(content, separators=(",", ":")).encode())
    return f'"{digest.hexdigest()[:32]}"'
