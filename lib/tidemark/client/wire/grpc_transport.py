"""Transport over gRPC's PartitionStore service."""

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from typing import Any, Final, TypeVar

import grpc
import grpc.aio
from tidemark_wire.v1 import common_pb2, partition_store_pb2, partition_store_pb2_grpc

from tidemark.client.config import Address, Bootstrap, ClientConfig
from tidemark.client.errors import (
    AuthenticationError,
    ClientConfigError,
    ClientError,
    ConnectionLostError,
    RequestTimedOutError,
    UnsupportedVersionError,
    error_for,
)
from tidemark.client.wire.grpc_login import GrpcLogin
from tidemark.client.wire.grpc_stream import ExchangeStream
from tidemark.client.wire.metadata_cache import BrokerView, ClusterView, PartitionView, TopicView
from tidemark.client.wire.transport import (
    EpochItem,
    EpochOutcome,
    FetchItem,
    FetchLimits,
    FetchOutcome,
    OffsetItem,
    OffsetOutcome,
    ProduceItem,
    ProduceOutcome,
    ProducerIdentity,
)
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID
from tidemark.model.topics import TopicPartition
from tidemark.runtime.channel import open_channel
from tidemark.runtime.tls import ChannelTls, TlsError, tls_settings

Answer = TypeVar("Answer")
AppendStream = ExchangeStream[partition_store_pb2.AppendRequest, partition_store_pb2.AppendResponse]
FetchStream = ExchangeStream[partition_store_pb2.FetchRequest, partition_store_pb2.FetchResponse]

_PARKED_FETCHES_MAX: Final = 256
"""Limit of a broker for one stream; further partitions wait for their turn."""
_CODES: Final[Mapping[grpc.StatusCode, tuple[type[ClientError], ErrorCode]]] = {
    grpc.StatusCode.DEADLINE_EXCEEDED: (RequestTimedOutError, ErrorCode.REQUEST_TIMED_OUT),
    grpc.StatusCode.UNAUTHENTICATED: (AuthenticationError, ErrorCode.SASL_AUTHENTICATION_FAILED),
    grpc.StatusCode.UNIMPLEMENTED: (UnsupportedVersionError, ErrorCode.UNSUPPORTED_VERSION),
}


