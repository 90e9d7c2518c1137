"""Requests and replies of the group coordinator, independent of API versions.

Each request concerns one group, and so goes to one shard. The shell resolves topic names and ids,
or refuses the request. Times are milliseconds. A reply's ``error_code`` concerns the whole request.
"""

from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from tidemark.model.assignment import TopicIdPartitions as TopicIdPartitions
from tidemark.model.authorization import Requester
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import TopicId
from tidemark.model.topics import Topics as Topics

from broker.core.groups.settings import GroupSettings as GroupSettings

NO_GENERATION: Final = -1
"""Generation of an offset commit that names no member; accepted only while the group is empty."""
UNKNOWN_MEMBER: Final = ""
"""Member id of a member that has not received one yet."""

# -- membership, classic protocol


class JoinProtocol(NamedTuple):
    """One partition assignment protocol of a member, with the member's subscription in it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """Join the next generation. Answered when that generation begins."""

    group_id: str
    member_id: str
    new_member_id: str
    """Id for a member that has none yet; generated outside, since the core has no randomness."""
    group_instance_id: str | None = None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: tuple[JoinProtocol, ...]
    """Protocols in the member's order of preference."""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    reason: str = ""
    member_id_required: bool = True
    """True from version 4 on: a new dynamic member receives its id and joins again (KIP-394)."""
    can_skip_assignment: bool = True
    """True from version 9 on: the leader can be made to keep the assignment (KIP-814)."""


class JoinedMember(NamedTuple):
    """One member in the leader's JoinGroup reply."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupReply:
    """Reply to JoinGroup; only the leader's contains members."""

    error_code: ErrorCode
    member_id: str = ""
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class MemberAssignment(NamedTuple):
    """Assignment of one member by the leader; the bytes are opaque to the broker."""

    member_id: str
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """Request this member's assignment; the leader's request contains those of all members."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[MemberAssignment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupReply:
    """Reply to SyncGroup, with the member's own assignment."""

    error_code: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Keep the member's session alive in this generation (classic protocol)."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """Reply to Heartbeat; on REBALANCE_IN_PROGRESS the member joins again."""

    error_code: ErrorCode


class LeavingMember(NamedTuple):
    """One leaving member: a member id, or a static member's instance id with an empty member id."""

    member_id: str
    group_instance_id: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    """Remove one or more members (KIP-345)."""

    group_id: str
    members: tuple[LeavingMember, ...]


class LeftMember(NamedTuple):
    """Result for one leaving member."""

    member_id: str
    group_instance_id: str | None
    error_code: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupReply:
    """Reply to LeaveGroup: a result for each member in order, unless ``error_code`` is set."""

    error_code: ErrorCode
    members: tuple[LeftMember, ...] = ()


# -- offsets


