"""The client without ``await``: the same classes over a background thread with an event loop.

Each object owns one thread, from construction until ``close`` (or the end of ``with``). Calls from
several threads are allowed; each costs a hop to the loop, so that many records go best through
``Producer.send_many``.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tidemark.client.admin import admin as async_admin
from tidemark.client.admin.group_types import (
    GroupDescription,
    GroupListing,
    TransactionDescription,
    TransactionListing,
)
from tidemark.client.admin.types import (
    AlterConfig,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    CreatedTopic,
    LogDir,
    NewTopic,
    ProducerState,
    Reassignment,
    ReplicaBounds,
    TopicDescription,
)
from tidemark.client.config import AdminConfig, ConsumerConfig, ProducerConfig
from tidemark.client.consumer import consumer as async_consumer
from tidemark.client.consumer.consumer import Partition
from tidemark.client.consumer.group_types import (
    GroupMetadata,
    OffsetAndMetadata,
    OffsetsInput,
    RebalanceListener,
)
from tidemark.client.consumer.offset_lookup import OffsetAndTimestamp
from tidemark.client.consumer.positions import ConsumerRecord
from tidemark.client.errors import ClientError
from tidemark.client.producer import producer as async_producer
from tidemark.client.producer.accumulator import Statistics
from tidemark.client.producer.batches import Delivery, EncodedRecords, Header, RecordMetadata
from tidemark.client.producer.partitioner import Partitioner
from tidemark.client.sync.loop import LoopThread, SyncFace, ThreadListener, send_all_encoded
from tidemark.codec.record_batch import Buffer
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition

__all__ = ["Admin", "Consumer", "Producer", "SyncDelivery"]


def __getattr__(name: str) -> Any:
    """Sink batches speak gRPC, which is loaded by who uses them only."""
    if name in ("BatchWriter", "SinkBatches", "Writer"):
        from tidemark.client.sync import sink_batches

        return getattr(sink_batches, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class SyncDelivery:
    """One record's fate, for a thread."""

    __slots__ = ("_delivery", "_thread")

    def __init__(self, delivery: Delivery, thread: LoopThread[async_producer.Producer]) -> None:
        self._delivery = delivery
        self._thread = thread

    def done(self) -> bool:
        """Whether the record was acknowledged or failed."""
        return self._delivery.done()

    def result(self) -> RecordMetadata:
        """Where the record is; waits until it is acknowledged. Raises what it failed of."""
        if self._delivery.done():
            return self._delivery.result()
        return self._thread.call(_awaited(self._delivery))


class Producer(SyncFace[async_producer.Producer]):
    """See ``tidemark.client.Producer``. ``with Producer("host:9092") as producer:
    producer.send("topic", b"value")``.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        config: ProducerConfig | None = None,
        *,
        partitioner: Partitioner | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(
            lambda: async_producer.Producer(
                bootstrap_servers, config, partitioner=partitioner, **settings
            ),
            name="tidemark-producer",
        )

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = (),
    ) -> RecordMetadata:
        """Send one record and wait until it is acknowledged."""
        return self._thread.call(
            self._client.send(
                topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
            )
        )

    def enqueue(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = (),
    ) -> SyncDelivery:
        """Take one record, waiting only for metadata and memory; ask the delivery for its
        offset.
        """
        delivery = self._thread.call(
            self._client.enqueue(
                topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
            )
        )
        return SyncDelivery(delivery, self._thread)

    def send_many(
        self, topic: str, records: Iterable[tuple[bytes | None, bytes | None]]
    ) -> list[RecordMetadata]:
        """Send (key, value) pairs and wait until all are acknowledged, in their order."""
        return self._thread.call(_send_many(self._client, topic, records))

    def send_encoded(
        self,
        partition: TopicPartition,
        records: Buffer,
        *,
        count: int,
        first_timestamp: int,
        max_timestamp: int,
    ) -> SyncDelivery:
        """Take records that are encoded already, as one batch of their own."""
        delivery = self._thread.call(
            self._client.send_encoded(
                partition,
                records,
                count=count,
                first_timestamp=first_timestamp,
                max_timestamp=max_timestamp,
            )
        )
        return SyncDelivery(delivery, self._thread)

    def send_encoded_many(self, batches: Sequence[EncodedRecords]) -> None:
        """Take several such batches, in one hop; ``flush`` waits for them, and raises what failed.

        Returns when there was room for all of them.
        """
        self._thread.call(send_all_encoded(self._client, batches))

    def partitions_for(self, topic: str) -> tuple[int, ...]:
        """Numbers of the topic's partitions."""
        return self._thread.call(self._client.partitions_for(topic))

    def flush(self, *, timeout_ms: int | None = None) -> None:
        """Wait until all that was taken is acknowledged or failed."""
        self._thread.call(self._client.flush(timeout_ms=timeout_ms))

    def statistics(self) -> Statistics:
        """What is buffered now and what became of the records so far."""
        return self._thread.call_plain(self._client.statistics)


