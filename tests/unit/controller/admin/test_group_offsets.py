"""Resets as a request names them: a goal with its value, or lines of CSV."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from controller.admin import group_offsets, groups, topics
from controller.admin.context import AdminContext
from controller.admin.errors import AdminError
from controller.admin.group_offsets import ROWS_MAX, ResetRequest, read_csv
from pydantic import ValidationError
from tidemark.client.admin.group_types import GroupDescription, GroupListing
from tidemark.client.errors import GroupNotFoundError
from tidemark.model.errors import ErrorCode

HEADER = "topic,partition,offset\n"


@pytest.mark.parametrize(
    "text",
    [
        "orders,0,120\npayments,3,0",
        HEADER + "orders,0,120\r\n\r\npayments,3,0\r\n",
        '"orders", 0 , 120\npayments,3,0',
    ],
)
def test_lines_are_offsets_by_partition(text: str) -> None:
    assert read_csv(text) == {("orders", 0): 120, ("payments", 3): 0}


@pytest.mark.parametrize(
    "row",
    ["orders,0", "orders,0,1,2", "orders,x,1", "orders,-1,1", "orders,0,-1", "orders,0,1e3",
     "orders,0,²", "orders,0," + "1" * 19, "orders,,1", "; orders"],
)  # fmt: skip
def test_a_wrong_line_is_refused_with_its_number(row: str) -> None:
    with pytest.raises(AdminError, match="line 3 is not topic,partition,offset") as refusal:
        read_csv(f"{HEADER}orders,1,5\n{row}")
    assert (refusal.value.status, refusal.value.field) == (400, "csv")


@pytest.mark.parametrize("text", ["", "\n\n", HEADER, '"orders,0,1', "x,0,1\n" * (ROWS_MAX + 1)])
def test_a_text_without_lines_or_with_too_many_is_refused(text: str) -> None:
    with pytest.raises(AdminError, match="csv") as refusal:
        read_csv(text)
    assert refusal.value.status == 400


def test_a_partition_has_one_line() -> None:
    with pytest.raises(AdminError, match="line 2 names orders-0 again"):
        read_csv("orders,0,1\norders,0,2")


def test_as_many_lines_as_are_allowed_are_read() -> None:
    assert len(read_csv("".join(f"x,{number},1\n" for number in range(ROWS_MAX)))) == ROWS_MAX


@pytest.mark.parametrize(
    "fields",
    [
        {"to": "earliest"},
        {"to": "shift", "value": -5},
        {"to": "offset", "value": 0},
        {"to": "timestamp", "value": 1_790_000_000_000, "topic_name": "orders"},
        {"to": "csv", "csv": "orders,0,1"},
    ],
)
def test_a_goal_has_the_value_that_it_needs(fields: dict[str, Any]) -> None:
    assert ResetRequest(**fields).to == fields["to"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"to": "shift"}, "to=shift needs a value"),
        ({"to": "offset", "value": -1}, "at least 0"),
        ({"to": "timestamp", "value": -1}, "at least 0"),
        ({"to": "csv"}, "csv goes with to=csv"),
        ({"to": "latest", "csv": "orders,0,1"}, "csv goes with to=csv"),
        ({"to": "middle"}, "Input should be"),
        ({"to": "latest", "offset": 1}, "Extra inputs"),
    ],
)
def test_a_request_that_names_no_goal_is_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        ResetRequest(**fields)


class OneShareGroup:
    """A cluster with the share group ``s``; its id has no offsets of consumers."""

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        raise GroupNotFoundError(ErrorCode.GROUP_ID_NOT_FOUND, f"no group {list(group_ids)}")

    async def list_group_offsets(self, group_id: str) -> dict[object, object]:
        return {}

    async def list_groups(self) -> list[GroupListing]:
        return [GroupListing("s", "share", "share", "Empty", 1)]


@pytest.mark.parametrize("by_lines", [False, True])
def test_a_share_group_is_not_reset_as_a_consumer_group_not_even_in_a_dry_run(
    by_lines: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def client() -> AsyncIterator[OneShareGroup]:
        yield OneShareGroup()

    async def no_bounds(*_: object) -> dict[object, object]:
        return {}

    monkeypatch.setattr(topics, "require_readable", lambda *_: None)
    monkeypatch.setattr(topics, "offsets", no_bounds)
    brokers = SimpleNamespace(client=client)
    ctx = cast("AdminContext", SimpleNamespace(require=lambda *_: None, brokers=brokers))
    call = (
        group_offsets.reset_to(ctx, "s", {}, dry_run=True)
        if by_lines
        else groups.reset(ctx, "s", "earliest", 0, topic=None, dry_run=True)
    )
    with pytest.raises(AdminError, match="'s' is a share group") as refusal:
        asyncio.run(call)
    assert refusal.value.status == 409
