"""Handlers of group APIs over a real shard, an image with one topic, and rules that a test
sets.
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from broker.config import BrokerConfig
from broker.core.groups.id_requests import CoordinatorReply
from broker.core.groups.requests import GroupReply, GroupRequest
from broker.shell.facts import BrokerFacts
from broker.shell.groups.coordinator import Groups
from broker.shell.groups.group_lag import GroupLag
from broker.shell.groups.letter_problems import LetterProblems
from broker.shell.groups.share_lag import ShareLag
from broker.shell.groups.share_relay import ShareRelay
from broker.shell.kafka.apis import group_apis
from broker.shell.listener.request_router import Handler
from broker.shell.request_context import RequestContext
from broker.shell.rooms import GroupRoom
from broker.shell.transactions.marker_writer import MarkerWriter
from manual_clock import ManualClock
from tidemark.kafka import long_tail
from tidemark.kafka.apis import APIS, ApiKey
from tidemark.kafka.error_responses import error_response
from tidemark.model.authorization import Authorizer, Operation, Requester, Resource
from tidemark.model.errors import TidemarkError
from tidemark.model.metadata import ClusterImage, TopicImage
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.metadata_cache import MetadataCache
from unit.broker.core.groups.group_worlds import ORDERS, World
from unit.broker.shell.broker_parts import absent

Denied = set[tuple[Operation, str]]


class Rules(Authorizer):
    """Allows what is not denied."""

    def __init__(self) -> None:
        self.denied: Denied = set()

    def authorize(self, requester: Requester, operation: Operation, resource: Resource) -> bool:
        super().authorize(requester, operation, resource)
        return (operation, resource.name) not in self.denied


class WorldGroups:
    """The coordinator: one shard that answers all, or fails as it is told."""

    def __init__(self) -> None:
        self.world = World()
        self.failure: TidemarkError | None = None
        self.asked: list[GroupRequest] = []

    async def ask(self, group_id: str, request: GroupRequest) -> CoordinatorReply:
        assert group_id == request.group_id
        self.asked.append(request)
        if self.failure is not None:
            raise self.failure
        request_id = self.world.send(request)
        self.world.pass_time(0)
        return self.world.answers[request_id]

    async def ask_all(self, request: GroupRequest) -> list[GroupReply]:
        if self.failure is not None:
            raise self.failure
        return [cast("GroupReply", self.world.answers[self.world.send(request)])]


def image() -> ClusterImage:
    topic = TopicImage("orders", ORDERS, {}, ())
    return ClusterImage(topics={"orders": topic}, topics_by_id={ORDERS: topic})


def group_handlers(
    groups: object,
    authorizer: Authorizer,
    shown: ClusterImage,
    config: BrokerConfig | None = None,
) -> Mapping[ApiKey, Handler]:
    """Handlers of group APIs, over ``groups`` in place of the coordinator."""
    facts = BrokerFacts.of(config or BrokerConfig(broker_id=1), ManualClock(), random.random)
    metadata = MetadataCache(shown)
    share_relay = ShareRelay(metadata, ChannelPool(), random.random)
    return group_apis(
        replace(facts, authorizer=authorizer),
        metadata,
        GroupRoom(
            cast("Groups", groups),
            absent(MarkerWriter),
            share_relay,
            absent(ShareLag),
            absent(LetterProblems),
            absent(GroupLag),
        ),
    )


@dataclass
class GroupBroker:
    """Handlers of group APIs over one shard."""

    groups: WorldGroups = field(default_factory=WorldGroups)
    authorizer: Rules = field(default_factory=Rules)
    image: ClusterImage = field(default_factory=image)

    def deny(self, operation: Operation, name: str) -> None:
        self.authorizer.denied.add((operation, name))

    def ask(
        self, api_key: ApiKey, fields: Mapping[str, object], version: int | None = None
    ) -> long_tail.Struct:
        """Over the wire's bytes, both ways; a refusal of the whole becomes the typed error."""
        version = APIS[api_key].max if version is None else version
        context = RequestContext(
            Requester("User:me", ""), "me", 1, version, "CLIENT", "10.0.0.7:4711", "request-1"
        )
        body = long_tail.write_request(api_key, version, fields)
        request = long_tail.read_request(api_key, version, memoryview(body))

        handlers = group_handlers(self.groups, self.authorizer, self.image)

        async def handle() -> bytes:
            try:
                answer = await handlers[api_key](request, context)
            except TidemarkError as failure:
                typed = error_response(api_key, version, memoryview(body), int(failure.code))
                assert typed is not None
                return typed
            return long_tail.write_response(api_key, version, answer)

        return long_tail.read_response(api_key, version, memoryview(asyncio.run(handle())))


def versions(api_key: ApiKey) -> range:
    """All that are served."""
    return range(APIS[api_key].served_min, APIS[api_key].max + 1)
