"""Metadata of the cluster as brokers last reported it. Pure: no I/O, no clock.

Each response replaces the cached state, with two exceptions. A leader with an older epoch of the
same topic is ignored (KIP-320), because a broker with old metadata must not redirect the client to
a previous leader. A known topic is dropped only after brokers have reported it as unknown for
``unknown_grace_ms``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tidemark.client.config import Address
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID
from tidemark.model.topics import TopicPartition


@dataclass(frozen=True, slots=True)
class BrokerView:
    """One live broker. ``address`` is a Kafka or gRPC address, as the transport's."""

    broker_id: int
    address: Address
    rack: str | None = None


class PartitionView(NamedTuple):
    """One partition; ``leader`` is -1 if there is none."""

    partition: int
    leader: int
    leader_epoch: int = -1
    error_code: int = 0
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic; ``partitions`` is indexed by partition number, and may be empty with an error."""

    topic: str
    topic_id: bytes = NO_TOPIC_ID
    error_code: int = 0
    partitions: tuple[PartitionView, ...] = ()
    is_internal: bool = False

    @property
    def led(self) -> tuple[int, ...]:
        """Numbers of the partitions that have a leader."""
        return tuple(view.partition for view in self.partitions if view.leader >= 0)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One broker's response."""

    brokers: Mapping[int, BrokerView] = field(default_factory=dict)
    topics: Mapping[str, TopicView] = field(default_factory=dict)
    cluster_id: str | None = None
    controller_id: int = -1


class Leader(NamedTuple):
    """Leader of a partition, and the id of its topic."""

    broker_id: int
    leader_epoch: int
    topic_id: bytes


class MetadataCache:
    """Cached metadata. ``version`` rises with each response, so that callers can detect one."""

    def __init__(self, *, age_ms_max: float, unknown_grace_ms: float = 0) -> None:
        self.version = 0
        self.cluster = ClusterView()
        self._age_ms_max = age_ms_max
        self._unknown_grace_ms = unknown_grace_ms
        self._unknown_since: dict[str, float] = {}
        self._answered_at: float | None = None
        self._wanted: dict[str, None] = {}
        self._stale = False

    @property
    def wanted(self) -> tuple[str, ...]:
        """Topics in use."""
        return tuple(self._wanted)

    def want(self, topics: Iterable[str]) -> bool:
        """Keep these topics fresh; return True if one of them was not in use."""
        new = [topic for topic in topics if topic not in self._wanted]
        self._wanted.update(dict.fromkeys(new))
        return bool(new)

    def unwant(self, topic: str) -> None:
        """Stop keeping the topic fresh."""
        self._wanted.pop(topic, None)

    def mark_stale(self) -> None:
        """Request metadata before the cached state is used again: a response contradicted it."""
        self._stale = True

    def is_stale(self, now: float) -> bool:
        """True if the cache is empty, marked stale, or too old."""
        return (
            self._stale or self._answered_at is None or now >= self._answered_at + self._age_ms_max
        )

    def on_answer(self, answer: ClusterView, now: float) -> None:
        """Store a broker's response."""
        self._stale = False
        topics = {name: self._newer(view, now) for name, view in answer.topics.items()}
        self.cluster = replace(answer, topics={**self.cluster.topics, **topics})
        self.version += 1
        self._answered_at = now

    def topic(self, topic: str) -> TopicView | None:
        """Return the topic if it is known and has no error."""
        view = self.cluster.topics.get(topic)
        return view if view is not None and view.error_code == 0 and view.partitions else None

    def is_doubtful(self, topic: str) -> bool:
        """True if the last response did not know a topic that brokers knew before."""
        return topic in self._unknown_since

    def topic_error(self, topic: str) -> ErrorCode:
        """Return the error that prevents the use of a topic; NONE if there is none."""
        view = self.cluster.topics.get(topic)
        if view is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if view.error_code:
            return ErrorCode(view.error_code)
        return ErrorCode.NONE if view.partitions else ErrorCode.LEADER_NOT_AVAILABLE

    def leader(self, partition: TopicPartition) -> Leader | None:
        """Return the partition's leader; None if there is none or its broker is not alive."""
        view = self.topic(partition.topic)
        if view is None or not 0 <= partition.partition < len(view.partitions):
            return None
        known = view.partitions[partition.partition]
        if known.leader < 0 or known.leader not in self.cluster.brokers:
            return None
        return Leader(known.leader, known.leader_epoch, view.topic_id)

    def _newer(self, view: TopicView, now: float) -> TopicView:
        known = self.cluster.topics.get(view.topic)
        if view.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._unknown_since.pop(view.topic, None)
        elif known is not None and known.partitions:
            since = self._unknown_since.setdefault(view.topic, now)
            if now < since + self._unknown_grace_ms:
                self._stale = True
                return known
            del self._unknown_since[view.topic]
        if known is None or known.topic_id != view.topic_id or not known.partitions:
            return view
        partitions = tuple(
            known.partitions[new.partition]
            if new.partition < len(known.partitions)
            and -1 < new.leader_epoch < known.partitions[new.partition].leader_epoch
            else new
            for new in view.partitions
        )
        return replace(view, partitions=partitions)
