"""Diagnostics: a bundle of what this controller has about the cluster, without records."""

import io
import json
import zipfile
from collections.abc import Awaitable, Callable
from typing import Any, Final

from pydantic import BaseModel
from tidemark.model.authorization import Operation, topic_resource
from tidemark.model.topics import topic_id_text
from tidemark.runtime.telemetry import levels

from controller.admin import brokers, cluster, configs, groups, health, operations, reassignments
from controller.admin.context import AdminContext
from controller.admin.errors import AdminError

TOPICS_MAX: Final = 10_000


async def bundle(ctx: AdminContext) -> bytes:
    """Return a ZIP archive of JSON files. A part that fails has its error in its file. Raises
    AdminError.
    """
    ctx.require(Operation.DESCRIBE)
    parts: dict[str, Callable[[], Awaitable[Any]]] = {
        "cluster.json": lambda: cluster.cluster(ctx),
        "brokers.json": lambda: brokers.list_brokers(ctx),
        "log-dirs.json": lambda: _log_dirs(ctx),
        "topics.json": lambda: topics(ctx),
        "broker-configs.json": lambda: _broker_configs(ctx),
        "cluster-configs.json": lambda: configs.cluster_configs(ctx),
        "groups.json": lambda: _groups(ctx),
        "reassignments.json": lambda: reassignments.list_reassignments(ctx),
        "operations.json": lambda: operations.list_operations(ctx),
        "health.json": lambda: health.health(ctx),
        "events.json": lambda: _events(ctx),
        "log-levels.json": lambda: _levels(),
    }
    answers = await ctx.each(parts, lambda name: parts[name]())
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, answer in answers.items():
            archive.writestr(name, json.dumps(_plain(answer), indent=1))
    return content.getvalue()


async def _log_dirs(ctx: AdminContext) -> Any:
    return list((await brokers.all_log_dirs(ctx)).values())


async def topics(ctx: AdminContext) -> list[dict[str, Any]]:
    """Return topics with partitions and what is set on them; the first TOPICS_MAX by name. Null:
    the caller may not see what is set.
    """
    found = ctx.image.topics
    return [
        {
            "name": name,
            "topic_id": topic_id_text(found[name].topic_id),
            "configs": dict(found[name].configs)
            if ctx.may(Operation.DESCRIBE_CONFIGS, topic_resource(name))
            else None,
            "partitions": [
                {
                    "leader": one.leader,
                    "leader_epoch": one.leader_epoch,
                    "replicas": list(one.replicas),
                    "isr": list(one.isr),
                    "elr": list(one.elr),
                }
                for one in found[name].partitions
            ],
        }
        for name in sorted(found)[:TOPICS_MAX]
    ]


async def _broker_configs(ctx: AdminContext) -> Any:
    ids = sorted(ctx.image.brokers)
    found = await ctx.each(ids, lambda one: configs.broker_configs(ctx, one))
    return {str(one): answer for one, answer in found.items()}


async def _groups(ctx: AdminContext) -> Any:
    listed, problems = await groups.list_groups(ctx)
    return {"groups": listed, "problems": problems}


async def _events(ctx: AdminContext) -> Any:
    return ctx.shared.events.after(0)


async def _levels() -> Any:
    return levels()


def _plain(answer: Any) -> Any:
    """Return JSON values of models, lists, mappings and errors."""
    if isinstance(answer, BaseModel):
        return answer.model_dump(mode="json")
    if isinstance(answer, AdminError):
        return {"error_code": answer.error_code, "message": answer.message}
    if isinstance(answer, dict):
        return {key: _plain(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return [_plain(one) for one in answer]
    return answer