class OffsetToCommit(NamedTuple):
    """Offset to commit in one partition: that of the next record to read."""

    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class TopicOffsets(NamedTuple):
    """Offsets to commit in one topic."""

    topic: str
    topic_id: TopicId
    offsets: tuple[OffsetToCommit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    """Commit these offsets of the group."""

    group_id: str
    topics: tuple[TopicOffsets, ...]
    member_id: str = ""
    generation_or_epoch: int = NO_GENERATION
    """Generation (classic) or member epoch (KIP-848)."""
    group_instance_id: str | None = None
    retention_ms: int = -1
    """Retention of these offsets in versions 2 to 4; -1 is the broker's setting."""
    knows_epochs: bool = True  # False below version 9: members of KIP-848 may not use those


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommit:
    """Commit these offsets when the producer's transaction commits (KIP-98, KIP-447)."""

    group_id: str
    topics: tuple[TopicOffsets, ...]
    transactional_id: str
    producer_id: int
    producer_epoch: int
    member_id: str = ""
    generation_id: int = NO_GENERATION
    group_instance_id: str | None = None
    transactions_v2: bool = False
    """Let the partition's leader add it to the transaction, rather than verify it (KIP-890)."""
    abortable_known: bool = False
    """True if the client accepts TRANSACTION_ABORTABLE; others receive INVALID_TXN_STATE."""


class PartitionError(NamedTuple):
    """Result for one partition."""

    partition: int
    error_code: ErrorCode


class TopicErrors(NamedTuple):
    """Results for one topic's partitions, in request order."""

    topic: str
    topic_id: TopicId
    partitions: tuple[PartitionError, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitReply:
    """Reply to OffsetCommit; ``error_code`` covers all partitions, ``topics`` each of them."""

    error_code: ErrorCode
    topics: tuple[TopicErrors, ...] = ()


class TopicPartitions(NamedTuple):
    """Partitions of one topic."""

    topic: str
    topic_id: TopicId
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetch:
    """Return the group's committed offsets."""

    group_id: str
    topics: tuple[TopicPartitions, ...] | None
    """Partitions to return; None: all that have a committed offset."""
    require_stable: bool = False
    """Answer UNSTABLE_OFFSET_COMMIT for partitions with pending offsets (KIP-447)."""
    member_id: str | None = None
    member_epoch: int = -1


class FetchedOffset(NamedTuple):
    """Committed offset in one partition; -1 if there is none."""

    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    error_code: ErrorCode


class FetchedTopic(NamedTuple):
    """Committed offsets in one topic; its id is zero if they were committed without one."""

    topic: str
    topic_id: TopicId
    offsets: tuple[FetchedOffset, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchReply:
    """Reply to OffsetFetch with all requested topics, unless ``error_code`` is set."""

    error_code: ErrorCode
    topics: tuple[FetchedTopic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDelete:
    """Delete the offsets in topics that no member reads (KIP-496)."""

    group_id: str
    topics: tuple[TopicPartitions, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteReply:
    """Reply to OffsetDelete with every requested partition, unless ``error_code`` is set."""

    error_code: ErrorCode
    topics: tuple[TopicErrors, ...] = ()


class DeletedTopic(NamedTuple):
    """A deleted topic; a newer topic may have its name."""

    topic: str
    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class TopicsDeleted:
    """Notification to every shard that these topics, and therefore their offsets, are deleted."""

    group_id: ClassVar[str] = ""
    topics: tuple[DeletedTopic, ...]


@dataclass(frozen=True, slots=True)
class TopicsDeletedReply:
    """Reply to TopicsDeleted."""

    error_code: ErrorCode = ErrorCode.NONE


# -- administration


@dataclass(frozen=True, slots=True)
class DescribeGroup:
    """Describe one group of a DescribeGroups request."""

    group_id: str


class DescribedMember(NamedTuple):
    """Member as shown by DescribeGroups, with its bytes only while the group is stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroupReply:
    """Reply to DescribeGroup; a group that does not exist is Dead."""

    error_code: ErrorCode
    error_message: str | None = None
    group_id: str
    state: str = ""
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class ListGroups:
    """List the groups of each shard. Filters ignore case; an empty one matches all."""

    group_id: ClassVar[str] = ""
    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


class ListedGroup(NamedTuple):
    """One group in a ListGroups reply; the type is ``classic`` or ``consumer``."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


@dataclass(frozen=True, slots=True)
class ListGroupsReply:
    """Reply to ListGroups: the groups of one shard."""

    groups: tuple[ListedGroup, ...]
    error_code: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Delete one group of a DeleteGroups request with its offsets, if it has no members."""

    group_id: str


@dataclass(frozen=True, slots=True)
class DeleteGroupReply:
    """Reply to DeleteGroup: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND or NONE."""

    error_code: ErrorCode


# -- membership, KIP-848


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeat:
    """Heartbeat, the only request of a KIP-848 member. None: the value is unchanged."""

    group_id: str
    member_id: str
    new_member_id: str
    """Id for the member if ``member_id`` is empty (version 0)."""
    member_epoch: int
    """Member epoch: 0 joins, -1 leaves, -2 leaves temporarily (static members)."""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    topic_partitions: tuple[TopicIdPartitions, ...] | None = None
    """Partitions that the member owns."""
    client_id: str = ""
    client_host: str = ""
    requester: Requester
    """Whose permissions count when patterns are matched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeatReply:
    """Reply to a heartbeat; ``assignment`` is None if it is unchanged."""

    error_code: ErrorCode
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: tuple[TopicIdPartitions, ...] | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescribe:
    """Describe one group of a ConsumerGroupDescribe request."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConsumer:
    """Member as shown by ConsumerGroupDescribe."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    assignment: tuple[TopicPartitions, ...]
    target_assignment: tuple[TopicPartitions, ...]
    member_type: int = 1  # KIP-848; 0 for the classic protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescribeReply:
    """Reply to ConsumerGroupDescribe; GROUP_ID_NOT_FOUND for other groups, or none."""

    error_code: ErrorCode
    error_message: str | None = None
    group_id: str
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: tuple[DescribedConsumer, ...] = ()


GroupRequest = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | TxnOffsetCommit
    | OffsetFetch
    | OffsetDelete
    | TopicsDeleted
    | DescribeGroup
    | ListGroups
    | DeleteGroup
    | ConsumerGroupHeartbeat
    | ConsumerGroupDescribe
)

GroupReply = (
    JoinGroupReply
    | SyncGroupReply
    | HeartbeatReply
    | LeaveGroupReply
    | OffsetCommitReply
    | OffsetFetchReply
    | OffsetDeleteReply
    | TopicsDeletedReply
    | DescribeGroupReply
    | ListGroupsReply
    | DeleteGroupReply
    | ConsumerGroupHeartbeatReply
    | ConsumerGroupDescribeReply
)
