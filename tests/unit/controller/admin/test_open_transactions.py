"""Transactions open in partitions: what a caller sees of those to whose id it has no right."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from controller.admin import transactions
from controller.admin.transactions import OpenView
from tidemark.client.admin.group_types import TransactionDescription
from tidemark.client.admin.types import ProducerState
from tidemark.model.authorization import (
    Operation,
    Resource,
    topic_resource,
    transactional_id_resource,
)
from tidemark.model.topics import TopicPartition
from unit.controller.admin.contexts import a_context
from unit.controller.worlds import a_cluster, a_topic

AT = TopicPartition("orders", 0)
SEES = (Operation.DESCRIBE,)


class StubAdmin:
    """Client of brokers that serve the controller, which may do everything."""

    async def list_transactions(self, *, producer_ids: list[int]) -> list[Any]:
        return [SimpleNamespace(producer_id=one, transactional_id="pay") for one in producer_ids]

    async def describe_transactions(self, _: set[str]) -> dict[str, TransactionDescription]:
        return {"pay": TransactionDescription("pay", "Ongoing", 7, 0, 60_000, 400, (AT,))}


def shown(monkeypatch: pytest.MonkeyPatch, *also: Resource) -> OpenView:
    """The transaction of ``pay`` in ``orders``, for a caller who may describe the topic."""

    async def states(*_: object) -> Any:
        return {AT: [ProducerState(7, 0, 1, 900, 0, 5)]}, []

    async def since(*_: object) -> dict[TopicPartition, int]:
        return {AT: 500}

    monkeypatch.setattr(transactions, "_states", states)
    monkeypatch.setattr(transactions, "_since", since)
    allowed = dict.fromkeys((topic_resource("orders"), *also), SEES)
    ctx = a_context(a_cluster(a_topic("orders", (1,))).image, allowed, StubAdmin())
    (found,), _ = asyncio.run(transactions.open_transactions(ctx, "orders"))
    return found


def test_the_id_is_shown_to_who_may_describe_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = shown(monkeypatch, transactional_id_resource("pay"))
    assert (found.transactional_id, found.state, found.open_ms) == ("pay", "Ongoing", 600)
    assert not found.id_withheld


def test_without_that_right_only_what_the_partition_has_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = shown(monkeypatch)
    assert (found.transactional_id, found.state, found.open_ms) == (None, None, None)
    assert (found.producer_id, found.start_offset, found.held_ms) == (7, 5, 500)
    assert found.id_withheld
    assert not found.is_hanging
