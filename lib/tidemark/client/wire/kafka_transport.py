"""Transport over Kafka's protocol, the default."""

import asyncio
import random
import struct
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from tidemark.client.config import Address, Bootstrap, ClientConfig
from tidemark.client.errors import (
    ClientConfigError,
    ClientError,
    ConnectionLostError,
    UnsupportedVersionError,
    error_for,
)
from tidemark.client.wire.connection import BrokerConnection
from tidemark.client.wire.connection_pool import ConnectionPool, Lane
from tidemark.client.wire.epoch_ends import ask_epoch_ends
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
from tidemark.codec.buffers import Buffer
from tidemark.kafka import fetch, list_offsets, long_tail, metadata, produce
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.headers import MalformedRequestError
from tidemark.kafka.list_offsets import ListOffsetsResponse, ListOffsetsTopic
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID
from tidemark.model.topics import TopicPartition

_NAMES_UP_TO: Final = 12
"""Last version of Produce and Fetch with topic names, for brokers without topic ids."""
TRANSACTIONS_V2_PRODUCE: Final = 12
"""First version of Produce with which leaders add partitions to transactions."""
_NO_SESSION_EPOCH: Final = -1
_CONSUMER: Final = -1
_DEBUGGING_REPLICA: Final = -2
"""Replica id with which any replica answers ListOffsets from its own log."""
_NO_PRODUCER_EPOCH: Final = -1

Answer = TypeVar("Answer")
Item = TypeVar("Item", ProduceItem, FetchItem, OffsetItem)


