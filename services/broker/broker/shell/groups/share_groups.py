"""Share groups as brokers exchange them with clients and with the share-coordinators."""

from typing import NamedTuple

from tidemark.model.assignment import TopicIdPartitions
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import TopicId


class Outcome(NamedTuple):
    """Result of a request, or of one part of it."""

    error_code: ErrorCode
    error_message: str | None = None


class ShareHeartbeat(NamedTuple):
    """Heartbeat of one member. None: the value is unchanged."""

    group_id: str
    member_id: str
    member_epoch: int
    """Member epoch: 0 joins, -1 leaves."""
    rack_id: str | None
    subscribed_topic_names: tuple[str, ...] | None
    client_host: str


class ShareHeartbeatReply(NamedTuple):
    """Reply to a heartbeat; ``assignment`` is None if it is unchanged."""

    outcome: Outcome
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: tuple[TopicIdPartitions, ...] | None = None


class ShareTopic(NamedTuple):
    """Some partitions of a topic."""

    topic_id: TopicId
    topic: str
    partitions: tuple[int, ...] = ()


class ShareMember(NamedTuple):
    """Member as ShareGroupDescribe shows it."""

    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    assignment: tuple[ShareTopic, ...]


class DescribedShareGroup(NamedTuple):
    """Group as ShareGroupDescribe shows it."""

    outcome: Outcome
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: tuple[ShareMember, ...] = ()


class ListedShareGroup(NamedTuple):
    """Group in a list."""

    group_id: str
    state: str


class StartOffset(NamedTuple):
    """Start offset of a share-partition; -1 until a member has read the partition."""

    partition: int
    start_offset: int
    leader_epoch: int = 0
    delivery_complete_count: int = -1
    """Number of offsets from ``start_offset`` on that need no delivery; -1: unknown."""


class TopicStartOffsets(NamedTuple):
    """Start offsets in one topic."""

    topic_id: TopicId
    topic: str
    offsets: tuple[StartOffset, ...]


class DescribedOffsets(NamedTuple):
    """Start offsets of a group."""

    outcome: Outcome
    topics: tuple[TopicStartOffsets, ...] = ()


class AlteredOffsets(NamedTuple):
    """Outcome of each share-partition, by topic name and partition, unless ``outcome`` is an
    error.
    """

    outcome: Outcome
    partitions: dict[tuple[str, int], Outcome]


class DeletedOffsets(NamedTuple):
    """Outcome of each topic, by name, unless ``outcome`` is an error."""

    outcome: Outcome
    topics: dict[str, Outcome]
