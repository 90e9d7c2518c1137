"""Dry runs of deletions: they are refused to whom the deletion is."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from controller.admin import groups, share_groups, topic_changes, transactions, users
from controller.admin.context import AdminContext
from controller.admin.errors import AdminError
from controller.rest import access_users
from controller.rest import groups as rest_groups
from controller.rest import share_groups as rest_share_groups
from controller.rest import topic_changes as rest_topics
from controller.rest import transactions as rest_transactions
from tidemark.model.authorization import (
    CLUSTER,
    Operation,
    Resource,
    group_resource,
    topic_resource,
    transactional_id_resource,
)
from tidemark.model.topics import CONSUMER_OFFSETS
from unit.controller.admin.contexts import a_context
from unit.controller.worlds import a_cluster, a_topic

HANGING = rest_transactions.AbortAt(topic_name="t", partition_id=0, start_offset=0)
Check = Callable[[AdminContext], Awaitable[object]]
CHECKS: dict[str, tuple[Check, Resource]] = {
    "topic": (lambda ctx: rest_topics.delete_topic(ctx, "t", True), topic_resource("t")),
    "user": (lambda ctx: access_users.delete_user(ctx, "u", True), CLUSTER),
    "group": (lambda ctx: rest_groups.delete_group(ctx, "g", True), group_resource("g")),
    "share group": (
        lambda ctx: rest_share_groups.delete_share_group(ctx, "g", True),
        group_resource("g"),
    ),
    "transaction": (
        lambda ctx: rest_transactions.abort(ctx, "x", True),
        transactional_id_resource("x"),
    ),
    "hanging transaction": (
        lambda ctx: rest_transactions.abort_hanging(ctx, HANGING, True),
        topic_resource("t"),
    ),
}


@pytest.mark.parametrize("name", CHECKS)
def test_who_may_only_describe_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def found(*_: object) -> None:
        """What is described is there."""

    monkeypatch.setattr(groups, "get_group", found)
    monkeypatch.setattr(share_groups, "get_share_group", found)
    monkeypatch.setattr(transactions, "get_transaction", found)
    monkeypatch.setattr(users, "get", lambda *_: None)
    check, resource = CHECKS[name]

    async def run() -> object:
        image = a_cluster(a_topic("t", (1,))).image
        return await check(a_context(image, {resource: (Operation.DESCRIBE,)}))

    with pytest.raises(AdminError, match="may not") as refused:
        asyncio.run(run())
    assert refused.value.status == 403


def test_an_internal_topic_is_refused_as_by_the_deletion() -> None:
    async def run() -> None:
        image = a_cluster(a_topic(CONSUMER_OFFSETS, (1,))).image
        allowed = {topic_resource(CONSUMER_OFFSETS): (Operation.DELETE,)}
        await topic_changes.check_delete(a_context(image, allowed), CONSUMER_OFFSETS)

    with pytest.raises(AdminError, match="cannot be deleted"):
        asyncio.run(run())
