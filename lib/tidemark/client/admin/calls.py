"""Calls of the admin client: to any broker, a given one, all leaders, or a coordinator."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from tidemark.client.admin import answers as admin_answers
from tidemark.client.admin import requests as admin_requests
from tidemark.client.config import AdminConfig, over_kafka, with_settings
from tidemark.client.deadline import Deadline
from tidemark.client.errors import ClientError
from tidemark.client.wire.connection import BrokerConnection
from tidemark.client.wire.connection_pool import Lane
from tidemark.client.wire.coordinator import Coordinator, CoordinatorKind, Problem
from tidemark.client.wire.kafka_transport import KafkaTransport, parsed, request_body
from tidemark.client.wire.session import Session, SessionClient
from tidemark.kafka import long_tail
from tidemark.kafka.apis import ApiKey
from tidemark.model.backoff import Backoff
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock


class AdminCalls(SessionClient):
    """Base of Admin. ``settings`` are fields of AdminConfig by name."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        config: AdminConfig | None = None,
        *,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        self.config = with_settings(config or AdminConfig(), settings)
        self._clock = clock or Clock()
        self._bootstrap_servers = bootstrap_servers
        self.last_api = ApiKey.METADATA
        """API of the latest request, for messages about its failure."""
        self._backoff = Backoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms)
        self._session = Session(bootstrap_servers, over_kafka(self.config), self._clock)

    async def start(self) -> Self:
        """Start the client; ``async with`` does this. It connects at the first call."""
        if self.config.transport == "grpc":
            self._session = Session(
                await self._kafka_addresses(), over_kafka(self.config), self._clock
            )
        return await super().start()

    # -- internals

    async def _brokers(self) -> Mapping[int, Any]:
        """Return the live brokers of the cached metadata, requested if there is none."""
        if not self._session.cache.version:
            await self._session.cluster.refresh(seen_version=0)
        return self._session.cache.cluster.brokers

    def _transport(self) -> KafkaTransport:
        transport = self._session.transport
        assert isinstance(transport, KafkaTransport), "the admin client speaks Kafka's protocol"
        return transport

    async def _kafka_addresses(self) -> list[str]:
        from tidemark.client.wire.grpc_transport import (
            GrpcTransport,  # imported here: only this needs gRPC
        )

        over_grpc = Session(self._bootstrap_servers, self.config, self._clock)
        await over_grpc.start()
        try:
            transport = over_grpc.transport
            assert isinstance(transport, GrpcTransport), "a session over gRPC"
            return [str(address) for address in await transport.kafka_addresses()]
        finally:
            await over_grpc.close()

    async def _ask(
        self, broker_id: int | None, api_key: ApiKey, fields: admin_requests.Fields
    ) -> long_tail.Struct:
        self.last_api = api_key
        if broker_id is None:
            return await self._ask_any(api_key, fields)
        transport = self._transport()
        await self._brokers()
        connection = await transport.connection(broker_id, Lane.CONTROL)
        return await ask_one(connection, api_key, fields)

    async def _ask_any(self, api_key: ApiKey, fields: admin_requests.Fields) -> long_tail.Struct:
        """Return any broker's response; retried while the controller is not available."""
        self.last_api = api_key
        deadline = Deadline.after(self.config.default_api_timeout_ms, self._clock.now_ms())
        failures = 0
        while True:
            answer = await self._transport().ask_any(
                lambda connection: ask_one(connection, api_key, fields)
            )
            away = ErrorCode.NOT_CONTROLLER in admin_answers.error_codes(answer)
            if not away or deadline.passed(self._clock.now_ms()):
                return answer
            failures += 1
            await self._pause(failures)

    async def _pause(self, failures: int) -> None:
        await asyncio.sleep(self._backoff.delay_ms(failures, random.random()) / 1_000)

    async def _at_leaders(
        self,
        partitions: Iterable[TopicPartition],
        api_key: ApiKey,
        fields: Callable[[list[TopicPartition]], admin_requests.Fields],
    ) -> dict[TopicPartition, long_tail.Struct]:
        """Ask the leader of each partition, with retries when it has moved, until the deadline."""
        deadline = Deadline.after(self.config.default_api_timeout_ms, self._clock.now_ms())
        left = [TopicPartition(*partition) for partition in partitions]
        found: dict[TopicPartition, long_tail.Struct] = {}
        failures = 0
        while left:
            problem = await self._ask_leaders(left, found, api_key, fields, deadline=deadline)
            left = [partition for partition in left if partition not in found]
            if problem is None:
                continue
            failures += 1
            if self._session.cluster.gives_up(problem.code, deadline):
                raise problem
            self._session.cache.mark_stale()
            await self._pause(failures)
        return found

    async def _ask_leaders(
        self,
        left: list[TopicPartition],
        found: dict[TopicPartition, long_tail.Struct],
        api_key: ApiKey,
        fields: Callable[[list[TopicPartition]], admin_requests.Fields],
        *,
        deadline: Deadline,
    ) -> ClientError | None:
        problem: ClientError | None = None
        by_broker: dict[int, list[TopicPartition]] = defaultdict(list)
        for partition in left:
            await self._session.cluster.topic(partition.topic, deadline)
            leader = self._session.cache.leader(partition)
            if leader is None:
                return admin_answers.no_leader(
                    self._session.cache.topic(partition.topic), partition
                )
            by_broker[leader.broker_id].append(partition)
        for broker_id, group in by_broker.items():
            try:
                answer = await self._ask(broker_id, api_key, fields(group))
            except ClientError as failed:
                problem = failed
                continue
            where = self._transport().where(broker_id)
            problem = admin_answers.collect(answer, group, found, (api_key, where)) or problem
        return problem

    def _deadline(self) -> Deadline:
        return Deadline.after(self.config.default_api_timeout_ms, self._clock.now_ms())

    async def _ask_every(
        self, api_key: ApiKey, fields: admin_requests.Fields
    ) -> dict[int, long_tail.Struct]:
        """Return every live broker's response, by broker.

        Raises ClientError if one does not answer.
        """
        await self._session.cluster.refresh(seen_version=self._session.cache.version)
        brokers = sorted(await self._brokers())
        return {broker_id: await self._ask(broker_id, api_key, fields) for broker_id in brokers}

    async def _ask_coordinator(
        self,
        key: str,
        api_key: ApiKey,
        fields: admin_requests.Fields,
        problem_of: Problem,
        *,
        kind: CoordinatorKind = CoordinatorKind.GROUP,
        version_max: int | None = None,
    ) -> long_tail.Struct:
        """Return the response of a group's or transactional id's coordinator, wherever it moves."""
        self.last_api = api_key
        coordinator = Coordinator(self._session, self.config, self._clock, key, kind)
        return await coordinator.ask_until(
            self._deadline(), api_key, lambda: fields, problem_of, version_max=version_max
        )


async def ask_one(
    connection: BrokerConnection, api_key: ApiKey, fields: admin_requests.Fields
) -> long_tail.Struct:
    """Return the response to one request on a connection. Raises ClientError."""
    version = connection.version(api_key)
    body = await connection.request(api_key, version, [request_body(api_key, version, fields)])
    return parsed(
        connection,
        lambda view, number: long_tail.read_response(api_key, number, view),
        body,
        version,
    )
