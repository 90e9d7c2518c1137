"""Log levels of brokers, which hold until their processes end."""

from typing import Literal

from pydantic import Field
from tidemark.client.admin.types import AlterConfig, ConfigResource
from tidemark.model.authorization import CLUSTER, Operation

from controller.admin import configs
from controller.admin.brokers import require_broker
from controller.admin.context import AdminContext
from controller.admin.errors import AdminError, try_again
from controller.admin.models import Input, Model

Level = Literal["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"]
"""Names of levels to Kafka's clients (KIP-412)."""


class LoggerView(Model):
    """Logger of a broker, with the level in force. ``root`` is above all others."""

    broker_id: int = Field(examples=[1])
    name: str = Field(examples=["broker.shell.listener.connection"])
    level: str = Field(description="lowest level that is logged", examples=["INFO"])


class LoggerLevel(Input):
    """New level of a logger; null removes it, so that the level of the logger above holds."""

    level: Level | None = Field(examples=["DEBUG"])


async def list_loggers(ctx: AdminContext, broker_id: int) -> list[LoggerView]:
    """Return the loggers of a broker, by name. Raises AdminError."""
    ctx.require(Operation.DESCRIBE_CONFIGS, CLUSTER)
    require_broker(ctx, broker_id)
    resource = ConfigResource("broker-logger", str(broker_id))
    found = (await configs.describe(ctx, [resource], at=broker_id))[resource.name]
    if isinstance(found, AdminError):
        raise found
    return [LoggerView(broker_id=broker_id, name=one.name, level=one.value or "") for one in found]


async def set_level(
    ctx: AdminContext, broker_id: int, name: str, level: Level | None, *, validate_only: bool
) -> None:
    """Set or remove the level of a logger and those below it. Raises AdminError."""
    ctx.require(Operation.ALTER_CONFIGS, CLUSTER)
    broker = require_broker(ctx, broker_id)
    if broker.fenced:
        raise try_again(f"broker {broker_id} is fenced", "start it, or wait until it has joined")
    resource = ConfigResource("broker-logger", str(broker_id))
    change = AlterConfig(name, level, "delete" if level is None else "set")
    async with ctx.brokers.client() as admin:
        await admin.alter_configs({resource: [change]}, validate_only=validate_only)