class KafkaTransport:
    """Transport to one cluster over its Kafka listeners. See ``Transport``."""

    def __init__(self, bootstrap: Bootstrap, config: ClientConfig) -> None:
        self._bootstrap = bootstrap
        self._config = config
        self._pool = ConnectionPool(config)
        self._brokers: Mapping[int, Address] = {}
        self._produce_turns: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def describe(self, topics: Sequence[str] | None, *, auto_create: bool) -> ClusterView:
        """Ask brokers in turn, known ones first, until one answers."""
        queries = None if topics is None else [metadata.MetadataQuery(topic) for topic in topics]
        request = metadata.MetadataRequest(queries, auto_create)

        async def ask(connection: BrokerConnection) -> ClusterView:
            version = connection.version(ApiKey.METADATA)
            body = await connection.request(
                ApiKey.METADATA, version, [metadata.write_metadata_request(version, request)]
            )
            answer = parsed(connection, metadata.read_metadata_response, body, version)
            if answer.error_code:
                raise error_for(
                    answer.error_code,
                    "describing the cluster failed",
                    where=str(connection.address),
                )
            return _cluster_view(answer)

        cluster = await self.ask_any(ask)
        if cluster.brokers:
            self._brokers = {view.broker_id: view.address for view in cluster.brokers.values()}
        return cluster

    async def ask_any(self, ask: Callable[[BrokerConnection], Awaitable[Answer]]) -> Answer:
        """Return the answer of the first reachable broker.

        Raises ConnectionLostError with all attempts.
        """
        problems: list[str] = []
        for address in self._candidates():
            try:
                return await ask(await self._pool.connection(address, Lane.CONTROL))
            except ClientError as problem:
                if not isinstance(problem, ConnectionLostError) and not problem.retriable:
                    raise
                problems.append(f"{address}: {problem.what}")
        raise ConnectionLostError(
            ErrorCode.NETWORK_EXCEPTION, "no broker answers (" + " | ".join(problems) + ")"
        )

    async def connection(self, broker_id: int, lane: Lane) -> BrokerConnection:
        """Return a connection to a broker. Raises ConnectionLostError, also if it is unknown."""
        address = self._brokers.get(broker_id)
        if address is None:
            raise ConnectionLostError(
                ErrorCode.NETWORK_EXCEPTION, f"broker {broker_id} is not in the cluster's metadata"
            )
        return await self._pool.connection(address, lane)

    async def ask(
        self,
        connection: BrokerConnection,
        api_key: ApiKey,
        fields: Mapping[str, object],
        *,
        version_max: int | None = None,
        timeout_ms: int | None = None,
    ) -> long_tail.Struct:
        """Send one request of a generated API on a connection. Raises ClientError."""
        version = connection.version(api_key, version_max=version_max)
        body = await connection.request(
            api_key,
            version,
            [request_body(api_key, version, fields)],
            timeout_ms=timeout_ms,
        )
        return parsed(
            connection,
            lambda view, number: long_tail.read_response(api_key, number, view),
            body,
            version,
        )

    async def connection_to(self, address: Address, lane: Lane) -> BrokerConnection:
        """Return a connection to an address that a broker returned. Raises ConnectionLostError."""
        return await self._pool.connection(address, lane)

    async def init_producer_id(self) -> ProducerIdentity:
        """Request a producer id from any broker."""

        async def ask(connection: BrokerConnection) -> ProducerIdentity:
            fields = {
                "transactional_id": None,
                "transaction_timeout": self._config.request_timeout_ms,
                "producer_id": -1,
                "producer_epoch": _NO_PRODUCER_EPOCH,
            }
            answer = await self.ask(connection, ApiKey.INIT_PRODUCER_ID, fields)
            if answer.error_code:
                raise error_for(
                    answer.error_code,
                    "requesting a producer id failed",
                    where=str(connection.address),
                )
            return ProducerIdentity(answer.producer_id, answer.producer_epoch)

        return await self.ask_any(ask)

    async def produce(
        self,
        broker_id: int,
        items: Sequence[ProduceItem],
        *,
        acks: int,
        timeout_ms: int,
        transactional_id: str | None = None,
    ) -> list[ProduceOutcome]:
        """Send one Produce request; with acks=0 every batch counts as acknowledged."""
        # One at a time until written: a request that waits for a connection or for buffer space
        # must not be overtaken, because the batches of a partition are numbered.
        async with self._produce_turns[broker_id]:
            connection = await self.connection(broker_id, Lane.PRODUCE)
            version = _version(connection, ApiKey.PRODUCE, items)
            if transactional_id is not None:
                _check_transactions_v2(connection, version)
            request = _produce_request(items, acks, timeout_ms, transactional_id)
            parts: list[Buffer] = list(produce.write_produce_request_parts(version, request))
            if acks == 0:
                await connection.send_only(ApiKey.PRODUCE, version, parts)
                return [ProduceOutcome(0)] * len(items)
            unanswered = await connection.send(ApiKey.PRODUCE, version, parts)
        body = await connection.answer(unanswered)
        answer = parsed(connection, produce.read_produce_response, body, version)
        return _produce_outcomes(items, answer)

    def fetch_group(self, broker_id: int, partition: TopicPartition) -> Hashable:
        """Return the broker's id: one fetch reads all partitions that it leads."""
        return broker_id

    async def fetch(
        self, broker_id: int, items: Sequence[FetchItem], limits: FetchLimits
    ) -> list[FetchOutcome]:
        """Send one Fetch request without a session, which names every partition."""
        # Each isolation level has its own connection: fetches beyond the last stable offset must
        # not wait behind fetches that wait for it to advance.
        lane = Lane.FETCH_COMMITTED if limits.read_committed else Lane.FETCH
        connection = await self.connection(broker_id, lane)
        version = _version(connection, ApiKey.FETCH, items)
        request = _fetch_request(items, limits)
        body = await connection.request(
            ApiKey.FETCH,
            version,
            [fetch.write_fetch_request(version, request)],
            timeout_ms=self._config.request_timeout_ms + limits.wait_ms_max,
        )
        answer = parsed(connection, fetch.read_fetch_response, body, version)
        if answer.error_code:
            raise error_for(answer.error_code, "fetching failed", where=self.where(broker_id))
        names, offsets = _names(items), {item.partition: item.fetch_offset for item in items}
        return [
            _fetch_outcome(TopicPartition(name, read.result.partition), offsets, read)
            for topic in answer.topics
            for read in topic.partitions
            if TopicPartition(
                name := topic.topic or names.get(topic.topic_id, ""), read.result.partition
            )
            in offsets
        ]

    async def list_offsets(
        self, broker_id: int, items: Sequence[OffsetItem], *, read_committed: bool
    ) -> list[OffsetOutcome]:
        """Send one ListOffsets request."""
        topics = [
            ListOffsetsTopic(
                topic,
                [
                    list_offsets.ListOffsetsPartition(
                        item.partition.partition, item.timestamp_ms, item.leader_epoch
                    )
                    for item in group
                ],
            )
            for (topic, _), group in _by_topic(items).items()
        ]
        answer = await self._ask_offsets(broker_id, topics, read_committed=read_committed)
        return [
            OffsetOutcome(
                TopicPartition(topic, result.partition),
                result.error_code,
                result.offset,
                result.timestamp,
                result.leader_epoch,
            )
            for topic, results in answer.topics
            for result in results
        ]

    async def epoch_ends(self, broker_id: int, items: Sequence[EpochItem]) -> list[EpochOutcome]:
        """Send one OffsetForLeaderEpoch request."""
        connection = await self.connection(broker_id, Lane.CONTROL)
        return await ask_epoch_ends(self, connection, items)

    async def replica_bounds(
        self, broker_id: int, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return start and end of one broker's own logs, whether it leads the partitions or not."""
        found: list[dict[TopicPartition, int]] = []
        for mark in (list_offsets.EARLIEST_TIMESTAMP, list_offsets.LATEST_TIMESTAMP):
            by_topic: dict[str, list[list_offsets.ListOffsetsPartition]] = defaultdict(list)
            for topic, partition in partitions:
                by_topic[topic].append(list_offsets.ListOffsetsPartition(partition, mark))
            topics = [ListOffsetsTopic(*each) for each in by_topic.items()]
            answer = await self._ask_offsets(broker_id, topics, replica_id=_DEBUGGING_REPLICA)
            found.append(
                {
                    TopicPartition(topic, result.partition): result.offset
                    for topic, results in answer.topics
                    for result in results
                    if result.error_code == ErrorCode.NONE
                }
            )
        starts, ends = found
        return {one: (starts[one], end) for one, end in ends.items() if one in starts}

    async def _ask_offsets(
        self,
        broker_id: int,
        topics: list[ListOffsetsTopic],
        *,
        replica_id: int = _CONSUMER,
        read_committed: bool = False,
    ) -> ListOffsetsResponse:
        connection = await self.connection(broker_id, Lane.CONTROL)
        version = connection.version(ApiKey.LIST_OFFSETS)
        request = list_offsets.ListOffsetsRequest(
            replica_id, int(read_committed), topics, self._config.request_timeout_ms
        )
        body = await connection.request(
            ApiKey.LIST_OFFSETS,
            version,
            [list_offsets.write_list_offsets_request(version, request)],
        )
        return parsed(connection, list_offsets.read_list_offsets_response, body, version)

    def where(self, broker_id: int) -> str:
        """Return ``broker 2 (host:port)``."""
        return f"broker {broker_id} ({self._brokers.get(broker_id, 'address unknown')})"

    async def close(self) -> None:
        """Close all connections."""
        self._pool.close()

    def _candidates(self) -> list[Address]:
        known = list(dict.fromkeys(self._brokers.values()))
        random.shuffle(known)
        return self._pool.answering_first(dict.fromkeys([*known, *self._bootstrap.addresses]))


def _version(connection: BrokerConnection, api_key: ApiKey, items: Sequence[Item]) -> int:
    """Choose a version: with topic ids if all are known, else with names."""
    named = any(item.topic_id == NO_TOPIC_ID for item in items)
    return connection.version(api_key, version_max=_NAMES_UP_TO if named else None)


def _by_topic(items: Iterable[Item]) -> dict[tuple[str, bytes], list[Item]]:
    groups: dict[tuple[str, bytes], list[Item]] = defaultdict(list)
    for item in items:
        groups[item.partition.topic, item.topic_id].append(item)
    return groups


def _names(items: Iterable[Item]) -> dict[bytes, str]:
    return {item.topic_id: item.partition.topic for item in items}


def request_body(api_key: ApiKey, version: int, fields: Mapping[str, object]) -> bytes:
    """Return a request's body. Raises ClientConfigError for a number that it cannot carry."""
    try:
        return long_tail.write_request(api_key, version, fields)
    except long_tail.UnencodableError as problem:
        if not isinstance(problem.__cause__, struct.error | OverflowError):
            raise  # a bug of ours
        raise ClientConfigError(
            ErrorCode.INVALID_REQUEST, f"a number does not fit into the request: {problem}"
        ) from None


def parsed(
    connection: BrokerConnection,
    read: Callable[[memoryview, int], Answer],
    body: memoryview,
    version: int,
) -> Answer:
    """Decode a response. A malformed one closes the connection and raises ConnectionLostError."""
    try:
        return read(body, version)
    except MalformedRequestError as problem:
        connection.close()
        raise ConnectionLostError(
            ErrorCode.NETWORK_EXCEPTION,
            f"malformed answer: {problem}",
            where=str(connection.address),
        ) from None


def _check_transactions_v2(connection: BrokerConnection, version: int) -> None:
    """Refuse versions of Produce before KIP-890, where leaders add no partitions."""
    if version < TRANSACTIONS_V2_PRODUCE:
        raise UnsupportedVersionError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the broker serves Produce up to version {version}; transactions of this client need"
            f" {TRANSACTIONS_V2_PRODUCE}",
            where=str(connection.address),
        )


