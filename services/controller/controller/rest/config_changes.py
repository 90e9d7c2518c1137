"""Configuration of topics, brokers and the cluster altered; with If-Match, only if unchanged."""

from typing import Annotated

from fastapi import Query, Response
from pydantic import Field

from controller.admin import configs
from controller.admin import topic_changes as admin
from controller.admin.models import Input
from controller.admin.topic_changes import ConfigChange
from controller.rest.changing import done, without_content
from controller.rest.idempotent import IdempotencyKey, IdempotentRoute, IfMatch
from controller.rest.problems import CHANGES, GUARDED, RESPONSES
from controller.rest.shapes import BrokerIdPath, ConfigName, Ctx, TopicName, cluster_router

router = cluster_router(
    "Configuration", {**RESPONSES, **CHANGES, **GUARDED}, route_class=IdempotentRoute
)

DryRun = Annotated[bool, Query(description="check, and change nothing")]


class ConfigValue(Input):
    """New value of one setting."""

    value: str | None = Field(max_length=32_767, examples=["86400000"])


class ConfigChanges(Input):
    """Changes of several settings, all or none."""

    data: list[ConfigChange] = Field(min_length=1, max_length=admin.CHANGES_MAX)
    validate_only: bool = Field(default=False, description="check, and change nothing")


def _set(name: str, value: ConfigValue) -> list[ConfigChange]:
    return [ConfigChange(name=name[:249], value=value.value, operation="SET")]


def _delete(name: str) -> list[ConfigChange]:
    return [ConfigChange(name=name[:249], operation="DELETE")]


# -- topics


@without_content(router.post, "/topics/{topic_name}/configs:alter", "updateKafkaTopicConfigBatch")
async def alter_topic_configs(
    ctx: Ctx,
    topic_name: TopicName,
    changes: ConfigChanges,
    dry_run: DryRun = False,  # noqa: FBT002
    if_match: IfMatch = None,
    _: IdempotencyKey = None,
) -> Response:
    """Change settings of a topic, all or none. If-Match has the ETag of the list."""
    only = dry_run or changes.validate_only
    await admin.alter_topic(ctx, topic_name, changes.data, validate_only=only, if_match=if_match)
    return done()


@without_content(router.put, "/topics/{topic_name}/configs/{name}", "updateKafkaTopicConfig")
async def put_topic_config(
    ctx: Ctx,
    topic_name: TopicName,
    name: ConfigName,
    value: ConfigValue,
    dry_run: DryRun = False,  # noqa: FBT002
    if_match: IfMatch = None,
) -> Response:
    """Set one setting of a topic. If-Match has the ETag of the setting, or that of the list."""
    await admin.alter_topic(
        ctx, topic_name, _set(name, value), validate_only=dry_run, if_match=if_match
    )
    return done()


@without_content(router.delete, "/topics/{topic_name}/configs/{name}", "deleteKafkaTopicConfig")
async def delete_topic_config(
    ctx: Ctx,
    topic_name: TopicName,
    name: ConfigName,
    dry_run: DryRun = False,  # noqa: FBT002
    if_match: IfMatch = None,
) -> Response:
    """Restore the default of one setting of a topic."""
    await configs.one_config(await configs.topic_configs(ctx, topic_name), name)
    await admin.alter_topic(
        ctx, topic_name, _delete(name), validate_only=dry_run, if_match=if_match
    )
    return done()


# -- brokers


@without_content(router.post, "/brokers/{broker_id}/configs:alter", "updateKafkaBrokerConfigBatch")
async def alter_broker_configs(
    ctx: Ctx,
    broker_id: BrokerIdPath,
    changes: ConfigChanges,
    dry_run: DryRun = False,  # noqa: FBT002
    if_match: IfMatch = None,
    _: IdempotencyKey = None,
) -> Response:
    """Change settings of one broker, all or none."""
    only = dry_run or changes.validate_only
    await admin.alter_broker(ctx, broker_id, changes.data, validate_only=only, if_match=if_match)
    return done()


@without_content(router.put, "/brokers/{broker_id}/configs/{name}", "updateKafkaBrokerConfig")
async def put_broker_config(
    ctx: Ctx,
    broker_id: BrokerIdPath,
    name: ConfigName,
    value: ConfigValue,
    dry_run: DryRun = False,  # noqa: FBT002
    if_match: IfMatch = None,
) -> Response:
    """Set one setting of one broker."""
    await admin.alter_broker(
        ctx, broker_id, _set(name, value), validate_only=dry_run, if_match=if_match
    )
    return done()


@without_content(router.delete, "/brokers/{broker_id}/configs/{name}", "deleteKafkaBrokerConfig")
async def delete_broker_config(
    ctx: Ctx,
    broker_id: BrokerIdPath,
    name: ConfigName,
    dry_run: DryRun = False,  # noqa: FBT002
    if_match: IfMatch = None,
) -> Response:
    """Remove one setting of one broker: the cluster's holds again."""
    await configs.one_config(await configs.broker_configs(ctx, broker_id), name)
    await admin.alter_broker(
        ctx, broker_id, _delete(name), validate_only=dry_run, if_match=if_match
    )
    return done()


# -- the cluster


@without_content(router.post, "/broker-configs:alter", "updateKafkaClusterConfigs")
async def alter_cluster_configs(
    ctx: Ctx,
    changes: ConfigChanges,
    dry_run: DryRun = False,  # noqa: FBT002
    if_match: IfMatch = None,
    _: IdempotencyKey = None,
) -> Response:
    """Change settings of all brokers, all or none."""
    only = dry_run or changes.validate_only
    await admin.alter_cluster(ctx, changes.data, validate_only=only, if_match=if_match)
    return done()


@without_content(router.put, "/broker-configs/{name}", "updateKafkaClusterConfig")
async def put_cluster_config(
    ctx: Ctx,
    name: ConfigName,
    value: ConfigValue,
    dry_run: DryRun = False,  # noqa: FBT002
    if_match: IfMatch = None,
) -> Response:
    """Set one setting of all brokers."""
    await admin.alter_cluster(ctx, _set(name, value), validate_only=dry_run, if_match=if_match)
    return done()


@without_content(router.delete, "/broker-configs/{name}", "deleteKafkaClusterConfig")
async def delete_cluster_config(
    ctx: Ctx,
    name: ConfigName,
    dry_run: DryRun = False,  # noqa: FBT002
    if_match: IfMatch = None,
) -> Response:
    """Remove one setting of all brokers."""
    await configs.one_config(await configs.cluster_configs(ctx), name)
    await admin.alter_cluster(ctx, _delete(name), validate_only=dry_run, if_match=if_match)
    return done()
