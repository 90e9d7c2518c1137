"""Resets of offsets as a request names them: to a goal, or to the offsets of a CSV text."""

import csv
from typing import Final, Literal, Self

from pydantic import Field, model_validator
from tidemark.model.authorization import Operation, group_resource
from tidemark.model.topics import TopicPartition

from controller.admin import groups, topics
from controller.admin.context import AdminContext
from controller.admin.errors import bad_value, conflict, not_found, try_again
from controller.admin.groups import OffsetMove, ResetResult
from controller.admin.models import Input

ROWS_MAX: Final = 10_000
_NUMBERED: Final = frozenset({"offset", "shift", "timestamp"})


class ResetRequest(Input):
    """Goal of a reset, of one topic or of all that the group has committed."""

    to: Literal["earliest", "latest", "offset", "shift", "timestamp", "csv"] = Field(
        examples=["earliest"]
    )
    value: int | None = Field(
        default=None,
        ge=-(2**62),
        lt=2**62,
        description="the offset, the records to shift by (negative: back), or ms since 1970",
        examples=[None],
    )
    topic_name: str | None = Field(default=None, max_length=249, examples=["orders"])
    csv: str | None = Field(
        default=None,
        max_length=1_000_000,
        description="lines of topic,partition,offset, with to=csv",
        examples=[None],
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.to in _NUMBERED and self.value is None:
            raise ValueError(f"to={self.to} needs a value")
        if self.to in ("offset", "timestamp") and (self.value or 0) < 0:
            raise ValueError(f"to={self.to} needs a value of at least 0")
        if (self.to == "csv") != (self.csv is not None):
            raise ValueError("csv goes with to=csv")
        return self


async def reset(
    ctx: AdminContext, group_id: str, request: ResetRequest, *, dry_run: bool
) -> ResetResult:
    """Move the offsets of a group without members. Raises AdminError."""
    if request.to == "csv":
        return await reset_to(ctx, group_id, read_csv(request.csv or ""), dry_run=dry_run)
    if request.topic_name is not None:
        ctx.topic(request.topic_name)
    result = await groups.reset(
        ctx, group_id, request.to, request.value or 0, topic=request.topic_name, dry_run=dry_run
    )
    if not result.moves and request.topic_name is None:
        raise not_found(
            f"group {group_id!r} has no committed offsets",
            field="group_id",
            remedy="name a topic_name to set the first ones",
        )
    return result


async def reset_to(
    ctx: AdminContext, group_id: str, wanted: dict[tuple[str, int], int], *, dry_run: bool
) -> ResetResult:
    """Move a group to given offsets, each within its log. Raises AdminError."""
    ctx.require(Operation.READ, group_resource(group_id))
    for topic, partition in wanted:
        topics.require_partition(ctx, topic, partition)
    topics.require_readable(ctx, [topic for topic, _ in wanted])
    bounds = await topics.offsets(ctx, wanted)
    moves: list[OffsetMove] = []
    async with ctx.brokers.client() as admin:
        committed = await admin.list_group_offsets(group_id)
        for key, offset in sorted(wanted.items()):
            row, at = bounds[key], TopicPartition(*key)
            if row.earliest_offset is None or row.latest_offset is None:
                raise try_again(f"the offsets of {at} are not known: {row.problem}")
            before = committed.get(at)
            moves.append(
                OffsetMove(
                    topic_name=at.topic,
                    partition_id=at.partition,
                    before=None if before is None else before.offset,
                    after=min(max(offset, row.earliest_offset), row.latest_offset),
                )
            )
        listed = {one.group_id: one for one in await admin.list_groups()}
        groups.check_type(listed.values(), group_id)
        group = listed.get(group_id)
        if group is not None and group.state not in ("Empty", "Dead"):
            raise conflict(
                f"group {group_id!r} has members and is {group.state}",
                remedy="stop its members, and try again",
            )
        if moves and not dry_run:
            await admin.alter_group_offsets(
                group_id,
                {TopicPartition(one.topic_name, one.partition_id): one.after for one in moves},
            )
    return ResetResult(group_id=group_id, dry_run=dry_run, moves=moves)


def read_csv(text: str) -> dict[tuple[str, int], int]:
    """Return offsets by topic and partition from lines of topic,partition,offset. Raises AdminError
    with the number of a wrong line.
    """
    wanted: dict[tuple[str, int], int] = {}
    try:
        rows = list(csv.reader(text.splitlines(), strict=True))
    except csv.Error as problem:
        raise bad_value(f"csv: {problem}", field="csv") from None
    if len(rows) > ROWS_MAX:
        raise bad_value(f"csv may have {ROWS_MAX} lines", field="csv")
    for number, row in enumerate(rows, 1):
        if not row or row == ["topic", "partition", "offset"]:
            continue
        if len(row) != 3 or not all(_is_number(one) for one in row[1:]):
            raise bad_value(
                f"line {number} is not topic,partition,offset", field="csv", remedy="orders,0,120"
            )
        at = TopicPartition(row[0].strip(), int(row[1]))
        if at in wanted:
            raise bad_value(f"line {number} names {at} again", field="csv")
        wanted[at] = int(row[2])
    if not wanted:
        raise bad_value("csv has no line", field="csv", remedy="orders,0,120")
    return wanted


def _is_number(text: str) -> bool:
    return text.strip().isascii() and text.strip().isdigit() and len(text.strip()) <= 18
