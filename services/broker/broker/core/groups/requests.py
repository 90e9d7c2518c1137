"""What the group coordinator is asked and what it answers: plain values, versions hidden.

A request is of one group, so that it goes to one shard. Topics come with name and id: the shell
knows both, or refuses. Times are milliseconds; a reply's ``error_code`` is of the whole request.
"""

from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from tidemark.codec.group_records_consumer import TopicIdPartitions as TopicIdPartitions
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import TopicId

from broker.core.groups.settings import GroupSettings as GroupSettings
from broker.core.groups.settings import Topics as Topics

NO_GENERATION: Final = -1
"""Of an offset commit: by nobody in particular; only where the group has no members."""


UNKNOWN_MEMBER: Final = ""
"""The id of a member that does not know its own yet."""


# ---------------------------------------------------------------- membership, classic protocol


class JoinProtocol(NamedTuple):
    """One way of assigning that a member knows: its name and the member's subscription in it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """Become a member of the next generation. Answered when that generation begins."""

    group_id: str
    member_id: str
    """Empty: a new member."""
    new_member_id: str
    """What the member will be called if it has no id yet: chance comes from outside."""
    group_instance_id: str | None = None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: tuple[JoinProtocol, ...]
    """In the member's order of preference."""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    reason: str = ""
    member_id_required: bool = True
    """From version 4: a new dynamic member is told its id and joins again (KIP-394)."""
    can_skip_assignment: bool = True
    """From version 9: the leader may be told to keep the assignment there is (KIP-814)."""


