"""Reasons for which dead letters are not copied, as callers may see them."""

import asyncio
import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from broker.config import BrokerConfig
from broker.shell.facts import BrokerFacts
from broker.shell.groups.letter_problems import HIDDEN, shown_problem
from broker.shell.groups.share_groups import (
    DescribedOffsets,
    Outcome,
    StartOffset,
    TopicStartOffsets,
)
from broker.shell.kafka import describe_share_group_offsets
from broker.shell.request_context import RequestContext
from broker.shell.rpc.share_views import SharePartitionViews
from manual_clock import ManualClock
from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation, Requester
from tidemark.model.errors import ErrorCode
from tidemark.model.metadata import ClusterImage
from tidemark.model.share_group_configs import DEAD_LETTER_TOPIC
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark_wire.v1 import share_pb2
from unit.broker.core.groups.group_worlds import ORDERS
from unit.broker.shell.kafka.group_handlers import Rules, image

REASON = "there is no topic dlq.a: create it"


def facts_and_image(*, sees_queue: bool) -> tuple[BrokerFacts, ClusterImage]:
    rules = Rules()
    if not sees_queue:
        rules.denied.add((Operation.DESCRIBE, "dlq.a"))
    facts = BrokerFacts.of(BrokerConfig(broker_id=1), ManualClock(), random.random)
    shown = replace(image(), group_configs={"g": {DEAD_LETTER_TOPIC: "dlq.a"}})
    return replace(facts, authorizer=rules), shown


@pytest.mark.parametrize(("sees_queue", "reason"), [(True, REASON), (False, HIDDEN)])
def test_a_reason_is_shown_to_those_who_may_describe_the_queue(
    sees_queue: bool, reason: str
) -> None:
    facts, shown = facts_and_image(sees_queue=sees_queue)
    caller = Requester("User:me", "")
    assert shown_problem(REASON, "g", shown, facts.authorizer, caller) == reason
    assert shown_problem("", "g", shown, facts.authorizer, caller) == ""


# -- where reasons are shown


class Room:
    """A share group with one partition whose letters are not copied."""

    async def describe_offsets(self, *_: object) -> DescribedOffsets:
        topic = TopicStartOffsets(ORDERS, "orders", (StartOffset(0, 5),))
        return DescribedOffsets(Outcome(ErrorCode.NONE), (topic,))

    async def of(self, _: str, partitions: Any) -> dict[Any, Any]:
        return {(ORDERS, one.partition): REASON for one in partitions}

    async def views(self, _: str, keys: Any) -> dict[Any, Any]:
        return {key: SimpleNamespace(letter_problem=REASON, has_start=False) for key in keys}

    def counts(self, _: object) -> Any:
        names = ("end", "available", "acquired", "acknowledged", "archiving", "archived", "behind")
        return SimpleNamespace(**dict.fromkeys(names, 0))

    def oldest_age_ms(self, _: object) -> int:
        return 0


class NoLag:
    async def of(self, *_: object) -> dict[Any, int]:
        return {}


@pytest.mark.feature("SE17")
@pytest.mark.parametrize(("sees_queue", "reason"), [(True, REASON), (False, HIDDEN)])
def test_offsets_show_the_reason_to_those_who_may_describe_the_queue(
    sees_queue: bool, reason: str
) -> None:
    facts, shown = facts_and_image(sees_queue=sees_queue)
    room: Any = Room()
    request = cast("Struct", SimpleNamespace(groups=[Struct(group_id="g", topics=None)]))
    context = RequestContext(Requester("User:me", ""), "me", 1, 1, "CLIENT", "10.0.0.7:1", "id")
    answer: Any = asyncio.run(
        describe_share_group_offsets.handle(
            facts, MetadataCache(shown), room, cast("Any", NoLag()), room, request, context
        )
    )
    (topic,) = answer["groups"][0]["topics"]
    assert [one["error_message"] for one in topic["partitions"]] == [reason]


@pytest.mark.feature("SE17")
@pytest.mark.parametrize(("sees_queue", "reason"), [(True, REASON), (False, HIDDEN)])
def test_views_show_the_reason_to_those_who_may_describe_the_queue(
    sees_queue: bool, reason: str
) -> None:
    facts, shown = facts_and_image(sees_queue=sees_queue)
    views = SharePartitionViews(facts, MetadataCache(shown), cast("Any", Room()))
    topics = [share_pb2.ShareTopicPartitions(topic_id=ORDERS, partitions=[0])]
    request = share_pb2.DescribeShareLagsRequest(group_id="g", topics=topics)
    context = cast("Any", SimpleNamespace(peer=lambda: "peer"))
    (lag,) = asyncio.run(views.DescribeLags(request, context)).lags
    assert lag.dead_letter_problem == reason
