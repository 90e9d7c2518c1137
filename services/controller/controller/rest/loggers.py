"""Log levels of brokers."""

from typing import Annotated, Literal

from fastapi import Path, Query, Response

from controller.admin import loggers as admin
from controller.rest.changing import done, without_content
from controller.rest.problems import CHANGES, RESPONSES
from controller.rest.shapes import (
    NAME_CHARS_MAX,
    BrokerIdPath,
    Collection,
    Ctx,
    Here,
    Name,
    Resource,
    cluster_router,
)

router = cluster_router("Brokers", {**RESPONSES, **CHANGES})

LoggerName = Annotated[
    Name,
    Path(description="name of a logger, or root", examples=["root"], max_length=NAME_CHARS_MAX),
]


class LoggerData(admin.LoggerView, Resource):
    """Logger of a broker with its level."""

    kind: Literal["TidemarkBrokerLogger"] = "TidemarkBrokerLogger"
    cluster_id: str


class LoggerDataList(Collection[LoggerData]):
    """Loggers of a broker."""

    kind: Literal["TidemarkBrokerLoggerList"] = "TidemarkBrokerLoggerList"


@router.get("/brokers/{broker_id}/loggers", operation_id="listBrokerLoggers")
async def list_loggers(ctx: Ctx, here: Here, broker_id: BrokerIdPath) -> LoggerDataList:
    """Return the loggers of a broker, each with the level in force."""
    found = await admin.list_loggers(ctx, broker_id)
    data = [
        LoggerData(
            **one.model_dump(),
            metadata=here.about("brokers", broker_id, "loggers", one.name, broker=broker_id),
            cluster_id=here.cluster_id,
        )
        for one in found
    ]
    return LoggerDataList(metadata=here.listing(), data=data)


@without_content(router.put, "/brokers/{broker_id}/loggers/{name}", "setBrokerLoggerLevel")
async def set_level(
    ctx: Ctx,
    broker_id: BrokerIdPath,
    name: LoggerName,
    wanted: admin.LoggerLevel,
    dry_run: Annotated[bool, Query(description="check, and change nothing")] = False,  # noqa: FBT002
) -> Response:
    """Set the level of a logger, and of those below it that have none of their own, until the
    broker ends. The logger `root` is above all others.
    """
    await admin.set_level(ctx, broker_id, name, wanted.level, validate_only=dry_run)
    return done()
