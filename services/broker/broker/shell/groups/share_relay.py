"""ShareRelay: relays requests about share groups to the share-coordinators.

Clients connect to brokers only; the share-coordinator that owns the shard of a group id decides.
Retriable answers are retried here for a while, so that a shard that moves costs clients a wait and
not an error.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from tidemark.model.assignment import TopicIdPartitions
from tidemark.model.backoff import Dice
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import TopicId
from tidemark.model.metadata import SHARE
from tidemark.model.topics import SHARE_GROUP_STATE
from tidemark.protocol.shard import CLIENT_ERRORS
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.share_state_client import share_coordinators
from tidemark_wire.v1 import share_pb2 as pb

from broker.shell.groups.share_groups import (
    AlteredOffsets,
    DeletedOffsets,
    DescribedOffsets,
    DescribedShareGroup,
    ListedShareGroup,
    Outcome,
    ShareHeartbeat,
    ShareHeartbeatReply,
    ShareMember,
    ShareTopic,
    StartOffset,
    TopicStartOffsets,
)
from broker.shell.wire_mapping import Caller, write_caller

RELAY_TIMEOUT_S: Final = 10.0
"""Shorter than any client's request timeout: after it a client repeats the request."""
LOOK_UP_TIMEOUT_S: Final = 5.0
"""Time for a look-up of a group's existence, on which requests of other groups wait."""
END_TIMEOUT_S: Final = 1.0
"""Time for the end of a transaction, on which answers about other partitions wait. Its coordinator
repeats the marker.
"""
_DONE: Final = Outcome(ErrorCode.NONE)


class ShareRelay:
    """Relays to the coordinators that ``metadata`` names, over channels that belong to another."""

    def __init__(self, metadata: MetadataCache, channels: ChannelPool, dice: Dice) -> None:
        self._metadata = metadata
        self.client = share_coordinators(metadata, channels, dice=dice)

    @property
    def has_state(self) -> bool:
        """True if the topic with the state of share groups exists: without it no group does."""
        return SHARE_GROUP_STATE in self._metadata.image.topics

    @property
    def has_coordinators(self) -> bool:
        """True if a share-coordinator is live."""
        return any(kind == SHARE for kind, _ in self._metadata.image.coordinators)

    # -- membership

    async def heartbeat(self, caller: Caller, beat: ShareHeartbeat) -> ShareHeartbeatReply:
        """ShareGroupHeartbeat. Raises TidemarkError if no coordinator answers."""
        names = beat.subscribed_topic_names
        request = pb.ShareHeartbeatRequest(
            caller=write_caller(caller),
            group_id=beat.group_id,
            member_id=beat.member_id,
            member_epoch=beat.member_epoch,
            rack_id=beat.rack_id,
            has_subscription=names is not None,
            subscribed_topic_names=names,
            client_host=beat.client_host,
        )
        answer = await self._call("Heartbeat", beat.group_id, request)
        assigned = tuple(
            TopicIdPartitions(TopicId(one.topic_id), tuple(one.partitions))
            for one in answer.assignment
        )
        return ShareHeartbeatReply(
            _outcome(answer),
            answer.member_id if answer.HasField("member_id") else None,
            answer.member_epoch,
            answer.heartbeat_interval_ms,
            assigned if answer.has_assignment else None,
        )

    # -- groups

    async def exists(self, group_id: str) -> bool | None:
        """Return True if there is a share group with this id; None if no coordinator answers."""
        if not self.has_state:
            return False
        request = pb.DescribeShareGroupRequest(group_id=group_id)
        try:
            answer = await self.client.call("DescribeGroup", group_id, request, LOOK_UP_TIMEOUT_S)
        except TidemarkError:
            return None
        found = {int(ErrorCode.NONE): True, int(ErrorCode.GROUP_ID_NOT_FOUND): False}
        return found.get(answer.error_code)

    async def describe(self, caller: Caller, group_id: str) -> DescribedShareGroup:
        """Describe one group."""
        request = pb.DescribeShareGroupRequest(caller=write_caller(caller), group_id=group_id)
        answer = await self._ask("DescribeGroup", group_id, request)
        if isinstance(answer, Outcome):
            return DescribedShareGroup(answer)
        return DescribedShareGroup(
            _DONE,
            answer.state,
            answer.group_epoch,
            answer.assignment_epoch,
            answer.assignor_name,
            tuple(_read_member(one) for one in answer.members),
        )

    async def list_groups(self, caller: Caller, states: Sequence[str]) -> list[ListedShareGroup]:
        """List the groups of every coordinator; without ``states`` those in any state. Raises
        TidemarkError unless all of them answer.
        """
        if not self.has_state:
            return []
        request = pb.ListShareGroupsRequest(caller=write_caller(caller), states=states)
        try:
            answers = await self.client.list_all("ListGroups", request, RELAY_TIMEOUT_S)
        except TidemarkError as failure:
            raise _for_clients(failure) from failure
        for answer in answers:
            if answer.error_code:
                raise TidemarkError(ErrorCode(answer.error_code), answer.error_message)
        return [
            ListedShareGroup(one.group_id, one.state) for answer in answers for one in answer.groups
        ]

    async def delete(self, caller: Caller, group_id: str) -> Outcome:
        """Delete a group without members, with the state of its share-partitions."""
        request = pb.DeleteShareGroupRequest(caller=write_caller(caller), group_id=group_id)
        answer = await self._ask("DeleteGroup", group_id, request)
        return answer if isinstance(answer, Outcome) else _DONE

    # -- transactions

    async def end_transaction(
        self, shard: int, producer_id: int, open_from: int, *, commits: bool
    ) -> Outcome:
        """End a producer's transactions with an epoch below ``open_from`` in one shard."""
        request = pb.EndShareTransactionRequest(
            shard=shard, producer_id=producer_id, open_from=open_from, commit=commits
        )
        try:
            answer = await self.client.call_shard("EndTransaction", shard, request, END_TIMEOUT_S)
        except TidemarkError as failure:
            return Outcome(ErrorCode.COORDINATOR_NOT_AVAILABLE, failure.message)
        return Outcome(ErrorCode(answer.error_code), answer.error_message)

    # -- start offsets

    async def describe_offsets(
        self, caller: Caller, group_id: str, topics: Sequence[ShareTopic] | None
    ) -> DescribedOffsets:
        """Return start offsets; those of all topics of the group if ``topics`` is None."""
        request = pb.DescribeShareOffsetsRequest(
            caller=write_caller(caller),
            group_id=group_id,
            all_topics=topics is None,
            topics=_write_topics(topics or ()),
        )
        answer = await self._ask("DescribeOffsets", group_id, request)
        if isinstance(answer, Outcome):
            return DescribedOffsets(answer)
        return DescribedOffsets(_DONE, tuple(_read_offsets(one) for one in answer.topics))

    async def alter_offsets(
        self, caller: Caller, group_id: str, topics: Sequence[TopicStartOffsets]
    ) -> AlteredOffsets:
        """Begin share-partitions again at these offsets."""
        wire = pb.AlterShareOffsetsRequest
        request = wire(
            caller=write_caller(caller),
            group_id=group_id,
            topics=[
                wire.Topic(
                    topic_id=topic.topic_id,
                    topic=topic.topic,
                    offsets=[
                        wire.Offset(partition=one.partition, start_offset=one.start_offset)
                        for one in topic.offsets
                    ],
                )
                for topic in topics
            ],
        )
        answer = await self._ask("AlterOffsets", group_id, request)
        if isinstance(answer, Outcome):
            return AlteredOffsets(answer, {})
        results = {
            (topic.topic, one.partition): _outcome(one)
            for topic in answer.topics
            for one in topic.partitions
        }
        return AlteredOffsets(_DONE, results)

    async def delete_offsets(
        self, caller: Caller, group_id: str, topics: Sequence[ShareTopic]
    ) -> DeletedOffsets:
        """Delete the state of whole topics."""
        request = pb.DeleteShareOffsetsRequest(
            caller=write_caller(caller), group_id=group_id, topics=_write_topics(topics)
        )
        answer = await self._ask("DeleteOffsets", group_id, request)
        if isinstance(answer, Outcome):
            return DeletedOffsets(answer, {})
        return DeletedOffsets(_DONE, {one.topic: _outcome(one) for one in answer.topics})

    # -- calls

    async def _ask(self, method: str, group_id: str, request: Any) -> Any:
        """Return the response message, or the error for the client."""
        if not self.has_state:
            return Outcome(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
        try:
            answer = await self._call(method, group_id, request)
        except TidemarkError as failure:
            return Outcome(failure.code, failure.message)
        return _outcome(answer) if answer.error_code else answer

    async def _call(self, method: str, group_id: str, request: Any) -> Any:
        if not self.has_coordinators:
            raise TidemarkError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                "no share-coordinator is running; start one, or try again",
            )
        try:
            return await self.client.call(method, group_id, request, RELAY_TIMEOUT_S)
        except TidemarkError as failure:
            raise _for_clients(failure) from failure


