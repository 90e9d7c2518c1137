"""Requests of one follower connection: an incremental fetch session (KIP-227) over the partitions
followed there, with a back-off for those that failed or are throttled.

A partition is sent again only when its position changed; the leader's session remembers the rest.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from tidemark.kafka.fetch import FetchPartition, FetchTopic
from tidemark.kafka.primitives import ZERO_UUID
from tidemark.model.ids import InstantMs, TopicId

from broker.core.partition import Partition

PartitionKey = tuple[TopicId, int]
NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
EPOCH_MAX: Final = 2**31 - 1
_NOT_BACKING_OFF: Final = InstantMs(-1)


class FetchAsk(NamedTuple):
    """One request: partitions to add to the session or to update in it, and those to remove."""

    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[tuple[str, bytes, list[int]]]


class _Followed:
    """One followed partition; ``asked`` is its position in the leader's session, or None."""

    __slots__ = ("asked", "committed_end", "partition", "retry_at")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.asked: FetchPartition | None = None
        self.retry_at = _NOT_BACKING_OFF
        self.committed_end: int | None = None
        """The leader's high watermark in its last reply; None before the first."""

    @property
    def is_in_sync(self) -> bool:
        """True if the replica has all committed records, as of the last reply (KIP-73's rule)."""
        return self.committed_end is not None and self.partition.log_end >= self.committed_end