class Consumer(SyncFace[async_consumer.Consumer]):
    """See ``tidemark.client.Consumer``."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        config: ConsumerConfig | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(
            lambda: async_consumer.Consumer(bootstrap_servers, config, **settings),
            name="tidemark-consumer",
        )

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Read exactly these partitions."""
        self._thread.call_plain(self._client.assign, list(partitions))

    def assign_topic(self, *topics: str) -> tuple[TopicPartition, ...]:
        """Assign all partitions of these topics."""
        return self._thread.call(self._client.assign_topic(*topics))

    def subscribe(
        self,
        topics: Iterable[str] = (),
        listener: RebalanceListener | None = None,
        *,
        pattern: str | None = None,
    ) -> None:
        """Read these topics together with the group's other members.

        The listener is called in a thread of its own while poll() waits for it, so that it may call
        this consumer.
        """
        told = None if listener is None else ThreadListener(listener)
        names = topics if isinstance(topics, str) else list(topics)
        self._thread.call_plain(self._client.subscribe, names, told, pattern=pattern)

    def unsubscribe(self) -> None:
        """Leave the group."""
        self._thread.call(self._client.unsubscribe())

    def commit(self, offsets: OffsetsInput | None = None) -> None:
        """Commit these offsets, or the positions of all partitions."""
        self._thread.call(self._client.commit(offsets))

    def committed(
        self, partitions: Iterable[Partition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed, None where nothing."""
        return self._thread.call(self._client.committed(list(partitions)))

    def group_metadata(self) -> GroupMetadata:
        """Who commits: for TransactionalProducer.send_offsets."""
        return self._thread.call_plain(self._client.group_metadata)

    def assignment(self) -> tuple[TopicPartition, ...]:
        """What is read."""
        return self._thread.call_plain(self._client.assignment)

    def seek(self, partition: Partition, offset: int) -> None:
        """Go on at an offset."""
        self._thread.call_plain(self._client.seek, partition, offset)

    def seek_to_beginning(self, *partitions: Partition) -> None:
        """Go on at the first offset still there; in all partitions when none is named."""
        self._thread.call_plain(self._client.seek_to_beginning, *partitions)

    def seek_to_end(self, *partitions: Partition) -> None:
        """Go on behind the last record; in all partitions when none is named."""
        self._thread.call_plain(self._client.seek_to_end, *partitions)

    def seek_to_timestamp(self, timestamp_ms: int, *partitions: Partition) -> None:
        """Go on at the first record not older; in all partitions when none is named."""
        self._thread.call_plain(self._client.seek_to_timestamp, timestamp_ms, *partitions)

    def rewind(self, unseen: Iterable[ConsumerRecord]) -> None:
        """Go back to the first of these records in each partition."""
        self._thread.call_plain(self._client.rewind, list(unseen))

    def position(self, partition: Partition) -> int:
        """Offset of the next record that poll will give."""
        return self._thread.call(self._client.position(partition))

    def pause(self, *partitions: Partition) -> None:
        """Hand out nothing of these partitions until ``resume``."""
        self._thread.call_plain(self._client.pause, *partitions)

    def resume(self, *partitions: Partition) -> None:
        """Read on."""
        self._thread.call_plain(self._client.resume, *partitions)

    def poll(
        self, max_records: int | None = None, *, timeout_ms: int = 1_000
    ) -> list[ConsumerRecord]:
        """Records, waiting up to ``timeout_ms`` while there are none."""
        return self._thread.call(self._client.poll(max_records, timeout_ms=timeout_ms))

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Records without end; what was polled and not seen is read again after ``break``."""
        while True:
            records = self.poll()
            unseen = deque(records)
            try:
                while unseen:
                    yield unseen.popleft()
            finally:
                if unseen:
                    self.rewind(unseen)

    def beginning_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """The first offset of each."""
        return self._thread.call(self._client.beginning_offsets(list(partitions)))

    def end_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """Behind the last record of each."""
        return self._thread.call(self._client.end_offsets(list(partitions)))

    def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition that is not older."""
        return self._thread.call(self._client.offsets_for_times(timestamps_ms))


class Admin(SyncFace[async_admin.Admin]):
    """See ``tidemark.client.Admin``."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        config: AdminConfig | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(
            lambda: async_admin.Admin(bootstrap_servers, config, **settings), name="tidemark-admin"
        )

    def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic]:
        """Make topics."""
        return self._thread.call(
            self._client.create_topics(list(topics), validate_only=validate_only)
        )

    def delete_topics(self, topics: Iterable[str]) -> None:
        """Delete topics and their records."""
        self._thread.call(self._client.delete_topics(list(topics)))

    def list_topics(self, *, internal: bool = False) -> list[str]:
        """Names, sorted."""
        return self._thread.call(self._client.list_topics(internal=internal))

    def describe_topics(self, topics: Iterable[str] | None = None) -> dict[str, TopicDescription]:
        """Partitions, leaders and replicas."""
        return self._thread.call(self._client.describe_topics(topics))

    def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, ErrorCode]:
        """Elect preferred leaders, or any where nobody leads."""
        return self._thread.call(self._client.elect_leaders(partitions, unclean=unclean))

    def alter_partition_reassignments(
        self,
        moves: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> dict[TopicPartition, ClientError | None]:
        """Begin moving replicas, or (None) cancel a move; what became of each."""
        return self._thread.call(
            self._client.alter_partition_reassignments(
                moves, allow_replication_factor_change=allow_replication_factor_change
            )
        )

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The moves under way."""
        return self._thread.call(self._client.list_partition_reassignments(partitions))

    def replica_bounds(
        self, broker_id: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ReplicaBounds]:
        """Where the logs of one broker's replicas begin and end, leader or not."""
        return self._thread.call(self._client.replica_bounds(broker_id, list(partitions)))

    def create_partitions(self, counts: Mapping[str, int], *, validate_only: bool = False) -> None:
        """Raise topics to these total numbers of partitions."""
        self._thread.call(self._client.create_partitions(counts, validate_only=validate_only))

    def describe_configs(
        self, resources: Iterable[ConfigResource], *, with_documentation: bool = False
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Effective settings by name."""
        return self._thread.call(
            self._client.describe_configs(resources, with_documentation=with_documentation)
        )

    def alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[AlterConfig]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change single settings and leave the others."""
        self._thread.call(self._client.alter_configs(changes, validate_only=validate_only))

    def delete_records(
        self, before_offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Delete everything below an offset; gives the new log starts."""
        return self._thread.call(self._client.delete_records(before_offsets))

    def list_offsets(
        self, queries: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Offset for each timestamp in ms, or OffsetSpec."""
        return self._thread.call(self._client.list_offsets(queries, read_committed=read_committed))

    def describe_producers(
        self, partitions: Iterable[tuple[str, int]]
    ) -> dict[TopicPartition, list[ProducerState]]:
        """What each partition's leader remembers of idempotent producers."""
        return self._thread.call(self._client.describe_producers(list(partitions)))

    def list_groups(
        self, *, states: Iterable[str] = (), kinds: Iterable[str] = ()
    ) -> list[GroupListing]:
        """All groups, or those in these states and of these kinds."""
        return self._thread.call(self._client.list_groups(states=states, kinds=kinds))

    def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """State, members and assignments."""
        return self._thread.call(self._client.describe_groups(list(group_ids)))

    def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group committed."""
        return self._thread.call(self._client.list_group_offsets(group_id, partitions))

    def alter_group_offsets(self, group_id: str, offsets: OffsetsInput) -> None:
        """Move a group that has no members."""
        self._thread.call(self._client.alter_group_offsets(group_id, offsets))

    def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Forget groups and their offsets."""
        self._thread.call(self._client.delete_groups(list(group_ids)))

    def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget offsets that no member needs."""
        self._thread.call(self._client.delete_group_offsets(group_id, list(partitions)))

    def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        duration_ms_min: int = -1,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """All transactional ids, or those that match."""
        return self._thread.call(
            self._client.list_transactions(
                states=states,
                producer_ids=producer_ids,
                duration_ms_min=duration_ms_min,
                pattern=pattern,
            )
        )

    def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription]:
        """What each coordinator knows."""
        return self._thread.call(self._client.describe_transactions(list(transactional_ids)))

    def fence_producers(self, transactional_ids: Iterable[str]) -> None:
        """Abort what is open under these ids, and fence whoever has them."""
        self._thread.call(self._client.fence_producers(list(transactional_ids)))

    def abort_transaction(self, partition: TopicPartition, producer: ProducerState) -> None:
        """Write an abort marker for a hanging transaction."""
        self._thread.call(self._client.abort_transaction(partition, producer))

    def describe_cluster(self) -> ClusterDescription:
        """Brokers alive."""
        return self._thread.call(self._client.describe_cluster())

    def describe_log_dirs(self, broker_ids: Iterable[int] | None = None) -> list[LogDir]:
        """Log directories with the size of each replica."""
        return self._thread.call(self._client.describe_log_dirs(broker_ids))


async def _awaited(delivery: Delivery) -> RecordMetadata:
    return await delivery


async def _send_many(
    producer: async_producer.Producer,
    topic: str,
    records: Iterable[tuple[bytes | None, bytes | None]],
) -> list[RecordMetadata]:
    deliveries = [await producer.enqueue(topic, value, key) for key, value in records]
    return [await delivery for delivery in deliveries]