def _produce_request(
    items: Sequence[ProduceItem], acks: int, timeout_ms: int, transactional_id: str | None
) -> produce.ProduceRequest:
    topics = [
        produce.ProduceTopic(
            topic,
            topic_id,
            [
                produce.ProducePartition(item.partition.partition, memoryview(item.batch))
                for item in group
            ],
        )
        for (topic, topic_id), group in _by_topic(items).items()
    ]
    return produce.ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _produce_outcomes(
    items: Sequence[ProduceItem], answer: produce.ProduceResponse
) -> list[ProduceOutcome]:
    names = _names(items)
    outcomes = {
        TopicPartition(topic or names.get(topic_id, ""), result.partition): ProduceOutcome(
            result.error_code,
            result.base_offset,
            result.log_append_time_ms,
            result.error_message,
        )
        for topic, topic_id, results in answer.topics
        for result in results
    }
    missing = ProduceOutcome(
        ErrorCode.UNKNOWN_SERVER_ERROR, message="the answer leaves the partition out"
    )
    return [outcomes.get(item.partition, missing) for item in items]


def _fetch_request(items: Sequence[FetchItem], limits: FetchLimits) -> fetch.FetchRequest:
    topics = [
        fetch.FetchTopic(
            topic,
            topic_id,
            [
                fetch.FetchPartition(
                    partition=item.partition.partition,
                    current_leader_epoch=item.leader_epoch,
                    fetch_offset=item.fetch_offset,
                    last_fetched_epoch=-1,
                    log_start_offset=-1,
                    bytes_max=limits.partition_bytes_max,
                )
                for item in group
            ],
        )
        for (topic, topic_id), group in _by_topic(items).items()
    ]
    return fetch.FetchRequest(
        replica_id=-1,
        replica_epoch=-1,
        wait_ms_max=limits.wait_ms_max,
        bytes_min=limits.bytes_min,
        bytes_max=limits.bytes_max,
        isolation_level=int(limits.read_committed),
        session_id=0,
        session_epoch=_NO_SESSION_EPOCH,
        topics=topics,
        forgotten=[],
        rack_id=limits.rack,
        cluster_id=None,
    )


