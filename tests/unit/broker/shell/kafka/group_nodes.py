"""A broker's node as the handlers of group APIs see it: a real shard, an image with one topic, and
rules that a test sets.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.core.authorizer import Authorizer, Operation, Resource
from broker.core.groups.requests import GroupReply, GroupRequest
from broker.shell.kafka.registry import LONG_TAIL
from broker.shell.request_context import RequestContext
from tidemark.kafka import long_tail
from tidemark.kafka.apis import APIS, ApiKey
from tidemark.model.errors import TidemarkError
from tidemark.model.metadata import ClusterImage, TopicImage
from unit.broker.core.groups.group_worlds import ORDERS, World

Denied = set[tuple[Operation, str]]


class Rules(Authorizer):
    """Allows what is not denied."""

    def __init__(self) -> None:
        self.denied: Denied = set()

    def authorize(self, principal: str, operation: Operation, resource: Resource) -> bool:
        super().authorize(principal, operation, resource)
        return (operation, resource.name) not in self.denied


class WorldGroups:
    """The coordinator: one shard that answers all, or fails as it is told."""

    def __init__(self) -> None:
        self.world = World()
        self.failure: TidemarkError | None = None
        self.asked: list[GroupRequest] = []

    async def ask(
        self, group_id: str, request: GroupRequest, context: RequestContext
    ) -> GroupReply:
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
        return [self.world.answers[self.world.send(request)]]


def image() -> ClusterImage:
    topic = TopicImage("orders", ORDERS, {}, ())
    return ClusterImage(topics={"orders": topic}, topics_by_id={ORDERS: topic})


@dataclass
class GroupBroker:
    """What `broker.shell.kafka.group_calls.GroupNode` wants."""

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
            "User:me", "me", 1, version, "CLIENT", "10.0.0.7:4711", "request-1"
        )
        body = long_tail.write_request(api_key, version, fields)
        request = long_tail.read_request(api_key, version, memoryview(body))

        async def handle() -> bytes:
            try:
                answer = await LONG_TAIL[api_key](self, request, context)  # type: ignore[arg-type]
            except TidemarkError as failure:
                typed = long_tail.error_response(
                    api_key, version, memoryview(body), int(failure.code)
                )
                assert typed is not None
                return typed
            return long_tail.write_response(api_key, version, answer)

        return long_tail.read_response(api_key, version, memoryview(asyncio.run(handle())))


def versions(api_key: ApiKey) -> range:
    """All that are served."""
    return range(APIS[api_key].served_min, APIS[api_key].max + 1)
