"""Wire to model and back: the only module that reads the fields of the coordinator's messages.

States of share-partitions are read and written in ``tidemark.runtime.share_state_wire``, as brokers
do it too. Readers raise TidemarkError INVALID_REQUEST for a message that is invalid by itself.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol, TypeVar

from tidemark.model.assignment import TopicIdPartitions, by_topic, listed
from tidemark.model.authorization import ANONYMOUS, Requester
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import Offset, ProducerId, TopicId
from tidemark.model.share_state import SharePartitionKey, StateRead, StateResult, StateSummary
from tidemark.runtime import share_state_wire as state_wire
from tidemark.runtime.coordinator.paging import Page
from tidemark.runtime.share_state_wire import read_topic_id
from tidemark_wire.v1 import common_pb2
from tidemark_wire.v1 import share_pb2 as pb

from share_coordinator.core import requests as core
from share_coordinator.core.effects import TransactionsEnded

OPEN_FROM_MAX: Final = 2**15
"""One above the greatest producer epoch."""


class OfGroup(Protocol):
    """Request about one group."""

    group_id: str


class FromCaller(Protocol):
    """Request that names its caller."""

    @property
    def caller(self) -> common_pb2.Caller:
        """Principal and client of the request."""
        ...


class AboutGroup(OfGroup, FromCaller, Protocol):
    """Request about one group that names its caller."""


class _Refusable(Protocol):
    """Response that may be an error and nothing else."""

    def __init__(self, *, error_code: int, error_message: str) -> None: ...


RefusableT = TypeVar("RefusableT", bound=_Refusable)


def read_requester(request: FromCaller) -> Requester:
    """The client on whose behalf the request is sent."""
    return Requester(request.caller.principal or ANONYMOUS, request.caller.host)


def group_named(request: OfGroup) -> str:
    """Group id of a request."""
    return request.group_id


def refusal_of(response: type[RefusableT], refused: TidemarkError) -> RefusableT:
    """Return a response with the error of the whole request."""
    return response(error_code=refused.code, error_message=refused.message)


# -- members


def read_heartbeat(request: pb.ShareHeartbeatRequest) -> core.ShareGroupHeartbeat:
    """Wire to model."""
    return core.ShareGroupHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        rack_id=request.rack_id if request.HasField("rack_id") else None,
        subscribed_topic_names=(
            tuple(request.subscribed_topic_names) if request.has_subscription else None
        ),
        client_id=request.caller.client_id,
        client_host=request.client_host,
    )


def write_heartbeat(reply: core.ShareGroupHeartbeatReply) -> pb.ShareHeartbeatResponse:
    """Model to wire."""
    return pb.ShareHeartbeatResponse(
        error_code=reply.error_code,
        error_message=reply.error_message,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        has_assignment=reply.assignment is not None,
        assignment=map(_write_partitions, reply.assignment or ()),
    )


# -- administration


def read_describe(request: pb.DescribeShareGroupRequest) -> core.DescribeShareGroup:
    """Wire to model."""
    return core.DescribeShareGroup(request.group_id)


def write_describe(reply: core.DescribeShareGroupReply) -> pb.DescribeShareGroupResponse:
    """Model to wire."""
    return pb.DescribeShareGroupResponse(
        error_code=reply.error_code,
        error_message=reply.error_message,
        state=reply.state,
        group_epoch=reply.group_epoch,
        assignment_epoch=reply.assignment_epoch,
        assignor_name=reply.assignor_name,
        members=map(_write_member, reply.members),
    )


def read_listed_states(request: pb.ListShareGroupsRequest) -> tuple[str, ...]:
    """Wire to model."""
    return tuple(request.states)


def write_group(group: core.ListedShareGroup) -> pb.ListShareGroupsResponse.Group:
    """Model to wire."""
    return pb.ListShareGroupsResponse.Group(group_id=group.group_id, state=group.state)


def write_listed(page: Page) -> pb.ListShareGroupsResponse:
    """Model to wire. The rows are written already."""
    return pb.ListShareGroupsResponse(groups=page.rows, next=page.next)


def write_list_refusal(refused: TidemarkError) -> pb.ListShareGroupsResponse:
    """Model to wire."""
    return refusal_of(pb.ListShareGroupsResponse, refused)


def read_delete(request: pb.DeleteShareGroupRequest) -> core.DeleteShareGroup:
    """Wire to model."""
    return core.DeleteShareGroup(request.group_id)


def write_delete(reply: core.DeleteShareGroupReply) -> pb.DeleteShareGroupResponse:
    """Model to wire."""
    return pb.DeleteShareGroupResponse(
        error_code=reply.error_code, error_message=reply.error_message
    )


def read_describe_offsets(request: pb.DescribeShareOffsetsRequest) -> core.DescribeOffsets:
    """Wire to model."""
    topics = None if request.all_topics else tuple(map(_read_partitions, request.topics))
    return core.DescribeOffsets(request.group_id, topics)


def write_describe_offsets(reply: core.DescribeOffsetsReply) -> pb.DescribeShareOffsetsResponse:
    """Model to wire."""
    return pb.DescribeShareOffsetsResponse(
        error_code=reply.error_code,
        error_message=reply.error_message,
        topics=[
            pb.DescribeShareOffsetsResponse.Topic(
                topic_id=topic.topic_id,
                topic=topic.topic,
                offsets=[
                    pb.DescribeShareOffsetsResponse.Offset(
                        partition=one.partition,
                        start_offset=one.start_offset,
                        leader_epoch=one.leader_epoch,
                        delivery_complete_count=one.delivery_complete_count,
                    )
                    for one in topic.offsets
                ],
            )
            for topic in reply.topics
        ],
    )


def read_alter_offsets(request: pb.AlterShareOffsetsRequest) -> core.AlterOffsets:
    """Wire to model."""
    return core.AlterOffsets(
        request.group_id,
        tuple(
            core.NewOffsets(
                read_topic_id(topic.topic_id),
                topic.topic,
                tuple(
                    core.NewOffset(one.partition, Offset(one.start_offset)) for one in topic.offsets
                ),
            )
            for topic in request.topics
        ),
    )


def write_alter_offsets(reply: core.AlterOffsetsReply) -> pb.AlterShareOffsetsResponse:
    """Model to wire."""
    return pb.AlterShareOffsetsResponse(
        error_code=reply.error_code,
        error_message=reply.error_message,
        topics=[
            pb.AlterShareOffsetsResponse.Topic(
                topic_id=topic.topic_id,
                topic=topic.topic,
                partitions=[
                    pb.AlterShareOffsetsResponse.Result(
                        partition=one.partition,
                        error_code=one.error_code,
                        error_message=one.error_message,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in reply.topics
        ],
    )


def read_delete_offsets(request: pb.DeleteShareOffsetsRequest) -> core.DeleteOffsets:
    """Wire to model."""
    return core.DeleteOffsets(request.group_id, tuple(map(_read_partitions, request.topics)))


def write_delete_offsets(reply: core.DeleteOffsetsReply) -> pb.DeleteShareOffsetsResponse:
    """Model to wire."""
    return pb.DeleteShareOffsetsResponse(
        error_code=reply.error_code,
        error_message=reply.error_message,
        topics=[
            pb.DeleteShareOffsetsResponse.Topic(
                topic_id=topic.topic_id,
                topic=topic.topic,
                error_code=topic.error_code,
                error_message=topic.error_message,
            )
            for topic in reply.topics
        ],
    )


# -- state of share-partitions


def read_state_reads(request: pb.ReadShareStatesRequest) -> core.AskStates:
    """Wire to model."""
    return core.AskStates(request.group_id, state_wire.read_reads(request))


def write_state_reads(reply: core.AskStatesReply) -> pb.ReadShareStatesResponse:
    """Model to wire."""
    return state_wire.write_read_answers(_only(StateRead, reply))


def read_state_writes(request: pb.WriteShareStatesRequest) -> core.AskStates:
    """Wire to model."""
    return core.AskStates(request.group_id, state_wire.read_writes(request))


def write_state_writes(reply: core.AskStatesReply) -> pb.WriteShareStatesResponse:
    """Model to wire."""
    return state_wire.write_write_answers(_only(StateResult, reply))


def read_state_summaries(request: pb.ReadShareStateSummariesRequest) -> core.AskStates:
    """Wire to model."""
    return core.AskStates(request.group_id, state_wire.read_summaries(request))


def write_state_summaries(reply: core.AskStatesReply) -> pb.ReadShareStateSummariesResponse:
    """Model to wire."""
    return state_wire.write_summary_answers(_only(StateSummary, reply))


def read_end_of_transaction(request: pb.EndShareTransactionRequest) -> core.EndTransaction:
    """Wire to model."""
    if request.producer_id < 0 or not 0 < request.open_from <= OPEN_FROM_MAX:
        words = f"an end of producer {request.producer_id} before epoch {request.open_from}"
        raise TidemarkError(ErrorCode.INVALID_REQUEST, words)
    return core.EndTransaction(ProducerId(request.producer_id), request.open_from, request.commit)


def shard_named(request: pb.EndShareTransactionRequest) -> int:
    """Shard of a request."""
    return request.shard


def write_end_answer(refused: TidemarkError | None = None) -> pb.EndShareTransactionResponse:
    """Model to wire."""
    if refused is None:
        return pb.EndShareTransactionResponse()
    return refusal_of(pb.EndShareTransactionResponse, refused)


def read_lags(request: pb.ReportShareLagsRequest) -> core.LagsMeasured:
    """Wire to model."""
    negative = next((one for one in request.lags if one.records < 0), None)
    if negative is not None:
        words = f"a lag of {negative.records} records; a lag is 0 or more"
        raise TidemarkError(ErrorCode.INVALID_REQUEST, words)
    return core.LagsMeasured(
        request.group_id,
        {(read_topic_id(one.topic_id), one.partition): one.records for one in request.lags},
    )


def write_lags_answer(refused: TidemarkError | None = None) -> pb.ReportShareLagsResponse:
    """Model to wire."""
    if refused is None:
        return pb.ReportShareLagsResponse()
    return refusal_of(pb.ReportShareLagsResponse, refused)


# -- calls to brokers


def write_reserve(group_id: str, owner_epoch: int) -> pb.ReserveGroupIdRequest:
    """Model to wire."""
    return pb.ReserveGroupIdRequest(group_id=group_id, owner_epoch=owner_epoch)


def write_release(group_id: str, owner_epoch: int) -> pb.ReleaseGroupIdRequest:
    """Model to wire."""
    return pb.ReleaseGroupIdRequest(group_id=group_id, owner_epoch=owner_epoch)


def read_group_id_answer(
    response: pb.ReserveGroupIdResponse | pb.ReleaseGroupIdResponse,
) -> tuple[ErrorCode, str | None]:
    """Wire to model: error code and message."""
    return ErrorCode(response.error_code), response.error_message or None


def write_drop_windows(keys: Sequence[SharePartitionKey]) -> pb.DropWindowsRequest:
    """Model to wire. All share-partitions are of one group."""
    topics = listed(by_topic((key.topic_id, key.partition) for key in keys))
    return pb.DropWindowsRequest(group_id=keys[0].group_id, topics=map(_write_partitions, topics))


def write_ended(
    ended: TransactionsEnded, keys: Sequence[SharePartitionKey]
) -> pb.ShareTransactionEndedRequest:
    """Model to wire, for the leader of these share-partitions."""
    return pb.ShareTransactionEndedRequest(
        producer_id=ended.transaction.producer_id,
        producer_epoch=ended.transaction.producer_epoch,
        commit=ended.commits,
        groups=[
            pb.ShareTransactionEndedRequest.Group(
                group_id=group_id, topics=map(_write_partitions, listed(by_topic(parts)))
            )
            for group_id, parts in _by_group(keys).items()
        ],
    )


def write_load_windows(keys: Sequence[SharePartitionKey]) -> pb.LoadWindowsRequest:
    """Model to wire, for the leader of these share-partitions."""
    return pb.LoadWindowsRequest(
        groups=[
            pb.LoadWindowsRequest.Group(
                group_id=group_id, topics=map(_write_partitions, listed(by_topic(parts)))
            )
            for group_id, parts in _by_group(keys).items()
        ]
    )


def _by_group(keys: Iterable[SharePartitionKey]) -> dict[str, list[tuple[TopicId, int]]]:
    groups: dict[str, list[tuple[TopicId, int]]] = {}
    for key in keys:
        groups.setdefault(key.group_id, []).append((key.topic_id, key.partition))
    return groups


# -- parts of messages


def _read_partitions(wire: pb.ShareTopicPartitions) -> core.TopicPartitions:
    return core.TopicPartitions(read_topic_id(wire.topic_id), wire.topic, tuple(wire.partitions))


def _write_partitions(
    some: TopicIdPartitions | core.TopicPartitions,
) -> pb.ShareTopicPartitions:
    name = some.topic if isinstance(some, core.TopicPartitions) else ""
    return pb.ShareTopicPartitions(topic_id=some.topic_id, topic=name, partitions=some.partitions)


def _write_member(member: core.DescribedMember) -> pb.DescribeShareGroupResponse.Member:
    return pb.DescribeShareGroupResponse.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.subscribed_topic_names,
        assignment=map(_write_partitions, member.assignment),
    )


AnswerT = TypeVar("AnswerT")


def _only(kind: type[AnswerT], reply: core.AskStatesReply) -> list[AnswerT]:
    answers: list[AnswerT] = [answer for answer in reply.answers if isinstance(answer, kind)]
    assert len(answers) == len(reply.answers), f"an answer that is no {kind.__name__}"
    return answers
