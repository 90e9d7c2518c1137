"""BrokerCalls: requests to a given broker, by the endpoints of the image: of Kafka's protocol, and
over gRPC.

Each call has a deadline, and each broker a bounded number of calls at a time. A broker that has let
a deadline pass is left alone for a while, and callers get the reason at once.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar

import grpc.aio
from tidemark.client.admin.admin import Admin
from tidemark.client.admin.calls import ask_one
from tidemark.client.config import Address, ClientConfig
from tidemark.client.errors import ClientError
from tidemark.client.wire.connection import BrokerConnection
from tidemark.client.wire.connection_pool import ConnectionPool, Lane
from tidemark.client.wire.kafka_transport import parsed
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    read_list_offsets_response,
    write_list_offsets_request,
)
from tidemark.kafka.long_tail import Struct
from tidemark.model.ids import BrokerId
from tidemark.model.metadata import BrokerImage, ClusterImage, Endpoint
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.clock import Clock

from controller.admin.errors import AdminError, from_cluster, try_again

CLIENT_ID: Final = "tidemark-controller"
CALLS_PER_BROKER_MAX: Final = 8
CLIENTS_MAX: Final = 32
_LEFT_ALONE_MS: Final = 3_000
_CONSUMER: Final = -1

Answer = TypeVar("Answer")
GrpcCall = Callable[[grpc.aio.Channel, str], Awaitable[Answer]]


class BrokerCalls:
    """Calls to brokers, for all requests of one controller."""

    def __init__(
        self,
        image: Callable[[], ClusterImage],
        clock: Clock,
        *,
        timeout_ms: int,
        change_ms: int,
        channels: ChannelPool,
        grpc_security: Mapping[str, Any],
    ) -> None:
        """``timeout_ms`` is the deadline of a call to a given broker, ``change_ms`` that of a
        change. ``channels`` go to brokers, and are closed here; clients over gRPC get
        ``grpc_security``.
        """
        self._image = image
        self._clock = clock
        self.timeout_ms = timeout_ms
        self.change_ms = change_ms
        self.grpc_security: Mapping[str, Any] = grpc_security
        config = ClientConfig(
            client_id=CLIENT_ID,
            request_timeout_ms=timeout_ms,
            connections_setup_timeout_ms=timeout_ms,
        )
        self._pool = ConnectionPool(config)
        self._secured_pool = ConnectionPool(replace(config, **grpc_security))
        self._channels = channels
        self._slots: dict[BrokerId, asyncio.Semaphore] = {}
        self._late_at: dict[BrokerId, int] = {}
        self._clients = asyncio.Semaphore(CLIENTS_MAX)

    async def close(self) -> None:
        """Close all connections."""
        self._pool.close()
        self._secured_pool.close()
        await self._channels.close()

    async def ask(self, broker_id: int, api_key: ApiKey, fields: dict[str, Any]) -> Struct:
        """Return one broker's response. Raises AdminError within the deadline."""
        return await self._exchange(broker_id, lambda to: ask_one(to, api_key, fields))

    async def ask_grpc(
        self, broker_id: int, call: GrpcCall[Answer], *, timeout_ms: int | None = None
    ) -> Answer:
        """Return one broker's response over gRPC; ``call`` gets a channel and the
        address. Raises AdminError within the deadline.
        """
        broker = self._broker(BrokerId(broker_id))
        if not broker.grpc_endpoint:
            raise try_again(f"broker {broker_id} has no gRPC listener")
        limit_ms = timeout_ms or self.timeout_ms

        async def ask() -> Answer:
            channel = await self._channels.channel(broker.grpc_endpoint)
            return await call(channel, broker.grpc_endpoint)

        return await self._timed(broker, ask, limit_ms)

    async def ask_any(self, api_key: ApiKey, fields: dict[str, Any]) -> Struct:
        """Return the response of a live broker, the next one if one fails. Raises AdminError."""
        problem = try_again("no broker is alive", "start a broker")
        for broker in self._in_order():
            try:
                return await self.ask(broker.broker_id, api_key, fields)
            except AdminError as failed:
                problem = failed
        raise problem

    async def list_offsets(
        self,
        broker_id: int,
        queries: Mapping[str, Sequence[tuple[int, int]]],
        *,
        isolation: int = 0,
    ) -> dict[tuple[str, int], tuple[int, int]]:
        """Return error code and offset by topic and partition. ``queries`` has pairs of partition
        and timestamp by topic. Raises AdminError.
        """
        topics = [
            ListOffsetsTopic(name, [ListOffsetsPartition(*pair) for pair in pairs])
            for name, pairs in queries.items()
        ]
        request = ListOffsetsRequest(_CONSUMER, isolation, topics, self.timeout_ms)

        async def exchange(to: BrokerConnection) -> ListOffsetsResponse:
            version = to.version(ApiKey.LIST_OFFSETS)
            parts = [write_list_offsets_request(version, request)]
            body = await to.request(ApiKey.LIST_OFFSETS, version, parts)
            return parsed(to, read_list_offsets_response, body, version)

        answer = await self._exchange(broker_id, exchange)
        return {
            (name, result.partition): (result.error_code, result.offset)
            for name, results in answer.topics
            for result in results
        }

    async def _exchange(
        self, broker_id: int, exchange: Callable[[BrokerConnection], Awaitable[Answer]]
    ) -> Answer:
        broker = self._broker(BrokerId(broker_id))

        async def ask() -> Answer:
            pool = self._secured_pool if self._security_at(broker) else self._pool
            connection = await pool.connection(_address(broker), Lane.CONTROL)
            return await exchange(connection)

        return await self._timed(broker, ask, self.timeout_ms)

    async def _timed(
        self, broker: BrokerImage, ask: Callable[[], Awaitable[Answer]], limit_ms: int
    ) -> Answer:
        """Call a broker within a time, in its turn. Raises AdminError."""
        slots = self._slots.setdefault(broker.broker_id, asyncio.Semaphore(CALLS_PER_BROKER_MAX))
        try:
            async with asyncio.timeout(limit_ms / 1_000), slots:
                answer = await ask()
        except TimeoutError:
            self._late_at[broker.broker_id] = self._clock.now_ms()
            raise try_again(
                f"broker {broker.broker_id} did not answer within {limit_ms} ms"
            ) from None
        except ClientError as problem:
            raise from_cluster(problem) from None
        self._late_at.pop(broker.broker_id, None)
        return answer

    def _broker(self, broker_id: BrokerId) -> BrokerImage:
        broker = self._image().brokers.get(broker_id)
        if broker is None or broker.fenced:
            state = "is not registered" if broker is None else "is fenced"
            raise try_again(f"broker {broker_id} {state}", "start it, or wait until it has joined")
        late_at = self._late_at.get(broker_id)
        if late_at is not None and self._clock.now_ms() - late_at < _LEFT_ALONE_MS:
            raise try_again(f"broker {broker_id} did not answer its last request in time")
        return broker

    def live(self) -> list[BrokerImage]:
        """Return the brokers that are not fenced, by id."""
        brokers = self._image().brokers
        return [brokers[one] for one in sorted(brokers) if not brokers[one].fenced]

    def _in_order(self) -> list[BrokerImage]:
        """Return the live brokers; those that answered in time first."""
        now = self._clock.now_ms()

        def late(broker: BrokerImage) -> bool:
            at = self._late_at.get(broker.broker_id)
            return at is not None and now - at < _LEFT_ALONE_MS

        live = self.live()
        random.shuffle(live)
        return sorted(live, key=late)

    def bootstrap(self) -> list[str]:
        """Return the addresses of the live brokers; those that answered in time first. Raises
        AdminError if no broker is alive.
        """
        live = self._in_order()
        if not live:
            raise try_again("no broker is alive", "start a broker")
        return [str(_address(broker)) for broker in live]

    @property
    def kafka_security(self) -> Mapping[str, Any]:
        """Settings of TLS for a client at ``bootstrap``; none if brokers have no TLS there."""
        first = next(iter(self._in_order()), None)
        return {} if first is None else self._security_at(first)

    def _security_at(self, broker: BrokerImage) -> Mapping[str, Any]:
        """Return the settings of TLS for one broker. Raises AdminError without files for it."""
        if not _endpoint(broker).uses_tls:
            return {}
        if not self.grpc_security:
            raise try_again(
                f"the listener INTERNAL of broker {broker.broker_id} has TLS, and this controller"
                " has no certificate",
                "set grpc.ssl.certificate.location of the controllers",
            )
        return self.grpc_security

    def grpc_bootstrap(self) -> list[str]:
        """Return the gRPC addresses of the live brokers. Raises AdminError if there is none."""
        found = [broker.grpc_endpoint for broker in self.live() if broker.grpc_endpoint]
        if not found:
            raise try_again("no broker with a gRPC listener is alive", "start a broker")
        return found

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Admin]:
        """Yield an admin client for changes, and for calls to coordinators. Raises AdminError for
        the client's errors.
        """
        async with self._clients:
            try:
                async with Admin(
                    self.bootstrap(),
                    client_id=CLIENT_ID,
                    request_timeout_ms=self.change_ms,
                    default_api_timeout_ms=self.change_ms,
                    unknown_topic_grace_ms=1,
                    connections_setup_timeout_ms=self.timeout_ms,
                    **self.kafka_security,
                ) as admin:
                    yield admin
            except ClientError as problem:
                raise from_cluster(problem) from None
            except BaseExceptionGroup as group:
                raise _first(group) from None


def _endpoint(broker: BrokerImage) -> Endpoint:
    endpoint = broker.replication_endpoint()
    if endpoint is None:
        raise try_again(
            f"broker {broker.broker_id} has no listener for the cluster's processes",
            "give it a listener named INTERNAL",
        )
    return endpoint


def _address(broker: BrokerImage) -> Address:
    endpoint = _endpoint(broker)
    return Address(endpoint.host, endpoint.port)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of the client or of this room; otherwise the group."""
    matching = group.subgroup((ClientError, AdminError))
    if matching is None:
        return group
    error: BaseException = matching
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return from_cluster(error) if isinstance(error, ClientError) else error


def by_leader(
    image: ClusterImage, partitions: Iterable[tuple[str, int]]
) -> dict[int, list[tuple[str, int]]]:
    """Return partitions by the broker that leads them, -1 without a leader. Partitions that do not
    exist are left out.
    """
    found: dict[int, list[tuple[str, int]]] = {}
    for topic, partition in partitions:
        known = image.topics.get(topic)
        if known is not None and 0 <= partition < len(known.partitions):
            found.setdefault(known.partitions[partition].leader, []).append((topic, partition))
    return found