class GrpcTransport:
    """Transport to one cluster over its brokers' gRPC ports. See ``Transport``.

    Channels are opened on first use and belong to the process that opened them. A forked child
    opens its own, because gRPC's threads do not survive a fork.
    """

    def __init__(
        self, bootstrap: Bootstrap, config: ClientConfig, group: asyncio.TaskGroup
    ) -> None:
        self._bootstrap = bootstrap
        self._config = config
        self._group = group
        self._brokers: Mapping[int, Address] = {}
        self._tls = _channel_tls(config)
        self._login = (
            grpc.metadata_call_credentials(GrpcLogin(config)) if config.uses_sasl else None
        )
        self._channels: dict[tuple[int, Address, int], grpc.aio.Channel] = {}
        self._appends: dict[Address, AppendStream] = {}
        self._fetches: dict[tuple[Address, bool], FetchStream] = {}
        self._readers: set[asyncio.Task[None]] = set()

    async def describe(self, topics: Sequence[str] | None, *, auto_create: bool) -> ClusterView:
        """Ask brokers in turn, known ones first, until one answers."""

        async def ask(stub: Any) -> ClusterView:
            timeout = self._config.request_timeout_ms / 1_000
            endpoints = await stub.DescribeEndpoints(
                partition_store_pb2.DescribeEndpointsRequest(), timeout=timeout
            )
            described = partition_store_pb2.DescribeTopicsResponse()
            if topics is None or topics:
                request = partition_store_pb2.DescribeTopicsRequest(
                    topics=topics or (),
                    allow_auto_topic_creation=auto_create,
                    client_id=self._config.client_id,
                )
                described = await stub.DescribeTopics(request, timeout=timeout)
            return _cluster_view(endpoints, described)

        cluster = await self._ask_any(ask)
        if cluster.brokers:
            self._brokers = {view.broker_id: view.address for view in cluster.brokers.values()}
        return cluster

    async def kafka_addresses(self) -> list[Address]:
        """Return the addresses of the cluster's Kafka listeners for clients."""

        async def ask(stub: Any) -> list[Address]:
            answer = await stub.DescribeEndpoints(
                partition_store_pb2.DescribeEndpointsRequest(),
                timeout=self._config.request_timeout_ms / 1_000,
            )
            return [Address(each.kafka_host, each.kafka_port) for each in answer.brokers]

        return await self._ask_any(ask)

    async def init_producer_id(self) -> ProducerIdentity:
        """Request a producer id from any broker."""

        async def ask(stub: Any) -> ProducerIdentity:
            answer = await stub.InitProducerId(
                partition_store_pb2.InitProducerIdRequest(client_id=self._config.client_id),
                timeout=self._config.request_timeout_ms / 1_000,
            )
            if answer.error_code:
                raise error_for(
                    answer.error_code,
                    "requesting a producer id failed",
                    detail=answer.error_message,
                )
            return ProducerIdentity(answer.producer_id, answer.producer_epoch)

        return await self._ask_any(ask)

    async def produce(
        self,
        broker_id: int,
        items: Sequence[ProduceItem],
        *,
        acks: int,
        timeout_ms: int,
        transactional_id: str | None = None,
    ) -> list[ProduceOutcome]:
        """Send each batch as a request on one stream, which keeps the order within a partition."""
        assert transactional_id is None, "transactional records are sent over Kafka's protocol"
        stream = self._append_stream(self._address(broker_id))
        requests = [
            partition_store_pb2.AppendRequest(
                partition=_wire_partition(item.partition, item.topic_id),
                current_leader_epoch=item.leader_epoch,
                acks=acks,
                timeout_ms=timeout_ms,
                batches=item.batch,
                client_id=self._config.client_id,
            )
            for item in items
        ]
        answers = await asyncio.gather(
            *(
                stream.exchange(request, timeout_ms=self._config.request_timeout_ms)
                for request in requests
            ),
            return_exceptions=True,
        )
        return [_produce_outcome(answer) for answer in answers]

    def fetch_group(self, broker_id: int, partition: TopicPartition) -> Hashable:
        """Give each partition a request of its own: a stream carries many long polls at once."""
        return broker_id, partition

    async def fetch(
        self, broker_id: int, items: Sequence[FetchItem], limits: FetchLimits
    ) -> list[FetchOutcome]:
        """Send one request for each partition; see ``fetch_group``."""
        # Each isolation level has its own stream: fetches beyond the last stable offset must not
        # take turns with fetches that wait for it to advance.
        stream = self._fetch_stream(self._address(broker_id), read_committed=limits.read_committed)
        return [await self._fetch_one(stream, item, limits) for item in items]

    async def list_offsets(
        self, broker_id: int, items: Sequence[OffsetItem], *, read_committed: bool
    ) -> list[OffsetOutcome]:
        """Make one unary call."""
        request = partition_store_pb2.ListOffsetsRequest(
            queries=[
                partition_store_pb2.ListOffsetsRequest.Query(
                    partition=_wire_partition(item.partition, item.topic_id),
                    timestamp_ms=item.timestamp_ms,
                    current_leader_epoch=item.leader_epoch,
                )
                for item in items
            ],
            read_committed=read_committed,
        )
        address = self._address(broker_id)
        try:
            answer = await self._stub(address).ListOffsets(
                request, timeout=self._config.request_timeout_ms / 1_000
            )
        except grpc.aio.AioRpcError as problem:
            raise client_error(problem, self.where(broker_id)) from None
        names = {item.topic_id: item.partition.topic for item in items}
        return [
            OffsetOutcome(
                TopicPartition(
                    each.partition.topic or names.get(each.partition.topic_id, ""),
                    each.partition.partition,
                ),
                each.error_code,
                each.offset,
                each.timestamp_ms,
                each.leader_epoch,
            )
            for each in answer.answers
        ]

    async def epoch_ends(self, broker_id: int, items: Sequence[EpochItem]) -> list[EpochOutcome]:
        """Make one unary call. Raises UnsupportedVersionError for a broker of an older release."""
        request = partition_store_pb2.FindEpochEndsRequest(
            queries=[
                partition_store_pb2.FindEpochEndsRequest.Query(
                    partition=_wire_partition(item.partition, NO_TOPIC_ID),
                    current_leader_epoch=item.leader_epoch,
                    leader_epoch=item.epoch,
                )
                for item in items
            ]
        )
        try:
            answer = await self._stub(self._address(broker_id)).FindEpochEnds(
                request, timeout=self._config.request_timeout_ms / 1_000
            )
        except grpc.aio.AioRpcError as problem:
            raise client_error(problem, self.where(broker_id)) from None
        return [
            EpochOutcome(item.partition, each.error_code, each.leader_epoch, each.end_offset)
            for item, each in zip(items, answer.answers, strict=False)
        ]

    def where(self, broker_id: int) -> str:
        """Return ``broker 2 (gRPC host:port)``."""
        return f"broker {broker_id} (gRPC {self._brokers.get(broker_id, 'address unknown')})"

    async def close(self) -> None:
        """Close all streams and channels."""
        for append_stream in self._appends.values():
            append_stream.close("the client closed")
        for fetch_stream in self._fetches.values():
            fetch_stream.close("the client closed")
        for reader in self._readers:
            reader.cancel()
        here = os.getpid()
        for (process, *_), channel in self._channels.items():
            if process == here:
                await channel.close(None)
        self._channels.clear()

    # -- internals

    async def _fetch_one(
        self, stream: FetchStream, item: FetchItem, limits: FetchLimits
    ) -> FetchOutcome:
        request = partition_store_pb2.FetchRequest(
            partition=_wire_partition(item.partition, item.topic_id),
            current_leader_epoch=item.leader_epoch,
            fetch_offset=item.fetch_offset,
            bytes_max=min(limits.bytes_max, limits.partition_bytes_max),
            bytes_min=limits.bytes_min,
            wait_ms_max=limits.wait_ms_max,
            read_committed=limits.read_committed,
            client_id=self._config.client_id,
        )
        answer = await stream.exchange(
            request, timeout_ms=self._config.request_timeout_ms + limits.wait_ms_max
        )
        if limits.read_committed and answer.batches and not answer.read_committed:
            raise UnsupportedVersionError(
                ErrorCode.UNSUPPORTED_VERSION,
                "the broker does not return aborted transactions over gRPC: read committed"
                " records over Kafka's protocol, or upgrade it",
                where=stream.where,
            )
        return FetchOutcome(
            item.partition,
            item.fetch_offset,
            answer.error_code,
            answer.high_watermark,
            answer.last_stable_offset,
            answer.log_start_offset,
            memoryview(answer.batches),
            tuple((txn.producer_id, txn.first_offset) for txn in answer.aborted),
            answer.error_message or None,
        )

    async def _ask_any(self, ask: Callable[[Any], Awaitable[Answer]]) -> Answer:
        return await self.ask_any(
            lambda channel: ask(partition_store_pb2_grpc.PartitionStoreStub(channel))
        )

    async def ask_any(self, ask: Callable[[grpc.aio.Channel], Awaitable[Answer]]) -> Answer:
        """Return the answer of the first reachable broker, known ones first. Raises ClientError."""
        problems: list[str] = []
        known = list(dict.fromkeys(self._brokers.values()))
        random.shuffle(known)
        for address in dict.fromkeys([*known, *self._bootstrap.addresses]):
            try:
                return await ask(self._channel(address))
            except grpc.aio.AioRpcError as problem:
                error = client_error(problem, f"gRPC {address}")
            except ClientError as problem:
                error = problem
            if not error.retriable:
                raise error
            problems.append(f"{address}: {error.what}")
        raise ConnectionLostError(
            ErrorCode.NETWORK_EXCEPTION, "no broker answers (" + " | ".join(problems) + ")"
        )

    def channel(self, broker_id: int) -> grpc.aio.Channel:
        """Return the channel to a broker. Raises ConnectionLostError if it is unknown."""
        return self._channel(self._address(broker_id))

    def _address(self, broker_id: int) -> Address:
        address = self._brokers.get(broker_id)
        if address is None:
            raise ConnectionLostError(
                ErrorCode.NETWORK_EXCEPTION, f"broker {broker_id} has no known gRPC endpoint"
            )
        return address

    def _channel(self, address: Address) -> grpc.aio.Channel:
        """Return the channel to an address: with TLS, a new one once the files have changed."""
        generation, credentials = (
            (0, None) if self._tls is None else self._tls.newest(time.monotonic())
        )
        key = (os.getpid(), address, generation)
        channel = self._channels.get(key)
        if channel is None:
            if credentials is not None and self._login is not None:
                credentials = grpc.composite_channel_credentials(credentials, self._login)
            channel = self._channels[key] = open_channel(str(address), credentials)
        return channel

    def _stub(self, address: Address) -> Any:
        return partition_store_pb2_grpc.PartitionStoreStub(self._channel(address))

    def _append_stream(self, address: Address) -> AppendStream:
        stream = self._appends.get(address)
        if stream is None or stream.is_lost:
            stream = self._appends[address] = ExchangeStream(
                self._stub(address).Append(),
                where=f"gRPC {address}",
                pending_requests_max=self._config.pending_requests_max,
            )
            self._read(stream.run())
        return stream

    def _fetch_stream(self, address: Address, *, read_committed: bool) -> FetchStream:
        key = (address, read_committed)
        stream = self._fetches.get(key)
        if stream is None or stream.is_lost:
            stream = self._fetches[key] = ExchangeStream(
                self._stub(address).Fetch(),
                where=f"gRPC {address}",
                pending_requests_max=_PARKED_FETCHES_MAX,
            )
            self._read(stream.run())
        return stream

    def _read(self, answers: Coroutine[Any, Any, None]) -> None:
        """Read a stream's responses in a task of the session."""
        reader = self._group.create_task(answers, name="grpc-stream")
        self._readers.add(reader)
        reader.add_done_callback(self._readers.discard)


