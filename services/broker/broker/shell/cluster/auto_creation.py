"""Automatic creation of topics whose metadata is requested, where client and broker both allow
it.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from tidemark.model.authorization import (
    CLUSTER,
    Operation,
    Requester,
    Resource,
    topic_resource,
)
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import INTERNAL_TOPICS, topic_name_problem
from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.cluster.controller_relay import ControllerRelay, caller_of
from broker.shell.facts import BrokerFacts
from broker.shell.request_context import RequestContext
from broker.shell.wire_mapping import NewTopic, TopicRef, TopicResult, write_create_topics

AUTO_CREATE_TIMEOUT_MS: Final = 10_000
AUTO_CREATED_MAX: Final = 100
"""Topics that one request may create; for the others clients get a retriable error."""

_STRICT_FROM: Final = 0
"""Over the quota of mutations nothing is created, in any version: clients repeat the request."""

_BY_DEFAULT: Final = -1
"""The controller's own default."""


class Missing(NamedTuple):
    """Topics of a request that do not exist: those to create, and the errors of those that the
    client may not create, by name.
    """

    to_create: list[str]
    refused: dict[str, ErrorCode]


class AutoCreation:
    """Automatic creations of one broker."""

    def __init__(
        self,
        facts: BrokerFacts,
        relay: ControllerRelay,
        metadata: MetadataCache,
    ) -> None:
        self._facts = facts
        self._relay = relay
        self._metadata = metadata
        self._under_way: dict[str, asyncio.Future[None]] = {}
        """Creations that are not answered yet, by topic name."""

    def missing(self, requester: Requester, names: Iterable[str | None]) -> Missing:
        """Return those of the names that could be created; at most AUTO_CREATED_MAX are to be.

        A topic that the client may not describe is left alone: its answer does not depend on
        whether the topic exists. One that it may describe and not create is refused, as in Kafka:
        as an unknown topic the client would ask for it until its own timeout.
        """
        found = Missing([], {})
        if not self._facts.config.auto_create_topics_enable:
            return found
        for name in dict.fromkeys(names):
            if (
                not name
                or name in self._metadata.image.topics
                or topic_name_problem(name) is not None
                or name in INTERNAL_TOPICS
                or not self._may(requester, Operation.DESCRIBE, topic_resource(name))
            ):
                continue
            if not self._may(requester, Operation.CREATE, CLUSTER) and not self._may(
                requester, Operation.CREATE, topic_resource(name)
            ):
                found.refused[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif len(found.to_create) < AUTO_CREATED_MAX:
                found.to_create.append(name)
        return found

    def _may(self, requester: Requester, operation: Operation, resource: Resource) -> bool:
        return self._facts.authorizer.authorize(requester, operation, resource)

    async def create(self, context: RequestContext, names: list[str]) -> dict[str, ErrorCode]:
        """Create topics that no other request is creating, and wait for the others. Returns the
        errors of refused ones by name. Those that the client's quota of mutations does not allow
        are not created, and have no error.
        """
        under_way = self._under_way
        ours = [name for name in names if name not in under_way]
        others = [under_way[name] for name in names if name in under_way]
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        under_way.update(dict.fromkeys(ours, done))
        refused: dict[str, ErrorCode] = {}
        try:
            if ours:
                refused = await self._create(context, ours)
        finally:
            for name in ours:
                del under_way[name]
            done.set_result(None)
        for other in others:
            await asyncio.shield(other)
        return refused

    async def _create(self, context: RequestContext, names: list[str]) -> dict[str, ErrorCode]:
        mutations = self._facts.quotas.mutations(context, strict_from=_STRICT_FROM)
        permits = self._facts.config.num_partitions or 1
        allowed = [name for name in names if not mutations.refuses(permits)]
        if not allowed:
            return {}
        results = await self._ask_controller(context, allowed)
        for result in results:
            mutations.settle(permits, result.error_code)
        codes = {
            ErrorCode.NONE: ErrorCode.LEADER_NOT_AVAILABLE,
            ErrorCode.TOPIC_ALREADY_EXISTS: ErrorCode.LEADER_NOT_AVAILABLE,
            ErrorCode.REQUEST_TIMED_OUT: ErrorCode.LEADER_NOT_AVAILABLE,
        }
        return {result.name: codes.get(result.error_code, result.error_code) for result in results}

    async def _ask_controller(
        self, context: RequestContext, names: list[str]
    ) -> Sequence[TopicResult]:
        config = self._facts.config
        counts = (
            config.num_partitions or _BY_DEFAULT,
            config.default_replication_factor or _BY_DEFAULT,
        )
        message = write_create_topics(
            caller_of(context),
            [NewTopic(name, *counts, (), {}) for name in names],
            validate_only=False,
            timeout_ms=AUTO_CREATE_TIMEOUT_MS,
        )
        return await self._relay.topics(
            "CreateTopics",
            message,
            named=[TopicRef(name) for name in names],
            timeout_ms=AUTO_CREATE_TIMEOUT_MS,
        )
