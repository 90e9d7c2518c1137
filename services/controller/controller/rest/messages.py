"""Messages of a topic read, and records produced."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import Field

from controller.admin import messages as admin
from controller.admin import produce as produce_admin
from controller.admin.errors import AdminError, bad_value
from controller.admin.models import Input, ItemProblem
from controller.admin.payloads import Format, Payload, show
from controller.admin.produce import NewRecord
from controller.admin.records import Search, StoredRecord
from controller.rest.idempotent import IdempotencyKey, IdempotentRoute
from controller.rest.problems import RESPONSES
from controller.rest.shapes import (
    Collection,
    Ctx,
    Here,
    Links,
    Metadata,
    Resource,
    Shape,
    TopicName,
    cluster_router,
)

router = cluster_router("Records", RESPONSES, route_class=IdempotentRoute)


class HeaderData(Shape):
    """Header of a record."""

    name: str = Field(examples=["trace"])
    value: Payload


class MessageData(Resource):
    """One record."""

    kind: Literal["TidemarkMessage"] = "TidemarkMessage"
    cluster_id: str
    topic_name: str = Field(examples=["orders"])
    partition_id: int = Field(examples=[0])
    offset: int = Field(examples=[41])
    timestamp_ms: int = Field(examples=[1_790_000_000_000])
    timestamp_type: Literal["CreateTime", "LogAppendTime"]
    key: Payload
    value: Payload
    headers: list[HeaderData]
    producer_id: int | None = Field(description="null if the producer is not idempotent")
    producer_epoch: int
    state: Literal["plain", "committed", "aborted", "open", "marker"] = Field(
        description="state of its transaction; plain without one"
    )
    compression: str = Field(description="codec of its batch", examples=["none"])
    note: str = Field(description="meaning of a marker, or the reason why it cannot be read")


class PositionData(Shape):
    """Position from which to continue in one partition."""

    partition_id: int = Field(examples=[0])
    next_offset: int = Field(examples=[42])


class MessageDataList(Collection[MessageData]):
    """Records of a read, with where to continue."""

    kind: Literal["TidemarkMessageList"] = "TidemarkMessageList"
    positions: list[PositionData]
    scanned: int = Field(description="records looked at", examples=[100])
    at_end: bool = Field(description="true if no partition has more records")
    problems: list[ItemProblem] = Field(description="partitions that could not be read")


@router.get("/topics/{topic_name}/messages", operation_id="readMessages")
async def read_messages(
    ctx: Ctx,
    here: Here,
    topic_name: TopicName,
    start: Annotated[
        Literal["latest", "earliest", "offset", "timestamp"],
        Query(alias="from", description="latest: the newest records, newest first"),
    ] = "latest",
    partition: Annotated[
        int | None, Query(ge=0, lt=2**31, description="without it: all partitions")
    ] = None,
    offset: Annotated[int, Query(ge=0, lt=2**63, description="with from=offset")] = 0,
    timestamp: Annotated[
        int, Query(ge=0, lt=2**62, description="ms since 1970, with from=timestamp")
    ] = 0,
    positions: Annotated[
        str,
        Query(
            description="partition:offset,... of the answer before, to continue",
            max_length=4_096,
            pattern=r"^([0-9]{1,9}:[0-9]{1,18}(,[0-9]{1,9}:[0-9]{1,18})*)?$",
        ),
    ] = "",
    limit: Annotated[int, Query(ge=1, le=admin.LIMIT_MAX)] = 50,
    search: Annotated[str, Query(max_length=1_024, description="text, without case")] = "",
    search_in: Annotated[Literal["any", "key", "value", "headers"], Query()] = "any",
    committed_only: Annotated[  # noqa: FBT002
        bool, Query(description="false: with open and aborted records, and markers")
    ] = True,
    key_format: Annotated[Format, Query()] = "auto",
    value_format: Annotated[Format, Query()] = "auto",
) -> MessageDataList:
    """Return records of a topic: from an offset, a time, the start or the end; filtered, at most
    `limit`, as text, JSON or hex. A partition whose leader is late is a problem of its own.
    """
    seek = admin.Seek(start, offset if start == "offset" else timestamp)
    if positions:
        seek = admin.Seek("positions", 0, _positions(ctx, topic_name, positions))
    query = admin.MessagesQuery(seek, partition, limit, Search(search, search_in), committed_only)
    found = await admin.read(ctx, topic_name, query)
    return MessageDataList(
        metadata=here.listing(),
        data=[_message(here, one, key_format, value_format) for one in found.records],
        positions=[
            PositionData(partition_id=number, next_offset=at)
            for number, at in sorted(found.positions.items())
        ],
        scanned=found.scanned,
        at_end=found.at_end,
        problems=[
            ItemProblem(item=f"{topic_name}-{number}", error_code=50003, message=reason)
            for number, reason in sorted(found.problems.items())
        ],
    )


def _positions(ctx: Ctx, topic: str, text: str) -> dict[int, int]:
    count = len(ctx.topic(topic).partitions)
    found: dict[int, int] = {}
    for pair in text.split(","):
        name, _, at = pair.partition(":")
        found[int(name)] = int(at)
    for number in found:
        if number >= count:
            raise bad_value(
                f"topic {topic!r} has partitions 0 to {count - 1}, not {number}", field="positions"
            )
    return found


def _message(here: Links, one: StoredRecord, key_as: Format, value_as: Format) -> MessageData:
    return MessageData(
        metadata=Metadata(
            self=here.url("topics", one.topic, "messages")
            + f"?from=offset&partition={one.partition}&offset={one.offset}&limit=1"
        ),
        cluster_id=here.cluster_id,
        topic_name=one.topic,
        partition_id=one.partition,
        offset=one.offset,
        timestamp_ms=one.timestamp_ms,
        timestamp_type="LogAppendTime" if one.is_append_time else "CreateTime",
        key=show(one.key, key_as),
        value=show(one.value, value_as),
        headers=[HeaderData(name=name, value=show(at, value_as)) for name, at in one.headers],
        producer_id=one.producer_id,
        producer_epoch=one.producer_epoch,
        state=one.state,
        compression=one.codec,
        note=one.note,
    )


# -- produce


class PartData(Shape):
    """Size and type of a key or value."""

    size: int = Field(examples=[8])
    type: Literal["JSON", "STRING", "BINARY"]


class ProduceData(Shape):
    """Place of a produced record."""

    error_code: Literal[200] = 200
    cluster_id: str
    topic_name: str = Field(examples=["orders"])
    partition_id: int = Field(examples=[0])
    offset: int = Field(examples=[42])
    timestamp: str | None = Field(examples=["2026-11-23T12:00:00Z"])
    key: PartData | None = None
    value: PartData | None = None


class BatchEntry(NewRecord):
    """Record of a batch, with an id of the caller's."""

    id: str = Field(min_length=1, max_length=80, pattern=r"^[a-zA-Z0-9_-]+$", examples=["1"])