class ReplicaFetcher:
    """Fetch requests to one leader.

    Invariant: the leader's session, if there is one, has the partitions with ``asked``.
    """

    def __init__(self, *, partition_bytes_max: int) -> None:
        self._partition_bytes_max = partition_bytes_max
        self._followed: dict[PartitionKey, _Followed] = {}
        self._moved: dict[PartitionKey, None] = {}
        """Partitions to send with the next request."""
        self._backing_off: dict[PartitionKey, None] = {}
        self._forgotten: list[PartitionKey] = []
        self._session_id = NO_SESSION
        self._session_epoch = INITIAL_EPOCH

    def __len__(self) -> int:
        return len(self._followed)

    def __contains__(self, key: PartitionKey) -> bool:
        return key in self._followed

    def partition(self, key: PartitionKey) -> Partition | None:
        """Return the partition followed under this key."""
        followed = self._followed.get(key)
        return None if followed is None else followed.partition

    def add(self, partition: Partition) -> None:
        """Follow a partition from its present position, also after a change of its leader epoch."""
        key = (partition.topic_id, partition.topic_partition.partition)
        followed = self._followed.get(key)
        if followed is None or followed.partition is not partition:
            self.remove(key)
            followed = self._followed[key] = _Followed(partition)
        followed.retry_at = _NOT_BACKING_OFF
        followed.committed_end = None
        self._backing_off.pop(key, None)
        self._moved[key] = None

    def remove(self, key: PartitionKey) -> None:
        """Stop following a partition."""
        followed = self._followed.pop(key, None)
        self._moved.pop(key, None)
        self._backing_off.pop(key, None)
        if followed is not None and followed.asked is not None:
            self._forgotten.append(key)

    def moved(self, key: PartitionKey) -> None:
        """Send a partition's changed position with the next request."""
        if key in self._followed and key not in self._backing_off:
            self._moved[key] = None

    def back_off(self, key: PartitionKey, until: InstantMs) -> None:
        """Leave a partition out after a failure, until ``until`` or until it is added again."""
        followed = self._followed.get(key)
        if followed is None:
            return
        followed.retry_at = until
        self._backing_off[key] = None
        self._moved.pop(key, None)
        if followed.asked is not None:
            followed.asked = None
            self._forgotten.append(key)

    def took(self, key: PartitionKey, high_watermark: int) -> None:
        """Note what a reply had for a partition: the leader's high watermark and perhaps records.
        The partition is sent again only if its position changed.
        """
        followed = self._followed.get(key)
        if followed is None:
            return
        followed.committed_end = high_watermark
        asked, bounds = followed.asked, followed.partition.bounds
        if (
            asked is None
            or bounds.log_end != asked.fetch_offset
            or bounds.log_start != asked.log_start_offset
        ):
            self.moved(key)

    def hold(self, keys: Iterable[PartitionKey], until: InstantMs) -> None:
        """Throttle partitions until ``until``. Those in sync are never left out."""
        for key in keys:
            followed = self._followed.get(key)
            if followed is None or followed.is_in_sync or followed.retry_at >= until:
                continue
            self.back_off(key, until)

    def next_due(self) -> InstantMs | None:
        """Return the earliest time at which a partition's back-off ends."""
        return min((self._followed[key].retry_at for key in self._backing_off), default=None)

    def request(self, now: InstantMs) -> FetchAsk | None:
        """Return the next request; None if no partition may be fetched."""
        for key in [each for each in self._backing_off if self._followed[each].retry_at <= now]:
            del self._backing_off[key]
            self._moved[key] = None
        if len(self._followed) == len(self._backing_off):
            return None  # the session stays; partitions to forget go with the next request
        if self._session_id == NO_SESSION:
            asked = [key for key in self._followed if key not in self._backing_off]
        else:
            asked = list(self._moved)
        self._moved.clear()
        is_new = self._session_id == NO_SESSION
        gone = [] if is_new else [key for key in dict.fromkeys(self._forgotten) if key not in asked]
        self._forgotten.clear()
        topics = self._topics(asked)
        return FetchAsk(self._session_id, self._session_epoch, topics, _by_topic(gone))

    def _topics(self, keys: Iterable[PartitionKey]) -> list[FetchTopic]:
        topics: dict[TopicId, FetchTopic] = {}
        for key in keys:
            followed = self._followed[key]
            followed.asked = self._position(followed.partition)
            topic = topics.get(key[0])
            if topic is None:
                topic = topics[key[0]] = FetchTopic("", key[0], [])
            topic.partitions.append(followed.asked)
        return list(topics.values())

    def _position(self, partition: Partition) -> FetchPartition:
        bounds = partition.bounds
        # Made for each partition of a request: a NamedTuple's own constructor takes twice as long.
        return tuple.__new__(
            FetchPartition,
            (
                partition.topic_partition.partition,
                partition.leader_epoch,
                bounds.log_end,
                bounds.last_epoch,
                bounds.log_start,
                self._partition_bytes_max,
                ZERO_UUID,
                bounds.high_watermark,
                bounds.synced_end,
            ),
        )

    def asked_epoch(self, key: PartitionKey) -> int:
        """Return the leader epoch in the request in flight; -1 if the partition is not in it."""
        followed = self._followed.get(key)
        if followed is None or followed.asked is None:
            return -1
        return followed.asked.current_leader_epoch

    def answered(self, session_id: int) -> None:
        """Continue the session after a reply; ``session_id`` 0: the leader keeps no session."""
        if session_id == NO_SESSION or (self._session_id not in (NO_SESSION, session_id)):
            self._end_session()
            return
        self._session_id = session_id
        epoch = self._session_epoch
        self._session_epoch = 1 if epoch == EPOCH_MAX else epoch + 1

    def failed(self) -> None:
        """Begin a new session, after the connection broke or the leader lost the session."""
        self._end_session()

    def _end_session(self) -> None:
        self._session_id, self._session_epoch = NO_SESSION, INITIAL_EPOCH
        self._forgotten.clear()
        for followed in self._followed.values():
            followed.asked = None


def _by_topic(keys: Iterable[PartitionKey]) -> list[tuple[str, bytes, list[int]]]:
    topics: dict[TopicId, list[int]] = {}
    for topic_id, partition in keys:
        topics.setdefault(topic_id, []).append(partition)
    return [("", topic_id, partitions) for topic_id, partitions in topics.items()]