def _for_clients(failure: TidemarkError) -> TidemarkError:
    return TidemarkError(CLIENT_ERRORS.get(failure.code, failure.code), failure.message)


def _outcome(answer: Any) -> Outcome:
    code = ErrorCode(answer.error_code)
    message = answer.error_message if answer.HasField("error_message") else None
    return Outcome(CLIENT_ERRORS.get(code, code), message)


def _write_topics(topics: Iterable[ShareTopic]) -> list[pb.ShareTopicPartitions]:
    return [
        pb.ShareTopicPartitions(
            topic_id=one.topic_id, topic=one.topic, partitions=list(one.partitions)
        )
        for one in topics
    ]


def _read_topic(wire: pb.ShareTopicPartitions) -> ShareTopic:
    return ShareTopic(TopicId(wire.topic_id), wire.topic, tuple(wire.partitions))


def _read_member(wire: pb.DescribeShareGroupResponse.Member) -> ShareMember:
    return ShareMember(
        wire.member_id,
        wire.rack_id if wire.HasField("rack_id") else None,
        wire.member_epoch,
        wire.client_id,
        wire.client_host,
        tuple(wire.subscribed_topic_names),
        tuple(_read_topic(one) for one in wire.assignment),
    )


def _read_offsets(wire: pb.DescribeShareOffsetsResponse.Topic) -> TopicStartOffsets:
    return TopicStartOffsets(
        TopicId(wire.topic_id),
        wire.topic,
        tuple(
            StartOffset(
                one.partition, one.start_offset, one.leader_epoch, one.delivery_complete_count
            )
            for one in wire.offsets
        ),
    )