def _fetch_outcome(
    partition: TopicPartition, offsets: Mapping[TopicPartition, int], read: fetch.FetchedPartition
) -> FetchOutcome:
    result = read.result
    return FetchOutcome(
        partition,
        offsets[partition],
        result.error_code,
        result.high_watermark,
        result.last_stable_offset,
        result.log_start_offset,
        read.records if read.records is not None else memoryview(b""),
        tuple(result.aborted or ()),
        preferred_replica=result.preferred_read_replica,
    )


def _cluster_view(answer: metadata.MetadataResponse) -> ClusterView:
    return ClusterView(
        brokers={
            broker.node_id: BrokerView(
                broker.node_id, Address(broker.host, broker.port), broker.rack
            )
            for broker in answer.brokers
        },
        topics={
            topic.topic: _topic_view(topic.topic, topic)
            for topic in answer.topics
            if topic.topic is not None
        },
        cluster_id=answer.cluster_id,
        controller_id=answer.controller_id,
    )


def _topic_view(name: str, topic: metadata.MetadataTopic) -> TopicView:
    partitions = tuple(
        PartitionView(
            partition.partition,
            partition.leader_id,
            partition.leader_epoch,
            partition.error_code,
            tuple(partition.replicas),
            tuple(partition.isr),
            tuple(partition.offline_replicas),
        )
        for partition in sorted(topic.partitions, key=lambda each: each.partition)
    )
    return TopicView(name, topic.topic_id, topic.error_code, partitions, topic.is_internal)
