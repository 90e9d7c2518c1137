"""Admin: topics, configurations, offsets and the cluster, over Kafka's admin APIs."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

from tidemark.client import admin_answers, admin_requests
from tidemark.client.admin_types import (
    AlterConfig,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    CreatedTopic,
    LogDir,
    NewTopic,
    PartitionDescription,
    ProducerState,
    Reassignment,
    ReplicaBounds,
    ReplicaLog,
    TopicDescription,
)
from tidemark.client.config import AdminConfig, Bootstrap, with_settings
from tidemark.client.connection import BrokerConnection
from tidemark.client.connection_pool import Lane
from tidemark.client.errors import ClientError, error_for
from tidemark.client.kafka_transport import KafkaTransport, parsed
from tidemark.client.offset_lookup import OffsetAndTimestamp, OffsetLookup
from tidemark.client.retry import Backoff, Deadline
from tidemark.client.session import Session
from tidemark.kafka import long_tail
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock

__all__ = [
    "Admin",
    "AlterConfig",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "CreatedTopic",
    "LogDir",
    "NewTopic",
    "PartitionDescription",
    "ProducerState",
    "Reassignment",
    "ReplicaBounds",
    "ReplicaLog",
    "TopicDescription",
]

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class Admin:
    """Manages a cluster. ``async with Admin("host:9092") as admin: await
    admin.create_topics([NewTopic("orders", 3)])``.

    A call about several things raises the first failure; the others are notes on it, and what
    succeeded stays. ``settings`` are fields of AdminConfig by name. With transport="grpc" the Kafka
    addresses are learnt by gRPC.
    """

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
        self._backoff = Backoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms)
        self._session = Session(
            bootstrap_servers, replace(self.config, transport="kafka"), self._clock
        )

    async def start(self) -> Self:
        """Begin; connects at the first call. ``async with`` does it for you."""
        if self.config.transport == "grpc":
            self._session = Session(
                await self._kafka_addresses(), replace(self.config, transport="kafka"), self._clock
            )
        await self._session.start()
        return self

    async def close(self) -> None:
        """Let go of everything."""
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

    # ---- topics

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic]:
        """Make topics. Raises TopicAlreadyExistsError, ClientConfigError and the like."""
        fields = admin_requests.create_topics(
            topics, timeout_ms=self.config.request_timeout_ms, validate_only=validate_only
        )
        answer = await self._ask_any(ApiKey.CREATE_TOPICS, fields)
        created = admin_answers.by_name(answer.topics, lambda each: each.name, "creating topic {}")
        return {
            name: CreatedTopic(name, each.topic_id, each.num_partitions, each.replication_factor)
            for name, each in created.items()
        }

    async def delete_topics(self, topics: Iterable[str]) -> None:
        """Delete topics and their records. Raises UnknownTopicOrPartitionError."""
        fields = admin_requests.delete_topics(
            list(topics), timeout_ms=self.config.request_timeout_ms
        )
        answer = await self._ask_any(ApiKey.DELETE_TOPICS, fields)
        for topic in admin_answers.by_name(
            answer.responses, lambda each: each.name, "deleting topic {}"
        ):
            self._session.cache.unwant(topic)

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """Names, sorted; internal topics only if asked for."""
        cluster = await self._transport().describe(None, auto_create=False)
        return sorted(
            name for name, topic in cluster.topics.items() if internal or not topic.is_internal
        )

    async def describe_topics(
        self, topics: Iterable[str] | None = None
    ) -> dict[str, TopicDescription]:
        """Partitions, leaders and replicas; of all topics when none is named. Raises
        UnknownTopicOrPartitionError.
        """
        names = None if topics is None else list(topics)
        if names is not None and not names:
            return {}
        cluster = await self._transport().describe(names, auto_create=False)
        return admin_answers.by_name(
            cluster.topics.values(),
            lambda each: each.topic,
            "describing topic {}",
            admin_answers.tolerated,
        )

    async def create_partitions(
        self, counts: Mapping[str, int], *, validate_only: bool = False
    ) -> None:
        """Raise topics to these total numbers of partitions."""
        fields = admin_requests.create_partitions(
            counts, timeout_ms=self.config.request_timeout_ms, validate_only=validate_only
        )
        answer = await self._ask_any(ApiKey.CREATE_PARTITIONS, fields)
        admin_answers.by_name(answer.results, lambda each: each.name, "adding partitions to {}")

    # ---- configurations

    async def describe_configs(
        self, resources: Iterable[ConfigResource], *, with_documentation: bool = False
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Effective settings by name, with where each value comes from."""
        described: dict[ConfigResource, dict[str, ConfigEntry]] = {}
        for broker_id, group in admin_answers.by_broker(resources).items():
            fields = admin_requests.describe_configs(group, with_documentation=with_documentation)
            answer = await self._ask(broker_id, ApiKey.DESCRIBE_CONFIGS, fields)
            results = admin_answers.by_name(
                answer.results, admin_requests.read_resource, "describing {}"
            )
            described |= {
                resource: admin_requests.read_configs(each) for resource, each in results.items()
            }
        return described

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[AlterConfig]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change single settings and leave the others (IncrementalAlterConfigs). Raises
        ClientConfigError.
        """
        for broker_id, group in admin_answers.by_broker(changes).items():
            if broker_id is not None and broker_id not in (await self._brokers()):
                broker_id = None  # it is away: any broker may take what it is to find
            fields = admin_requests.alter_configs(
                {resource: changes[resource] for resource in group}, validate_only=validate_only
            )
            answer = await self._ask(broker_id, ApiKey.INCREMENTAL_ALTER_CONFIGS, fields)
            admin_answers.by_name(answer.responses, admin_requests.read_resource, "altering {}")

    # ---- records and offsets

    async def delete_records(
        self, before_offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Delete everything below an offset (-1: below the high watermark); gives the new log
        starts.
        """

        def fields(group: list[TopicPartition]) -> admin_requests.Fields:
            return admin_requests.delete_records(
                {partition: before_offsets[partition] for partition in group},
                timeout_ms=self.config.request_timeout_ms,
            )

        found = await self._at_leaders(before_offsets, ApiKey.DELETE_RECORDS, fields)
        return {partition: each.low_watermark for partition, each in found.items()}

    async def list_offsets(
        self, queries: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Offset for each timestamp in ms, or OffsetSpec; offset -1 where no record is so young."""
        lookup = OffsetLookup(self._session.cluster, self._transport(), self.config, self._clock)
        return await lookup.look_up(
            {TopicPartition(*partition): int(query) for partition, query in queries.items()},
            allowed_ms=self.config.default_api_timeout_ms,
            read_committed=read_committed,
        )

    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerState]]:
        """What each partition's leader remembers of idempotent producers."""
        found = await self._at_leaders(
            partitions, ApiKey.DESCRIBE_PRODUCERS, admin_requests.describe_producers
        )
        return {part: admin_requests.read_producers(each) for part, each in found.items()}

    # ---- the cluster

    async def describe_cluster(self) -> ClusterDescription:
        """Brokers alive, by any broker's account."""
        cluster = await self._transport().describe((), auto_create=False)
        brokers = tuple(cluster.brokers[number] for number in sorted(cluster.brokers))
        return ClusterDescription(cluster.cluster_id, cluster.controller_id, brokers)

    async def describe_log_dirs(self, broker_ids: Iterable[int] | None = None) -> list[LogDir]:
        """Log directories with the size of each replica; of all brokers when none is named."""
        cluster = await self.describe_cluster()
        alive = [broker.broker_id for broker in cluster.brokers]
        log_dirs: list[LogDir] = []
        for broker_id in alive if broker_ids is None else broker_ids:
            answer = await self._ask(broker_id, ApiKey.DESCRIBE_LOG_DIRS, {"topics": None})
            if answer.error_code:
                raise error_for(
                    answer.error_code,
                    "describing log directories failed",
                    where=self._transport().where(broker_id),
                )
            log_dirs += admin_requests.read_log_dirs(broker_id, answer)
        return log_dirs

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, ErrorCode]:
        """Elect preferred leaders, or any live replica where nobody leads (``unclean``, which may
        lose records); of all partitions when none is named. Says what became of each: NONE, or why
        not. Raises ClientError when nothing was tried.
        """
        topics: dict[str, list[int]] = defaultdict(list)
        for topic, partition in partitions or ():
            topics[topic].append(partition)
        named = [{"topic": name, "partitions": numbers} for name, numbers in topics.items()]
        fields = {
            "election_type": int(unclean),
            "topic_partitions": None if partitions is None else named,
            "timeout": self.config.default_api_timeout_ms,
        }
        answer = await self._ask_any(ApiKey.ELECT_LEADERS, fields)
        if answer.error_code:
            raise error_for(answer.error_code, "electing leaders failed")
        return {
            TopicPartition(result.topic, one.partition_id): ErrorCode(one.error_code)
            for result in answer.replica_election_results
            for one in result.partition_result
        }

    async def alter_partition_reassignments(
        self,
        moves: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> dict[TopicPartition, ClientError | None]:
        """Begin moving each partition to these replicas, preferred first; None cancels its move.
        Says what became of each: None, or why not. Raises ClientError when nothing was tried.
        """
        fields = admin_requests.alter_partition_reassignments(
            moves,
            allow_replication_factor_change=allow_replication_factor_change,
            timeout_ms=self.config.default_api_timeout_ms,
        )
        answer = await self._ask_any(ApiKey.ALTER_PARTITION_REASSIGNMENTS, fields)
        if answer.error_code:
            raise error_for(
                answer.error_code, "moving replicas failed", detail=answer.error_message
            )
        return admin_answers.alterations(answer, moves)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The moves under way; of all partitions when none is named."""
        fields = admin_requests.list_partition_reassignments(
            partitions, timeout_ms=self.config.default_api_timeout_ms
        )
        answer = await self._ask_any(ApiKey.LIST_PARTITION_REASSIGNMENTS, fields)
        if answer.error_code:
            raise error_for(answer.error_code, "listing moves failed", detail=answer.error_message)
        return admin_answers.reassignments(answer)

    async def replica_bounds(
        self, broker_id: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ReplicaBounds]:
        """Where the logs of one broker's replicas begin and end, leader or not; what the broker
        does not tell is left out.
        """
        await self._brokers()
        found = await self._transport().replica_bounds(broker_id, list(partitions))
        return {partition: ReplicaBounds(*bounds) for partition, bounds in found.items()}

    # ---- within

    async def _brokers(self) -> Mapping[int, Any]:
        """Brokers alive, as last heard; asks when never heard."""
        if not self._session.cache.version:
            await self._session.cluster.refresh(seen_version=0)
        return self._session.cache.cluster.brokers

    def _transport(self) -> KafkaTransport:
        transport = self._session.transport
        assert isinstance(transport, KafkaTransport), "the admin client speaks Kafka's protocol"
        return transport

    async def _kafka_addresses(self) -> list[str]:
        from tidemark.client.grpc_transport import GrpcTransport  # only who asks for it loads gRPC

        bootstrap = Bootstrap.parse(self._bootstrap_servers)
        async with asyncio.TaskGroup() as group:
            transport = GrpcTransport(bootstrap, self.config, group)
            try:
                return [str(address) for address in await transport.kafka_addresses()]
            finally:
                await transport.close()

    async def _ask(
        self, broker_id: int | None, api_key: ApiKey, fields: admin_requests.Fields
    ) -> long_tail.Struct:
        if broker_id is None:
            return await self._ask_any(api_key, fields)
        transport = self._transport()
        await self._brokers()
        connection = await transport.connection(broker_id, Lane.CONTROL)
        return await _ask_one(connection, api_key, fields)

    async def _ask_any(self, api_key: ApiKey, fields: admin_requests.Fields) -> long_tail.Struct:
        """One broker's answer; asked again while it says that the controller is away."""
        deadline = Deadline.after(self.config.default_api_timeout_ms, self._clock.now_ms())
        failures = 0
        while True:
            answer = await self._transport().ask_any(
                lambda connection: _ask_one(connection, api_key, fields)
            )
            away = ErrorCode.NOT_CONTROLLER in admin_answers.error_codes(answer)
            if not away or deadline.passed(self._clock.now_ms()):
                return answer
            failures += 1
            await asyncio.sleep(self._backoff.delay_ms(failures, random.random()) / 1_000)

    async def _at_leaders(
        self,
        partitions: Iterable[TopicPartition],
        api_key: ApiKey,
        fields: Callable[[list[TopicPartition]], admin_requests.Fields],
    ) -> dict[TopicPartition, long_tail.Struct]:
        """Ask every partition's leader, again where the leader has moved, until all answered or the
        deadline.
        """
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
            await asyncio.sleep(self._backoff.delay_ms(failures, random.random()) / 1_000)
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


async def _ask_one(
    connection: BrokerConnection, api_key: ApiKey, fields: admin_requests.Fields
) -> long_tail.Struct:
    version = connection.version(api_key)
    body = await connection.request(
        api_key, version, [long_tail.write_request(api_key, version, fields)]
    )
    return parsed(
        connection,
        lambda view, number: long_tail.read_response(api_key, number, view),
        body,
        version,
    )
