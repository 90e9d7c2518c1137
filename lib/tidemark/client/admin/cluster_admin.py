"""Topics, configurations, offsets and the cluster in the admin client.

A program that needs no groups, users or ACLs may use ClusterAdmin alone: it imports less.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tidemark.client.admin import answers as admin_answers
from tidemark.client.admin import requests as admin_requests
from tidemark.client.admin.calls import AdminCalls
from tidemark.client.admin.types import (
    AlterConfig,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    CreatedTopic,
    LogDir,
    NewTopic,
    Reassignment,
    ReplicaBounds,
    TopicDescription,
)
from tidemark.client.consumer.offset_lookup import OffsetAndTimestamp, OffsetLookup
from tidemark.client.errors import ClientError, error_for
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition


class ClusterAdmin(AdminCalls):
    """Methods of Admin for topics, configurations, offsets and the cluster."""

    # -- topics

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic]:
        """Create topics. Raises TopicAlreadyExistsError, ClientConfigError and others."""
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
        """Return the names of all topics, sorted; internal ones only with ``internal``."""
        cluster = await self._transport().describe(None, auto_create=False)
        return sorted(
            name for name, topic in cluster.topics.items() if internal or not topic.is_internal
        )

    async def describe_topics(
        self, topics: Iterable[str] | None = None
    ) -> dict[str, TopicDescription]:
        """Return partitions, leaders and replicas of topics (None: all topics).

        Raises UnknownTopicOrPartitionError.
        """
        self.last_api = ApiKey.METADATA
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
        """Increase topics to these total numbers of partitions."""
        fields = admin_requests.create_partitions(
            counts, timeout_ms=self.config.request_timeout_ms, validate_only=validate_only
        )
        answer = await self._ask_any(ApiKey.CREATE_PARTITIONS, fields)
        admin_answers.by_name(answer.results, lambda each: each.name, "adding partitions to {}")

    # -- configurations

    async def describe_configs(
        self, resources: Iterable[ConfigResource], *, with_documentation: bool = False
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Return the effective settings of each resource by name, with their sources."""
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
        """Change single settings (IncrementalAlterConfigs). Raises ClientConfigError."""
        for broker_id, group in admin_answers.by_broker(changes).items():
            if broker_id is not None and broker_id not in (await self._brokers()):
                broker_id = None  # it is not alive: any broker may store its configuration
            fields = admin_requests.alter_configs(
                {resource: changes[resource] for resource in group}, validate_only=validate_only
            )
            answer = await self._ask(broker_id, ApiKey.INCREMENTAL_ALTER_CONFIGS, fields)
            admin_answers.by_name(answer.responses, admin_requests.read_resource, "altering {}")

    # -- records and offsets

    async def delete_records(
        self, before_offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Delete records below an offset (-1: the high watermark); return the new log starts."""

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
        """Return the offset of each timestamp in ms, or OffsetSpec; -1 without a later record."""
        self.last_api = ApiKey.LIST_OFFSETS
        lookup = OffsetLookup(self._session.cluster, self._transport(), self.config, self._clock)
        return await lookup.look_up(
            {TopicPartition(*partition): int(query) for partition, query in queries.items()},
            allowed_ms=self.config.default_api_timeout_ms,
            read_committed=read_committed,
        )

    # -- the cluster

    async def describe_cluster(self) -> ClusterDescription:
        """Return the live brokers, as one broker reports them."""
        self.last_api = ApiKey.METADATA
        cluster = await self._transport().describe((), auto_create=False)
        brokers = tuple(cluster.brokers[number] for number in sorted(cluster.brokers))
        return ClusterDescription(cluster.cluster_id, cluster.controller_id, brokers)

    async def describe_log_dirs(self, broker_ids: Iterable[int] | None = None) -> list[LogDir]:
        """Return log directories with the size of each replica (None: of all brokers)."""
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

    async def alter_replica_log_dirs(
        self, broker_id: int, moves: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, ErrorCode]:
        """Move a broker's replicas to other directories of it, given by absolute path. Return the
        error of each; the broker then copies the logs. REPLICA_NOT_AVAILABLE: the replica is not
        there yet, and will be created in that directory.
        """
        asked = admin_requests.alter_replica_log_dirs(moves)
        answer = await self._ask(broker_id, ApiKey.ALTER_REPLICA_LOG_DIRS, asked)
        return {
            TopicPartition(topic.topic_name, each.partition_index): ErrorCode(each.error_code)
            for topic in answer.results
            for each in topic.partitions
        }

    async def unregister_broker(self, broker_id: int) -> None:
        """Remove the registration of a broker that is stopped and has no replicas. Waits until its
        lease is over. Raises ClientError: BROKER_ID_NOT_REGISTERED, or POLICY_VIOLATION while it is
        alive or has replicas.
        """
        deadline, failures = self._deadline(), 0
        while True:
            answer = await self._ask_any(ApiKey.UNREGISTER_BROKER, {"broker_id": broker_id})
            if answer.error_code == ErrorCode.NONE:
                return
            too_late = deadline.passed(self._clock.now_ms())
            if answer.error_code != ErrorCode.REQUEST_TIMED_OUT or too_late:
                raise error_for(
                    answer.error_code,
                    f"unregistering broker {broker_id} failed",
                    detail=answer.error_message,
                )
            failures += 1
            await self._pause(failures)

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, ErrorCode]:
        """Elect preferred leaders; return the result of each partition.

        With ``unclean``, elects any live replica for partitions without a leader, which may lose
        records. None selects all partitions. Raises ClientError if nothing was attempted.
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
        """Start to move partitions to these replicas, preferred leader first; None cancels a move.

        Returns the error of each partition, None without one. Raises ClientError if nothing was
        attempted.
        """
        fields = admin_requests.alter_partition_reassignments(
            moves,
            allow_replication_factor_change=allow_replication_factor_change,
            timeout_ms=self.config.default_api_timeout_ms,
        )
        answer = await self._ask_any(ApiKey.ALTER_PARTITION_REASSIGNMENTS, fields)
        if answer.error_code:
            raise error_for(
                answer.error_code, "reassigning partitions failed", detail=answer.error_message
            )
        return admin_answers.alterations(answer, moves)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Return the reassignments in progress (None: of all partitions)."""
        fields = admin_requests.list_partition_reassignments(
            partitions, timeout_ms=self.config.default_api_timeout_ms
        )
        answer = await self._ask_any(ApiKey.LIST_PARTITION_REASSIGNMENTS, fields)
        if answer.error_code:
            raise error_for(
                answer.error_code, "listing reassignments failed", detail=answer.error_message
            )
        return admin_answers.reassignments(answer)

    async def replica_bounds(
        self, broker_id: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ReplicaBounds]:
        """Return start and end of the logs of one broker's replicas, leader or not.

        Replicas that the broker does not report are left out.
        """
        await self._brokers()
        found = await self._transport().replica_bounds(broker_id, list(partitions))
        return {partition: ReplicaBounds(*bounds) for partition, bounds in found.items()}
