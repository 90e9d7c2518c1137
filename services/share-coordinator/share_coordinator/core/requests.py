"""Requests to a shard of share groups and its replies: plain values, without protocol versions.

A request is about one group, so that it goes to one shard. Topics come with name and id, both
resolved by the shell. A reply's ``error_code`` is that of the whole request.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tidemark.model.assignment import TopicIdPartitions
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import Offset, ProducerId, TopicId
from tidemark.model.share_state import (
    ReadState,
    ReadStateSummary,
    StateRead,
    StateResult,
    StateSummary,
    TransactionKey,
    WriteState,
)

# ---------------------------------------------------------------- membership


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupHeartbeat:
    """A member joins, stays or leaves. None: as before."""

    group_id: str
    member_id: str
    member_epoch: int
    """0 joins, -1 leaves."""
    rack_id: str | None = None
    subscribed_topic_names: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupHeartbeatReply:
    """``assignment`` is None where it is as before."""

    error_code: ErrorCode
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: tuple[TopicIdPartitions, ...] | None = None


@dataclass(frozen=True, slots=True)
class GroupIdReserved:
    """Result of ``ReserveGroupId``: an error code of the group coordinator, or NONE."""

    group_id: str
    error_code: ErrorCode
    error_message: str | None = None


# ---------------------------------------------------------------- state of share-partitions


@dataclass(frozen=True, slots=True)
class AskStates:
    """Reads, writes and summaries of share-partitions of one group. All that one request writes is
    one append. The reply has an answer for each, in order.
    """

    group_id: str
    requests: tuple[ReadState | WriteState | ReadStateSummary, ...]


@dataclass(frozen=True, slots=True)
class AskStatesReply:
    """One answer for each request."""

    answers: tuple[StateRead | StateResult | StateSummary, ...]


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """A producer's transactions with an epoch below ``open_from`` have ended, the last of them with
    this outcome. An input of every shard that takes part; may be repeated.
    """

    group_id: ClassVar[str] = ""
    producer_id: ProducerId
    open_from: int
    commits: bool


@dataclass(frozen=True, slots=True)
class EndTransactionReply:
    """Comes once the end is committed."""

    error_code: ErrorCode = ErrorCode.NONE


# ---------------------------------------------------------------- administration


@dataclass(frozen=True, slots=True)
class DescribeShareGroup:
    """One group of ShareGroupDescribe."""

    group_id: str


class TopicPartitions(NamedTuple):
    """Some partitions of one topic."""

    topic_id: TopicId
    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    """A member as ShareGroupDescribe shows it."""

    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    assignment: tuple[TopicPartitions, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeShareGroupReply:
    """A group that does not exist is Dead, with GROUP_ID_NOT_FOUND."""

    error_code: ErrorCode
    error_message: str | None = None
    group_id: str
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: tuple[DescribedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class ListGroupIds:
    """List the ids of all groups of this shard, in no order. Asked of every shard."""

    group_id: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class ListGroupIdsReply:
    """Reply to ListGroupIds. Some of them may be no groups yet, or no longer."""

    group_ids: tuple[str, ...]
    error_code: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class ListShareGroups:
    """List some groups: a shard may have too many for one decision. The filter is compared without
    case; an empty one lets all pass. Groups that the shard does not have are left out.
    """

    group_id: ClassVar[str] = ""
    group_ids: tuple[str, ...]
    states: tuple[str, ...] = ()


class ListedShareGroup(NamedTuple):
    """A group in the list; its type and protocol type are ``share``."""

    group_id: str
    state: str


@dataclass(frozen=True, slots=True)
class ListShareGroupsReply:
    """Reply to ListShareGroups, in its order."""

    groups: tuple[ListedShareGroup, ...]
    error_code: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class DeleteShareGroup:
    """A group without members, and the state of all its share-partitions."""

    group_id: str


@dataclass(frozen=True, slots=True)
class DeleteShareGroupReply:
    """NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, UNSTABLE_OFFSET_COMMIT (an open transaction holds
    records) or done.
    """

    error_code: ErrorCode
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class DescribeOffsets:
    """Start offsets; of all topics where ``topics`` is None."""

    group_id: str
    topics: tuple[TopicPartitions, ...] | None


class DescribedOffset(NamedTuple):
    """``start_offset`` is -1 where the share-partition has not been read yet; lag is the
    number of offsets from there on, less ``delivery_complete_count`` (-1: unknown).
    """

    partition: int
    start_offset: Offset
    leader_epoch: int
    delivery_complete_count: int


class DescribedTopic(NamedTuple):
    """Start offsets in one topic."""

    topic_id: TopicId
    topic: str
    offsets: tuple[DescribedOffset, ...]


@dataclass(frozen=True, slots=True)
class DescribeOffsetsReply:
    """GROUP_ID_NOT_FOUND or the offsets."""

    error_code: ErrorCode
    error_message: str | None = None
    topics: tuple[DescribedTopic, ...] = ()


class NewOffset(NamedTuple):
    """New start offset of a share-partition."""

    partition: int
    start_offset: Offset


class NewOffsets(NamedTuple):
    """New start offsets in one topic."""

    topic_id: TopicId
    topic: str
    offsets: tuple[NewOffset, ...]


@dataclass(frozen=True, slots=True)
class AlterOffsets:
    """Begin share-partitions again at these offsets: deliveries and their counts are forgotten."""

    group_id: str
    topics: tuple[NewOffsets, ...]


class PartitionResult(NamedTuple):
    """Result of one share-partition."""

    partition: int
    error_code: ErrorCode
    error_message: str | None = None


class TopicResults(NamedTuple):
    """Results in one topic."""

    topic_id: TopicId
    topic: str
    partitions: tuple[PartitionResult, ...]


@dataclass(frozen=True, slots=True)
class AlterOffsetsReply:
    """NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, or a result for each share-partition."""

    error_code: ErrorCode
    error_message: str | None = None
    topics: tuple[TopicResults, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    """Forget the state of these topics: a group that reads one again begins as with a new topic."""

    group_id: str
    topics: tuple[TopicPartitions, ...]
    """Partitions are not looked at: topics go whole."""


class TopicResult(NamedTuple):
    """Result of one topic."""

    topic_id: TopicId
    topic: str
    error_code: ErrorCode
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteOffsetsReply:
    """NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, or a result for each topic."""

    error_code: ErrorCode
    error_message: str | None = None
    topics: tuple[TopicResult, ...] = ()


# ---------------------------------------------------------------- inputs from elsewhere


@dataclass(frozen=True, slots=True)
class TopicsDeleted:
    """These topics were deleted, and with them the state of their share-partitions. An input of
    every shard.
    """

    group_id: ClassVar[str] = ""
    topic_ids: frozenset[TopicId]


@dataclass(frozen=True, slots=True)
class LagsMeasured:
    """Records that are to be delivered yet in share-partitions of a group, for its assignor."""

    group_id: str
    lags: Mapping[tuple[TopicId, int], int]


@dataclass(frozen=True, slots=True)
class LeadersNotified:
    """All leaders have answered to ``TransactionsEnded`` of this transaction."""

    transaction: TransactionKey


Request = (
    ShareGroupHeartbeat
    | GroupIdReserved
    | AskStates
    | EndTransaction
    | DescribeShareGroup
    | ListGroupIds
    | ListShareGroups
    | DeleteShareGroup
    | DescribeOffsets
    | AlterOffsets
    | DeleteOffsets
    | TopicsDeleted
    | LagsMeasured
    | LeadersNotified
)

Reply = (
    ShareGroupHeartbeatReply
    | AskStatesReply
    | EndTransactionReply
    | DescribeShareGroupReply
    | ListGroupIdsReply
    | ListShareGroupsReply
    | DeleteShareGroupReply
    | DescribeOffsetsReply
    | AlterOffsetsReply
    | DeleteOffsetsReply
)