def _wire_partition(partition: TopicPartition, topic_id: bytes) -> common_pb2.TopicPartition:
    known = b"" if topic_id == NO_TOPIC_ID else topic_id
    return common_pb2.TopicPartition(
        topic=partition.topic, topic_id=known, partition=partition.partition
    )


def _produce_outcome(
    answer: partition_store_pb2.AppendResponse | BaseException,
) -> ProduceOutcome:
    if isinstance(answer, ClientError):
        return ProduceOutcome(answer.code, message=answer.message)
    if isinstance(answer, BaseException):
        raise answer
    return ProduceOutcome(
        answer.error_code,
        answer.base_offset,
        answer.log_append_time_ms,
        answer.error_message or None,
    )


def _channel_tls(config: ClientConfig) -> ChannelTls | None:
    """Return the TLS of channels; None without. Raises ClientConfigError."""
    if not config.uses_tls:
        return None
    try:
        return ChannelTls(tls_settings(config))
    except TlsError as problem:
        raise ClientConfigError(ErrorCode.INVALID_CONFIG, str(problem)) from None


def client_error(problem: grpc.aio.AioRpcError, where: str) -> ClientError:
    """Return the client's exception for a failed call."""
    kind, code = _CODES.get(problem.code(), (ConnectionLostError, ErrorCode.NETWORK_EXCEPTION))
    return kind(code, f"{problem.code().name}: {problem.details()}", where=where)


def _cluster_view(
    endpoints: partition_store_pb2.DescribeEndpointsResponse,
    described: partition_store_pb2.DescribeTopicsResponse,
) -> ClusterView:
    return ClusterView(
        brokers={
            broker.broker_id: BrokerView(
                broker.broker_id,
                Bootstrap.parse(broker.grpc_endpoint).addresses[0],
                broker.rack or None,
            )
            for broker in endpoints.brokers
            if broker.grpc_endpoint
        },
        topics={
            topic.topic: TopicView(
                topic.topic,
                topic.topic_id or NO_TOPIC_ID,
                topic.error_code,
                tuple(
                    PartitionView(
                        each.partition,
                        each.leader,
                        each.leader_epoch,
                        each.error_code,
                        tuple(each.replicas),
                        tuple(each.isr),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in described.topics
        },
        cluster_id=endpoints.cluster_id or None,
    )