class BatchRequest(Input):
    """Records to produce."""

    entries: list[BatchEntry] = Field(min_length=1, max_length=produce_admin.RECORDS_MAX)


class BatchSuccess(ProduceData):
    """Record of a batch that was produced."""

    id: str = Field(examples=["1"])


class BatchFailure(Shape):
    """Record of a batch that was not produced."""

    id: str = Field(examples=["2"])
    error_code: int = Field(examples=[40002])
    message: str


class BatchData(Shape):
    """Results of a batch."""

    successes: list[BatchSuccess]
    failures: list[BatchFailure]


def _place(here: Links, record: NewRecord, written: Any) -> dict[str, Any]:
    moment = None
    if written.timestamp_ms >= 0:
        moment = _iso(written.timestamp_ms)
    return {
        "cluster_id": here.cluster_id,
        "topic_name": written.topic,
        "partition_id": written.partition,
        "offset": written.offset,
        "timestamp": moment,
        "key": _part(record, "key"),
        "value": _part(record, "value"),
    }


def _iso(timestamp_ms: int) -> str | None:
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1_000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _part(record: NewRecord, name: Literal["key", "value"]) -> PartData | None:
    part = record.key if name == "key" else record.value
    size = produce_admin.size_of(part)
    return None if part is None or size is None else PartData(size=size, type=part.type)


@router.post("/topics/{topic_name}/records", operation_id="produceRecord")
async def produce_record(
    ctx: Ctx, here: Here, topic_name: TopicName, record: NewRecord, _: IdempotencyKey = None
) -> ProduceData:
    """Produce one record with acks=all."""
    result = (await produce_admin.produce(ctx, topic_name, [record]))[0]
    if isinstance(result, AdminError):
        raise result
    return ProduceData(**_place(here, record, result))


@router.post(
    "/topics/{topic_name}/records:batch", operation_id="produceRecordsBatch", status_code=207
)
async def produce_batch(
    ctx: Ctx, here: Here, topic_name: TopicName, batch: BatchRequest, _: IdempotencyKey = None
) -> BatchData:
    """Produce several records with acks=all, each alone."""
    ids = [one.id for one in batch.entries]
    if len(set(ids)) != len(ids):
        raise bad_value("an id is used twice", field="entries.id")
    results = await produce_admin.produce(ctx, topic_name, list(batch.entries))
    successes: list[BatchSuccess] = []
    failures: list[BatchFailure] = []
    for entry, result in zip(batch.entries, results, strict=True):
        if isinstance(result, AdminError):
            failures.append(
                BatchFailure(id=entry.id, error_code=result.error_code, message=result.message)
            )
        else:
            successes.append(BatchSuccess(id=entry.id, **_place(here, entry, result)))
    return BatchData(successes=successes, failures=failures)
