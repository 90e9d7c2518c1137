"""Offsets: where every group is in every partition, and where it will be once transactions commit.

Everything here changes by ``replay`` and ``replay_end`` alone. What was committed in a transaction
that is still open is pending: nobody is told of it, except that the position is not stable
(KIP-447).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from tidemark.codec.group_records import OffsetCommitRecord, OffsetCommitValue
from tidemark.codec.varint import INT64_MAX
from tidemark.machine.shard import Writer
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID, TopicId, WallMs
from tidemark.model.topics import TopicPartition

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
    """A position, and the place of its record among all replayed: a later one wins, even where an
    earlier one only counts from now because its transaction ended late.
    """

    value: OffsetCommitValue
    place: int


Positions = dict[TopicPartition, Committed]
IsSubscribed = Callable[[str], bool]


class Offsets:
    """The offsets of all groups of a shard."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._groups: dict[str, Positions] = {}
        self._pending: dict[int, dict[str, Positions]] = {}
        """By producer id, of open transactions."""
        self._writers: dict[str, set[int]] = {}
        """By group: which producer ids have something pending."""
        self._replayed = 0

    # -- looking

    def group_ids(self) -> Iterable[str]:
        """Groups that have a position, or are about to."""
        return self._groups.keys() | self._writers.keys()

    @property
    def count(self) -> int:
        """Of positions, pending ones apart."""
        return sum(len(positions) for positions in self._groups.values())

    def knows(self, group_id: str) -> bool:
        """Whether a group has a position, or is about to."""
        return group_id in self._groups or group_id in self._writers

    def position(self, group_id: str, partition: TopicPartition) -> OffsetCommitValue | None:
        """Where a group is."""
        committed = self._groups.get(group_id, {}).get(partition)
        return committed.value if committed is not None else None

    def is_all(self, group_id: str, tombstones: Sequence[OffsetCommitRecord]) -> bool:
        """Whether these tombstones, each of another position, leave a group nothing."""
        return group_id not in self._writers and len(tombstones) == len(
            self._groups.get(group_id, ())
        )

    def is_stable(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether no open transaction is about to move the group there."""
        return not any(
            partition in self._pending[producer_id][group_id]
            for producer_id in self._writers.get(group_id, ())
        )

    def fetch(self, request: OffsetFetch) -> OffsetFetchReply:
        """Positions in all partitions asked for, or in all that there are."""
        asked = self._all(request.group_id) if request.topics is None else request.topics
        topics = tuple(
            FetchedTopic(
                topic.topic,
                topic.topic_id,
                tuple(self._fetched(request, topic, number) for number in topic.partitions),
            )
            for topic in asked
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

    # -- deciding

    def commit(
        self,
        group_id: str,
        topics: Iterable[TopicOffsets],
        now: WallMs,
        retention_ms: int = -1,
    ) -> tuple[list[OffsetCommitRecord], OffsetCommitReply]:
        """One record for each position, unless its metadata is too large."""
        records: list[OffsetCommitRecord] = []
        answered = []
        expires = min(now + retention_ms, INT64_MAX) if retention_ms >= 0 else -1
        for topic in topics:
            errors = []
            for offset in topic.offsets:
                error_code = self._commit_refusal(offset)
                errors.append(PartitionError(offset.partition, error_code))
                if error_code is ErrorCode.NONE:
                    records.append(_record(group_id, topic, offset, now, expires))
            answered.append(TopicErrors(topic.topic, topic.topic_id, tuple(errors)))
        return records, OffsetCommitReply(error_code=ErrorCode.NONE, topics=tuple(answered))

    def _commit_refusal(self, offset: OffsetToCommit) -> ErrorCode:
        if len(offset.metadata) > self._settings.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    def delete(
        self, request: OffsetDelete, is_subscribed: IsSubscribed
    ) -> tuple[list[OffsetCommitRecord], OffsetDeleteReply]:
        """Tombstones for positions in topics that no member reads."""
        records: list[OffsetCommitRecord] = []
        answered = []
        for topic in request.topics:
            error_code = ErrorCode.NONE
            if is_subscribed(topic.topic):
                error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                there = (TopicPartition(topic.topic, number) for number in topic.partitions)
                records += self._tombstones(request.group_id, there)
            errors = tuple(PartitionError(number, error_code) for number in topic.partitions)
            answered.append(TopicErrors(topic.topic, topic.topic_id, errors))
        return records, OffsetDeleteReply(error_code=ErrorCode.NONE, topics=tuple(answered))

    def delete_all(self, group_id: str) -> list[OffsetCommitRecord]:
        """Tombstones for all positions of a group, pending ones too."""
        return self._tombstones(group_id, self._partitions(group_id))

    def delete_topics(self, topics: Iterable[DeletedTopic]) -> list[OffsetCommitRecord]:
        """Tombstones for the positions of all groups in topics that are no more."""
        gone = {topic.topic: topic.topic_id for topic in topics}
        records: list[OffsetCommitRecord] = []
        for group_id in sorted(self.group_ids()):
            there = (
                one
                for one in self._partitions(group_id)
                if one.topic in gone and not self._is_of_newer(group_id, one, gone[one.topic])
            )
            records += self._tombstones(group_id, there)
        return records

    def delete_unknown(self, is_known: Callable[[TopicId], bool]) -> list[OffsetCommitRecord]:
        """Tombstones for the positions of all groups whose topic ids are of no topic that exists.
        A position without an id stays.
        """
        records: list[OffsetCommitRecord] = []
        for group_id in sorted(self.group_ids()):
            there = (
                one
                for one in self._partitions(group_id)
                if _are_gone(self._topic_ids(group_id, one), is_known)
            )
            records += self._tombstones(group_id, there)
        return records

    def _topic_ids(self, group_id: str, partition: TopicPartition) -> set[TopicId]:
        """Ids of the topics that a position, and the pending ones in its place, are of."""
        found = [self._groups.get(group_id, {}).get(partition)]
        for producer_id in self._writers.get(group_id, ()):
            found.append(self._pending[producer_id][group_id].get(partition))
        return {one.value.topic_id for one in found if one is not None} - {NO_TOPIC_ID}

    def _is_of_newer(self, group_id: str, partition: TopicPartition, gone: TopicId) -> bool:
        """Whether the position is in another topic that has the name of one that is gone."""
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
        """Tombstones for positions that have outlived their retention (KIP-211): it counts from
        when the group became empty, where that is known, else from the commit. A position that a
        member may still want, or that a transaction is about to move, stays.
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
        there = set(self._groups.get(group_id, ()))
        for producer_id in self._writers.get(group_id, ()):
            there |= self._pending[producer_id][group_id].keys()
        return sorted(there)

    def _tombstones(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> list[OffsetCommitRecord]:
        return [
            OffsetCommitRecord(group_id, partition.topic, partition.partition, None)
            for partition in partitions
            if self.position(group_id, partition) is not None
            or not self.is_stable(group_id, partition)
        ]

    # -- replaying

    def replay(self, record: OffsetCommitRecord, writer: Writer | None) -> None:
        """A position counts from now; in a transaction it is pending. A tombstone ends both."""
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
        """A producer's transaction ended: its pending positions count now, or never."""
        for group_id, positions in self._pending.pop(writer.producer_id, {}).items():
            self._ended(group_id, writer.producer_id)
            if commits:
                self._publish(group_id, positions)

    def _publish(self, group_id: str, positions: Positions) -> None:
        if not positions:
            return
        current = self._groups.setdefault(group_id, {})
        for partition, committed in positions.items():
            known = current.get(partition)
            if known is None or known.place < committed.place:
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


def _is_of_another(committed: TopicId, asked: TopicId) -> bool:
    """Whether a position is of an earlier topic of the same name."""
    return NO_TOPIC_ID not in (committed, asked) and committed != asked


def _record(
    group_id: str, topic: TopicOffsets, offset: OffsetToCommit, now: WallMs, expires: int
) -> OffsetCommitRecord:
    value = OffsetCommitValue(
        offset.offset, offset.leader_epoch, offset.metadata, now, expires, topic.topic_id
    )
    return OffsetCommitRecord(group_id, topic.topic, offset.partition, value)
