"""Committed offsets of all groups of a shard, and the pending offsets of open transactions.

All state here changes by ``replay`` and ``replay_end`` alone. Offsets committed in an open
transaction are pending: no request returns them, but the partition's offset is not stable
(KIP-447).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from tidemark.codec.group_records import OffsetCommitRecord, OffsetCommitValue
from tidemark.codec.varint import INT64_MAX
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID, TopicId, WallMs
from tidemark.model.topics import TopicPartition
from tidemark.protocol.shard import Writer

from broker.core.groups.requests import (
    DeletedTopic,
    FetchedOffset,
    FetchedTopic,
    GroupSettings,
    OffsetCommitReply,
    OffsetDelete,
    OffsetDeleteReply,
    OffsetFetch,
    OffsetFetchReply,
    OffsetToCommit,
    PartitionError,
    TopicErrors,
    TopicOffsets,
    TopicPartitions,
)

NO_OFFSET_COMMITTED = -1


class Committed(NamedTuple):
    """A committed offset, and the position of its record in the log.

    The later record wins, even if an earlier one takes effect only now because its transaction
    ended late.
    """

    value: OffsetCommitValue
    place: int


Positions = dict[TopicPartition, Committed]
_NONE: Final[Mapping[TopicPartition, Committed]] = {}
IsSubscribed = Callable[[str], bool]


class Offsets:
    """The offsets of all groups of a shard."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._groups: dict[str, Positions] = {}
        self._pending: dict[int, dict[str, Positions]] = {}
        """Pending offsets by producer id, then by group id."""
        self._writers: dict[str, set[int]] = {}
        """Producer ids with pending offsets, by group id."""
        self._replayed = 0

    # -- queries

    def group_ids(self) -> Iterable[str]:
        """Return the groups that have a committed or pending offset."""
        return self._groups.keys() | self._writers.keys()

    @property
    def count(self) -> int:
        """Number of committed offsets, without pending ones."""
        return sum(len(positions) for positions in self._groups.values())

    def has_any(self, group_id: str) -> bool:
        """True if a group has a committed or pending offset."""
        return group_id in self._groups or group_id in self._writers

    def of_group(self, group_id: str) -> Mapping[TopicPartition, Committed]:
        """Return a group's committed offsets by partition."""
        return self._groups.get(group_id, _NONE)

    def position(self, group_id: str, partition: TopicPartition) -> OffsetCommitValue | None:
        """Return a group's committed offset in a partition."""
        committed = self._groups.get(group_id, {}).get(partition)
        return committed.value if committed is not None else None

    def is_all(self, group_id: str, tombstones: Sequence[OffsetCommitRecord]) -> bool:
        """True if these tombstones, each for another partition, leave the group without offsets."""
        return group_id not in self._writers and len(tombstones) == len(
            self._groups.get(group_id, ())
        )

    def is_stable(self, group_id: str, partition: TopicPartition) -> bool:
        """True if no open transaction has a pending offset of the group in this partition."""
        return not any(
            partition in self._pending[producer_id][group_id]
            for producer_id in self._writers.get(group_id, ())
        )

    def fetch(self, request: OffsetFetch) -> OffsetFetchReply:
        """Return the offsets in the requested partitions, or in all partitions that have one."""
        requested = self._all(request.group_id) if request.topics is None else request.topics
        topics = tuple(
            FetchedTopic(
                topic.topic,
                topic.topic_id,
                tuple(self._fetched(request, topic, number) for number in topic.partitions),
            )
            for topic in requested
        )
        return OffsetFetchReply(error_code=ErrorCode.NONE, topics=topics)

    def _all(self, group_id: str) -> Iterator[TopicPartitions]:
        by_topic: dict[str, list[int]] = {}
        for topic, number in sorted(self._groups.get(group_id, ())):
            by_topic.setdefault(topic, []).append(number)
        for topic, numbers in by_topic.items():
            yield TopicPartitions(topic, NO_TOPIC_ID, tuple(numbers))

    def _fetched(self, request: OffsetFetch, topic: TopicPartitions, number: int) -> FetchedOffset:
        partition = TopicPartition(topic.topic, number)
        if request.require_stable and not self.is_stable(request.group_id, partition):
            return _no_offset(number, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        value = self.position(request.group_id, partition)
        if value is None or _is_of_another(value.topic_id, topic.topic_id):
            return _no_offset(number, ErrorCode.NONE)
        return FetchedOffset(
            number, value.offset, value.leader_epoch, value.metadata, ErrorCode.NONE
        )

    # -- decisions

    def commit(
        self,
        group_id: str,
        topics: Iterable[TopicOffsets],
        now: WallMs,
        partition_count: Callable[[TopicId], int],
        retention_ms: int = -1,
    ) -> tuple[list[OffsetCommitRecord], OffsetCommitReply]:
        """Return one record for each offset, unless its metadata is too large, or its topic (which
        has 0 partitions then) or its partition does not exist.
        """
        records: list[OffsetCommitRecord] = []
        answered = []
        expires = min(now + retention_ms, INT64_MAX) if retention_ms >= 0 else -1
        for topic in topics:
            errors = []
            count = partition_count(topic.topic_id)
            for offset in topic.offsets:
                error_code = self._commit_refusal(offset, count)
                errors.append(PartitionError(offset.partition, error_code))
                if error_code is ErrorCode.NONE:
                    records.append(_record(group_id, topic, offset, now, expires))
            answered.append(TopicErrors(topic.topic, topic.topic_id, tuple(errors)))
        return records, OffsetCommitReply(error_code=ErrorCode.NONE, topics=tuple(answered))

    def _commit_refusal(self, offset: OffsetToCommit, partition_count: int) -> ErrorCode:
        if not partition_count:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not 0 <= offset.partition < partition_count:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if len(offset.metadata) > self._settings.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    def delete(
        self,
        request: OffsetDelete,
        is_subscribed: IsSubscribed,
        partition_count: Callable[[TopicId], int],
    ) -> tuple[list[OffsetCommitRecord], OffsetDeleteReply]:
        """Return tombstones for the offsets in topics that no member reads. A partition that does
        not exist is refused, like the whole topic where that has 0 partitions.
        """
        records: list[OffsetCommitRecord] = []
        answered = []
        for topic in request.topics:
            there = range(partition_count(topic.topic_id))
            error_code = ErrorCode.NONE
            if is_subscribed(topic.topic):
                error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                partitions = (
                    TopicPartition(topic.topic, number)
                    for number in topic.partitions
                    if number in there
                )
                records += self._tombstones(request.group_id, partitions)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            errors = tuple(
                PartitionError(number, error_code if number in there else unknown)
                for number in topic.partitions
            )
            answered.append(TopicErrors(topic.topic, topic.topic_id, errors))
        return records, OffsetDeleteReply(error_code=ErrorCode.NONE, topics=tuple(answered))

    def delete_all(self, group_id: str) -> list[OffsetCommitRecord]:
        """Return tombstones for all offsets of a group, pending ones included."""
        return self._tombstones(group_id, self._partitions(group_id))

    def delete_topics(self, topics: Iterable[DeletedTopic]) -> list[OffsetCommitRecord]:
        """Return tombstones for the offsets of all groups in deleted topics."""
        gone = {topic.topic: topic.topic_id for topic in topics}
        records: list[OffsetCommitRecord] = []
        for group_id in sorted(self.group_ids()):
            deleted = (
                partition
                for partition in self._partitions(group_id)
                if partition.topic in gone
                and not self._is_of_newer(group_id, partition, gone[partition.topic])
            )
            records += self._tombstones(group_id, deleted)
        return records

    def delete_unknown(self, is_known: Callable[[TopicId], bool]) -> list[OffsetCommitRecord]:
        """Return tombstones for the offsets of all groups whose topic ids belong to no existing
        topic. An offset without a topic id stays.
        """
        records: list[OffsetCommitRecord] = []
        for group_id in sorted(self.group_ids()):
            deleted = (
                partition
                for partition in self._partitions(group_id)
                if _are_gone(self._topic_ids(group_id, partition), is_known)
            )
            records += self._tombstones(group_id, deleted)
        return records

    def _topic_ids(self, group_id: str, partition: TopicPartition) -> set[TopicId]:
        """Return the topic ids of the committed offset and of the pending ones in a partition."""
        offsets = [self._groups.get(group_id, {}).get(partition)]
        for producer_id in self._writers.get(group_id, ()):
            offsets.append(self._pending[producer_id][group_id].get(partition))
        return {offset.value.topic_id for offset in offsets if offset is not None} - {NO_TOPIC_ID}

    def _is_of_newer(self, group_id: str, partition: TopicPartition, gone: TopicId) -> bool:
        """True if the offset belongs to a newer topic with the name of the deleted one."""
        value = self.position(group_id, partition)
        return value is not None and _is_of_another(value.topic_id, gone)

    def expired(
        self,
        group_id: str,
        now: WallMs,
        *,
        empty_since: WallMs | None,
        is_subscribed: IsSubscribed,
    ) -> list[OffsetCommitRecord]:
        """Return tombstones for offsets older than their retention (KIP-211).

        The retention starts when the group became empty, where that time is recorded, else at the
        commit. Offsets stay if a member may still read the topic, or if a transaction has a pending
        offset in the partition.
        """
        old = (
            partition
            for partition, committed in self._groups.get(group_id, {}).items()
            if self._is_old(committed.value, now, empty_since)
            and not is_subscribed(partition.topic)
            and self.is_stable(group_id, partition)
        )
        return self._tombstones(group_id, old)

    def _is_old(self, value: OffsetCommitValue, now: WallMs, since: WallMs | None) -> bool:
        if value.expire_timestamp >= 0:
            return now >= value.expire_timestamp
        counted_from = since if since is not None else value.commit_timestamp
        return now - counted_from >= self._settings.offsets_retention_ms

    def _partitions(self, group_id: str) -> list[TopicPartition]:
        partitions = set(self._groups.get(group_id, ()))
        for producer_id in self._writers.get(group_id, ()):
            partitions |= self._pending[producer_id][group_id].keys()
        return sorted(partitions)

    def _tombstones(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> list[OffsetCommitRecord]:
        return [
            OffsetCommitRecord(group_id, partition.topic, partition.partition, None)
            for partition in partitions
            if self.position(group_id, partition) is not None
            or not self.is_stable(group_id, partition)
        ]

    # -- replay

    def replay(self, record: OffsetCommitRecord, writer: Writer | None) -> None:
        """Apply a record: a committed offset, a pending one, or a tombstone, which removes both."""
        self._replayed += 1
        partition = TopicPartition(record.topic, record.partition)
        if record.value is None:
            self._forget(record.group_id, partition)
            return
        committed = Committed(record.value, self._replayed)
        if writer is None:
            self._groups.setdefault(record.group_id, {})[partition] = committed
            return
        pending = self._pending.setdefault(writer.producer_id, {})
        pending.setdefault(record.group_id, {})[partition] = committed
        self._writers.setdefault(record.group_id, set()).add(writer.producer_id)

    def replay_end(self, writer: Writer, *, commits: bool) -> None:
        """End a producer's transaction: its pending offsets are committed or dropped."""
        for group_id, positions in self._pending.pop(writer.producer_id, {}).items():
            self._ended(group_id, writer.producer_id)
            if commits:
                self._publish(group_id, positions)

    def _publish(self, group_id: str, positions: Positions) -> None:
        if not positions:
            return
        current = self._groups.setdefault(group_id, {})
        for partition, committed in positions.items():
            previous = current.get(partition)
            if previous is None or previous.place < committed.place:
                current[partition] = committed

    def _forget(self, group_id: str, partition: TopicPartition) -> None:
        positions = self._groups.get(group_id)
        if positions is not None:
            positions.pop(partition, None)
            if not positions:
                del self._groups[group_id]
        for producer_id in list(self._writers.get(group_id, ())):
            pending = self._pending[producer_id]
            pending[group_id].pop(partition, None)
            if not pending[group_id]:
                del pending[group_id]
                self._ended(group_id, producer_id)
            if not pending:
                del self._pending[producer_id]

    def _ended(self, group_id: str, producer_id: int) -> None:
        writers = self._writers[group_id]
        writers.discard(producer_id)
        if not writers:
            del self._writers[group_id]

    def check(self) -> None:
        """Assert every invariant."""
        assert all(self._groups.values()), "a group without positions is remembered"
        writers: dict[str, set[int]] = {}
        for producer_id, groups in self._pending.items():
            assert groups, "a transaction without positions is remembered"
            for group_id, positions in groups.items():
                assert positions
                writers.setdefault(group_id, set()).add(producer_id)
        assert writers == self._writers


def _no_offset(partition: int, error_code: ErrorCode) -> FetchedOffset:
    return FetchedOffset(partition, NO_OFFSET_COMMITTED, -1, "", error_code)


def _are_gone(topic_ids: Collection[TopicId], is_known: Callable[[TopicId], bool]) -> bool:
    return bool(topic_ids) and not any(map(is_known, topic_ids))


def _is_of_another(committed: TopicId, topic_id: TopicId) -> bool:
    """True if an offset belongs to another topic of the same name."""
    return NO_TOPIC_ID not in (committed, topic_id) and committed != topic_id


def _record(
    group_id: str, topic: TopicOffsets, offset: OffsetToCommit, now: WallMs, expires: int
) -> OffsetCommitRecord:
    value = OffsetCommitValue(
        offset.offset, offset.leader_epoch, offset.metadata, now, expires, topic.topic_id
    )
    return OffsetCommitRecord(group_id, topic.topic, offset.partition, value)
