"""Groups in topics that the caller may not see, or not read."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from controller.admin import group_offsets, groups, share_groups, transactions
from controller.admin.context import AdminContext
from controller.admin.errors import AdminError
from tidemark.model.authorization import (
    Operation,
    group_resource,
    topic_resource,
    transactional_id_resource,
)
from tidemark.model.topics import TopicPartition
from unit.controller.admin.contexts import a_context
from unit.controller.worlds import a_cluster, a_topic

OPEN, SECRET = TopicPartition("open", 0), TopicPartition("secret", 0)
SEES, READS = (Operation.DESCRIBE,), (Operation.READ,)


class StubAdmin:
    """Client of brokers that serve the controller, which may do everything."""

    def __init__(self) -> None:
        self.moved: dict[TopicPartition, int] = {}
        member = {"client_id": "c", "host": "/10.0.0.2", "assignment": (OPEN, SECRET)}
        self._share_member = SimpleNamespace(
            member_id="m", rack=None, member_epoch=1, topics=("open", "secret"), **member
        )

    async def describe_groups(self, ids: list[str]) -> dict[str, Any]:
        found = SimpleNamespace(
            kind="Consumer", state="Empty", assignor="range", epoch=1, members=(), is_quiet=True
        )
        return dict.fromkeys(ids, found)

    async def list_group_offsets(self, _: str) -> dict[TopicPartition, Any]:
        return dict.fromkeys((OPEN, SECRET), SimpleNamespace(offset=5))

    async def alter_group_offsets(self, _: str, moves: dict[TopicPartition, int]) -> None:
        self.moved |= moves

    async def describe_share_groups(self, ids: list[str]) -> dict[str, Any]:
        found = SimpleNamespace(
            state="Empty",
            assignor="simple",
            epoch=1,
            assignment_epoch=1,
            members=(self._share_member,),
            is_quiet=True,
        )
        return dict.fromkeys(ids, found)

    async def list_share_group_offsets(self, _: str) -> dict[TopicPartition, Any]:
        return dict.fromkeys(
            (OPEN, SECRET), SimpleNamespace(start_offset=1, leader_epoch=1, lag=None)
        )

    alter_share_group_offsets = alter_group_offsets

    async def describe_transactions(self, ids: list[str]) -> dict[str, Any]:
        found = SimpleNamespace(
            producer_id=1,
            producer_epoch=1,
            state="Ongoing",
            timeout_ms=1,
            started_ms=1,
            partitions=(OPEN, SECRET),
        )
        return dict.fromkeys(ids, found)


@pytest.fixture(autouse=True)
def logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every partition offsets from 0 to 9, without a broker."""

    async def offsets(_: AdminContext, partitions: list[tuple[str, int]]) -> dict[Any, Any]:
        row = SimpleNamespace(
            earliest_offset=0, latest_offset=9, last_stable_offset=9, problem=None
        )
        return dict.fromkeys(partitions, row)

    async def times(*_: object) -> dict[TopicPartition, int | None]:
        return {}

    monkeypatch.setattr("controller.admin.topics.offsets", offsets)
    monkeypatch.setattr("controller.admin.groups._times", times)


def context(
    admin: StubAdmin, *, group: tuple[Operation, ...], **topics: tuple[Operation, ...]
) -> AdminContext:
    image = a_cluster(a_topic("open", (1,)), a_topic("secret", (1,))).image
    allowed = {topic_resource(name): operations for name, operations in topics.items()}
    allowed |= {group_resource("g"): group, transactional_id_resource("t"): group}
    return a_context(image, allowed, admin)


def test_a_group_is_shown_without_topics_that_the_caller_may_not_see() -> None:
    ctx = context(StubAdmin(), group=SEES, open=SEES)
    found = asyncio.run(groups.get_group(ctx, "g"))
    assert {one.topic_name for one in found.partitions} == {"open"}
    assert found.total_lag == 4


def test_a_share_group_is_shown_without_topics_that_the_caller_may_not_see() -> None:
    ctx = context(StubAdmin(), group=SEES, open=SEES)
    found = asyncio.run(share_groups.get_share_group(ctx, "g"))
    (member,) = found.members
    assert {one.topic_name for one in (*found.partitions, *member.partitions)} == {"open"}
    assert member.topics == ["open"]


def test_a_transaction_is_shown_without_topics_that_the_caller_may_not_see() -> None:
    ctx = context(StubAdmin(), group=SEES, open=SEES)
    found = asyncio.run(transactions.get_transaction(ctx, "t"))
    assert [one.topic_name for one in found.partitions] == ["open"]


@pytest.mark.parametrize("kind", [groups, share_groups])
def test_offsets_move_in_topics_that_the_caller_may_read(kind: Any) -> None:
    admin = StubAdmin()
    ctx = context(admin, group=READS, open=READS)
    asyncio.run(kind.reset(ctx, "g", "earliest", dry_run=False))
    assert admin.moved == {OPEN: 0}


@pytest.mark.parametrize("kind", [groups, share_groups])
def test_no_offset_moves_if_a_topic_may_only_be_seen(kind: Any) -> None:
    admin = StubAdmin()
    ctx = context(admin, group=READS, open=READS, secret=SEES)
    for topic in (None, "secret"):
        with pytest.raises(AdminError, match="may not READ secret"):
            asyncio.run(kind.reset(ctx, "g", "earliest", topic=topic, dry_run=False))
    with pytest.raises(AdminError, match="may not READ secret"):
        asyncio.run(group_offsets.reset_to(ctx, "g", {SECRET: 3}, dry_run=False))
    assert admin.moved == {}
