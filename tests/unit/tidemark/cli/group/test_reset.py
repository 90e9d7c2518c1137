"""``tidemark group reset`` of an id that a share group has."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest
from tidemark.cli.failure import CommandError
from tidemark.cli.group import admin as group_admin
from tidemark.cli.group.admin import ResetJob, reset
from tidemark.cli.group.reset_options import Scope
from tidemark.client.admin.group_types import GroupDescription, GroupListing
from tidemark.client.errors import GroupNotFoundError
from tidemark.model.errors import ErrorCode
from tidemark.plans.offset_reset import Goal, Target


class OneShareGroup:
    """A cluster with the share group ``s``; its id has no offsets of consumers."""

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        raise GroupNotFoundError(ErrorCode.GROUP_ID_NOT_FOUND, f"no group {list(group_ids)}")

    async def list_group_offsets(self, group_id: str) -> dict[object, object]:
        return {}

    async def list_groups(self) -> list[GroupListing]:
        return [GroupListing("s", "share", "share", "Empty", 1)]


@pytest.mark.parametrize("execute", [False, True])
def test_a_plan_that_cannot_be_carried_out_is_not_shown(
    execute: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def opened(_: str) -> AsyncIterator[OneShareGroup]:
        yield OneShareGroup()

    monkeypatch.setattr(group_admin, "open_admin", opened)
    job = ResetJob("b:9092", "s", Target(Goal.EARLIEST), [Scope("t", ())], execute)
    with pytest.raises(CommandError, match="'s' is a share group") as refused:
        asyncio.run(reset(job))
    assert refused.value.hint == "tidemark share reset s"
