"""Base of producers, consumers and admin clients: transport, metadata and task group."""

import asyncio
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tidemark.client.config import Bootstrap, ClientConfig, over_kafka
from tidemark.client.errors import ClientClosedError, InvalidTransactionStateError
from tidemark.client.wire.cluster import Cluster
from tidemark.client.wire.metadata_cache import MetadataCache
from tidemark.client.wire.transport import Transport
from tidemark.model.errors import ErrorCode
from tidemark.runtime.clock import Clock

if TYPE_CHECKING:
    from tidemark.client.wire.kafka_transport import KafkaTransport


class Session:
    """Transport and tasks of one client, between ``start`` and ``close``.

    A failing task cancels the task that started the session.
    """

    def __init__(
        self, bootstrap_servers: str | Sequence[str], config: ClientConfig, clock: Clock
    ) -> None:
        self._bootstrap = Bootstrap.parse(bootstrap_servers)
        self._config = config
        self._clock = clock
        self._transport: Transport | None = None
        self._cluster: Cluster | None = None
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._beside: KafkaTransport | None = None
        self._beside_lock = asyncio.Lock()

    @property
    def is_running(self) -> bool:
        """True after ``start`` and before ``close``."""
        return self._group is not None

    @property
    def cluster(self) -> Cluster:
        """Metadata. Raises ClientClosedError if not running."""
        if self._cluster is None:
            raise _not_running()
        return self._cluster

    @property
    def cache(self) -> MetadataCache:
        """Metadata cache. Raises ClientClosedError if not running."""
        return self.cluster.cache

    @property
    def transport(self) -> Transport:
        """Transport. Raises ClientClosedError if not running."""
        if self._transport is None:
            raise _not_running()
        return self._transport

    def check_running(self) -> None:
        """Raise ClientClosedError unless running."""
        if self._group is None:
            raise _not_running()

    async def start(self) -> None:
        """Create the transport and the task group. Connections open on first use."""
        assert self._group is None, "started twice"
        group = asyncio.TaskGroup()
        await group.__aenter__()
        self._group = group
        self._transport = self._make_transport(group)
        self._cluster = Cluster(self._transport, self._config, self._clock)

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> "asyncio.Task[None]":
        """Run ``work`` as a task of this session, which ``close`` cancels."""
        self.check_running()
        assert self._group is not None, "running"
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def kafka(self) -> "KafkaTransport":
        """Return a Kafka transport, for groups and for records in transactions.

        With gRPC as the session's transport it is created on first use. Raises ClientError.
        """
        from tidemark.client.wire.kafka_transport import KafkaTransport

        if isinstance(self.transport, KafkaTransport):
            return self.transport
        async with self._beside_lock:
            if self._beside is None:
                from tidemark.client.wire.grpc_transport import GrpcTransport

                assert isinstance(self.transport, GrpcTransport), "the other transport is gRPC"
                bootstrap = Bootstrap(tuple(await self.transport.kafka_addresses()))
                self._beside = KafkaTransport(bootstrap, over_kafka(self._config))
        return self._beside

    async def close(self) -> None:
        """Cancel all tasks, close the transport, and wait until both have ended."""
        group, self._group = self._group, None
        transport, self._transport = self._transport, None
        self._cluster = None
        if self._beside is not None:
            await self._beside.close()
            self._beside = None
        if group is None or transport is None:
            return
        for task in self._tasks:
            task.cancel()
        try:
            await transport.close()
        finally:
            await group.__aexit__(None, None, None)

    def _make_transport(self, group: asyncio.TaskGroup) -> Transport:
        # Imported here: a client over Kafka's protocol does not load gRPC.
        if self._config.transport == "grpc":
            from tidemark.client.wire.grpc_transport import GrpcTransport

            return GrpcTransport(self._bootstrap, self._config, group)
        from tidemark.client.wire.kafka_transport import KafkaTransport

        return KafkaTransport(self._bootstrap, self._config)


def _not_running() -> ClientClosedError:
    return ClientClosedError(ErrorCode.NETWORK_EXCEPTION, "the client is not running")


async def grpc_kafka_addresses(session: Session) -> list[str]:
    """Return the Kafka listeners of the cluster of a session over gRPC. Raises ClientError."""
    from tidemark.client.wire.grpc_transport import GrpcTransport

    transport = session.transport
    assert isinstance(transport, GrpcTransport), "a session over gRPC"
    addresses = [str(address) for address in await transport.kafka_addresses()]
    if not addresses:
        raise InvalidTransactionStateError(
            ErrorCode.BROKER_NOT_AVAILABLE, "no broker of the cluster is alive"
        )
    return addresses


class SessionClient:
    """Base of clients with no state but their session, which ``async with`` starts and ends."""

    _session: Session

    async def start(self) -> Self:
        """Start the client; ``async with`` does this. It connects at the first call."""
        await self._session.start()
        return self

    async def close(self) -> None:
        """Release all resources. Open transactions stay open."""
        await self._session.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
