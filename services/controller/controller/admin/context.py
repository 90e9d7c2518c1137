"""AdminContext: the caller of a function, and everything that the functions share."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import (
    ANONYMOUS,
    CLUSTER,
    Operation,
    Requester,
    Resource,
    topic_resource,
)
from tidemark.model.metadata import ClusterImage, TopicImage
from tidemark.runtime.clock import Clock

from controller.admin.access_rules import AccessRules
from controller.admin.broker_calls import BrokerCalls
from controller.admin.cache import Aged, AgedCache
from controller.admin.errors import FORBIDDEN, AdminError, try_again, unknown_topic
from controller.admin.events import EventLog
from controller.admin.gate_metrics import GateMetrics
from controller.admin.idempotency import IdempotencyStore
from controller.admin.image import ImageSource
from controller.admin.operation_store import OperationStore
from controller.admin.traffic_log import TrafficLog
from controller.shell.audit import FULL
from controller.shell.node import ControllerNode

NOBODY: Final = Requester(ANONYMOUS, "")
"""Caller that nobody has asked who it is."""
_VISIBLE_S_MAX: Final = 5.0

Item = TypeVar("Item")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class AdminLimits:
    """Bounds of the administration of one controller, from its configuration."""

    page_wait_ms: int = 1_000
    """Time for which a page waits for brokers; figures that are later are missing from it."""
    calls_max: int = 64
    streams_max: int = 64
    message_clients_max: int = 8
    """Clients that read or write messages at a time, of all callers."""


@dataclass(slots=True)
class Shared:
    """Parts of the administration that live as long as the controller."""

    node: ControllerNode
    image: ImageSource
    brokers: BrokerCalls
    clock: Clock
    limits: AdminLimits
    answers: AgedCache[tuple[str, int], Any]
    """Answers of brokers, by kind of request and broker."""
    totals: AgedCache[tuple[str, int], Any]
    """Answers that cost a broker more, which are shown at a higher age."""
    events: EventLog
    traffic: TrafficLog
    operations: OperationStore
    idempotency: IdempotencyStore
    gates: GateMetrics
    access: AccessRules
    message_clients: asyncio.Semaphore
    """Held for each client that reads or writes messages."""
    streams: int = 0
    """Event streams that are open."""


@dataclass(frozen=True, slots=True)
class AdminContext:
    """Caller, and what is shared. One for each request."""

    shared: Shared
    requester: Requester = NOBODY

    @property
    def principal(self) -> str:
        """Principal of the caller."""
        return self.requester.principal

    # -- metadata

    @property
    def image(self) -> ClusterImage:
        """Metadata of the cluster, on a standby too. Raises AdminError before there is any."""
        image = self.shared.image()
        if not image.cluster_id:
            raise try_again("this controller has no metadata yet: no controller is active")
        return image

    def topic(self, name: str) -> TopicImage:
        """Return a topic. Raises AdminError, for a caller that may not see it too."""
        self.require(Operation.DESCRIBE, topic_resource(name))
        topic = self.image.topics.get(name)
        if topic is None:
            raise unknown_topic(name)
        return topic

    async def until_visible(self, shows: Callable[[ClusterImage], bool]) -> None:
        """Wait until the image of this controller shows a change, which another one made perhaps;
        not longer than some seconds.
        """
        await self.shared.image.until(shows, _VISIBLE_S_MAX)

    # -- authorization

    def may(self, operation: Operation, resource: Resource = CLUSTER) -> bool:
        """Return True if the caller may do ``operation`` to ``resource``."""
        return self.shared.access.allows(self.requester, operation, resource)

    def visible(self, names: Iterable[str], resource_of: Callable[[str], Resource]) -> list[str]:
        """Return the names of the resources that the caller may describe."""
        if not self.shared.access.enforced:
            return list(names)
        return [one for one in names if self.may(Operation.DESCRIBE, resource_of(one))]

    def require(self, operation: Operation, resource: Resource = CLUSTER) -> None:
        """Raise AdminError unless the caller may do ``operation`` to ``resource``."""
        decision = self.shared.access.decide(self.requester, operation, resource)
        if not self.shared.node.audit.asked(self.requester, operation, resource, decision):
            raise try_again(FULL)
        if not decision.allowed:
            raise AdminError(
                403,
                FORBIDDEN,
                f"{self.principal} may not {operation.name} {resource.name}",
                remedy=f"allow {operation.name} on the {resource.resource_type.name.lower()}"
                f" {resource.name} to {self.principal} by an ACL, or give it a role (rest.roles)",
            )

    @property
    def events(self) -> EventLog:
        """Log of what happened in the cluster. Raises AdminError for who may not see it."""
        self.require(Operation.DESCRIBE)
        return self.shared.events

    # -- brokers

    @property
    def brokers(self) -> BrokerCalls:
        """Calls to brokers."""
        return self.shared.brokers

    async def cached(
        self, kind: str, broker_id: int, fetch: Callable[[], Awaitable[Value]]
    ) -> Aged[Value]:
        """Return a broker's answer, with its age; one that is late is a problem of this item."""
        return await self.shared.answers.get(
            (kind, broker_id), fetch, wait_ms=self.shared.limits.page_wait_ms
        )

    async def cached_long(
        self, kind: str, broker_id: int, fetch: Callable[[], Awaitable[Value]]
    ) -> Aged[Value]:
        """Like ``cached``, for what costs a broker more: an older answer is returned while the next
        one is being fetched.
        """
        return await self.shared.totals.get(
            (kind, broker_id), fetch, wait_ms=self.shared.limits.page_wait_ms
        )

    async def each(
        self, items: Iterable[Item], call: Callable[[Item], Awaitable[Value]]
    ) -> dict[Item, Value | AdminError]:
        """Return the result of ``call`` for each item, or its error; calls run side by side, a
        bounded number at a time.
        """
        slots = asyncio.Semaphore(self.shared.limits.calls_max)

        async def one(item: Item) -> Value | AdminError:
            async with slots:
                try:
                    return await call(item)
                except AdminError as problem:
                    return problem

        listed = list(items)
        return dict(zip(listed, await asyncio.gather(*map(one, listed)), strict=True))


__all__ = ["ANONYMOUS", "AdminContext", "AdminLimits", "Aged", "Shared", "Struct"]