class JoinedMember(NamedTuple):
    """What the leader is told of each member."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupReply:
    """Only the leader's has members."""

    error_code: ErrorCode
    member_id: str = ""
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class MemberAssignment(NamedTuple):
    """What the leader gives to a member; the bytes are the clients' own affair."""

    member_id: str
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """Ask for this member's assignment; the leader's brings everybody's."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[MemberAssignment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupReply:
    """The assignment is the member's own."""

    error_code: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """I am alive, in this generation (classic protocol)."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """REBALANCE_IN_PROGRESS means: join again."""

    error_code: ErrorCode


class LeavingMember(NamedTuple):
    """Who leaves: by member id, or a static member by its instance id with an empty member id."""

    member_id: str
    group_instance_id: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    """One member, or several at once (KIP-345)."""

    group_id: str
    members: tuple[LeavingMember, ...]


class LeftMember(NamedTuple):
    """What came of one leaving member."""

    member_id: str
    group_instance_id: str | None
    error_code: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupReply:
    """One result for each member, in their order, unless the whole is refused."""

    error_code: ErrorCode
    members: tuple[LeftMember, ...] = ()


# ---------------------------------------------------------------- offsets


class OffsetToCommit(NamedTuple):
    """One partition's position: the offset of the next record to read."""

    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class TopicOffsets(NamedTuple):
    """The positions in one topic."""

    topic: str
    topic_id: TopicId
    offsets: tuple[OffsetToCommit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    """Remember these positions of the group."""

    group_id: str
    topics: tuple[TopicOffsets, ...]
    member_id: str = ""
    generation_or_epoch: int = NO_GENERATION
    """Generation (classic) or member epoch (KIP-848)."""
    group_instance_id: str | None = None
    retention_ms: int = -1
    """Of versions 2 to 4: the offset's own time to live; -1 is the broker's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommit:
    """Remember these positions once the producer's transaction commits (KIP-98, KIP-447)."""

    group_id: str
    topics: tuple[TopicOffsets, ...]
    transactional_id: str
    producer_id: int
    producer_epoch: int
    member_id: str = ""
    generation_id: int = NO_GENERATION
    group_instance_id: str | None = None
    transactions_v2: bool = False
    """The log's leader adds the partition to the transaction, instead of verifying it (KIP-890)."""
    abortable_known: bool = False  # TRANSACTION_ABORTABLE; else INVALID_TXN_STATE says the same


class PartitionError(NamedTuple):
    """What came of one partition."""

    partition: int
    error_code: ErrorCode


class TopicErrors(NamedTuple):
    """What came of one topic's partitions, in the order of the request."""

    topic: str
    topic_id: TopicId
    partitions: tuple[PartitionError, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitReply:
    """``error_code`` stands for every partition; without one ``topics`` has all of them."""

    error_code: ErrorCode
    topics: tuple[TopicErrors, ...] = ()


class TopicPartitions(NamedTuple):
    """Some partitions of one topic."""

    topic: str
    topic_id: TopicId
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetch:
    """Where the group is."""

    group_id: str
    topics: tuple[TopicPartitions, ...] | None
    """None: wherever it has a position."""
    require_stable: bool = False
    """Answer UNSTABLE_OFFSET_COMMIT where a transaction is about to move it (KIP-447)."""
    member_id: str | None = None
    member_epoch: int = -1


class FetchedOffset(NamedTuple):
    """One position; offset -1 where there is none."""

    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    error_code: ErrorCode


class FetchedTopic(NamedTuple):
    """The positions in one topic; its id is zero where the position was committed without one."""

    topic: str
    topic_id: TopicId
    offsets: tuple[FetchedOffset, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchReply:
    """All topics asked for, unless the whole is refused."""

    error_code: ErrorCode
    topics: tuple[FetchedTopic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDelete:
    """Forget positions in topics that no member reads (KIP-496)."""

    group_id: str
    topics: tuple[TopicPartitions, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteReply:
    """Without an error of the whole, ``topics`` has every partition asked for."""

    error_code: ErrorCode
    topics: tuple[TopicErrors, ...] = ()


class DeletedTopic(NamedTuple):
    """A topic that is no more; another may have its name."""

    topic: str
    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class TopicsDeleted:
    """An input of every shard: these topics are no more, nor are positions in them."""

    group_id: ClassVar[str] = ""
    topics: tuple[DeletedTopic, ...]


@dataclass(frozen=True, slots=True)
class TopicsDeletedReply:
    """Positions forgotten."""

    error_code: ErrorCode = ErrorCode.NONE


# ---------------------------------------------------------------- administration


@dataclass(frozen=True, slots=True)
class DescribeGroup:
    """One group of DescribeGroups."""

    group_id: str


class DescribedMember(NamedTuple):
    """A member as DescribeGroups shows it; its bytes only while the group is stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroupReply:
    """A group that does not exist is Dead."""

    error_code: ErrorCode
    error_message: str | None = None
    group_id: str
    state: str = ""
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class ListGroups:
    """Asked of every shard. Filters are compared without case; an empty one lets all pass."""

    group_id: ClassVar[str] = ""
    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


class ListedGroup(NamedTuple):
    """A line of ListGroups; the type is ``classic`` or ``consumer``."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


@dataclass(frozen=True, slots=True)
class ListGroupsReply:
    """The groups of one shard."""

    groups: tuple[ListedGroup, ...]
    error_code: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """One group of DeleteGroups: it and its offsets go, if it has no members."""

    group_id: str


@dataclass(frozen=True, slots=True)
class DeleteGroupReply:
    """NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND or done."""

    error_code: ErrorCode


# ---------------------------------------------------------------- membership, KIP-848


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeat:
    """All that a member of a KIP-848 group ever says. None: as before."""

    group_id: str
    member_id: str
    new_member_id: str
    """What the member will be called if ``member_id`` is empty (version 0)."""
    member_epoch: int
    """0 joins, -1 leaves, -2 leaves for a while (static members)."""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    topic_partitions: tuple[TopicIdPartitions, ...] | None = None
    """What the member owns."""
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeatReply:
    """``assignment`` is None where it is as before."""

    error_code: ErrorCode
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: tuple[TopicIdPartitions, ...] | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescribe:
    """One group of ConsumerGroupDescribe."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConsumer:
    """A member as ConsumerGroupDescribe shows it."""

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
    member_type: int = 1
    """0 speaks the classic protocol, 1 is a consumer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescribeReply:
    """GROUP_ID_NOT_FOUND for a group of another kind, or none."""

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
