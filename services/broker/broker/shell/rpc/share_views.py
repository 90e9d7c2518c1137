"""SharePartitions: views of the share-partitions of this broker; they change nothing."""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final

import grpc.aio
from tidemark.model.authorization import Operation, group_resource, topic_resource
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs, Offset, TopicId
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark_wire.v1 import share_pb2, share_pb2_grpc

from broker.core.share.acknowledgement import Answer
from broker.core.share.inspection import RangeView, view
from broker.core.share.sessions import PartitionKey
from broker.shell.facts import BrokerFacts
from broker.shell.groups.letter_problems import shown_problem
from broker.shell.rpc.streams import caller_of
from broker.shell.share.inspection import ShareInspector, WindowView

SERVICE_NAME: Final = "tidemark_wire.v1.SharePartitions"
RANGES_MAX: Final = 1_000
"""Ranges in one answer; a window has at most some ten thousand."""
PARTITIONS_MAX: Final = 10_000
_ALL: Final = -1
_HIDDEN: Final = Answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no DESCRIBE on the topic")
_END_OF_OFFSETS: Final = Offset(2**63 - 1)

Context = grpc.aio.ServicerContext[Any, Any]
Lag = share_pb2.DescribeShareLagsResponse.Lag


class SharePartitionViews(share_pb2_grpc.SharePartitionsServicer):
    """One broker's service."""

    def __init__(
        self, facts: BrokerFacts, metadata: MetadataCache, inspector: ShareInspector
    ) -> None:
        self._facts = facts
        self._metadata = metadata
        self._inspector = inspector

    async def DescribeLags(  # noqa: N802 - the name in the proto
        self, request: share_pb2.DescribeShareLagsRequest, context: Context
    ) -> share_pb2.DescribeShareLagsResponse:
        """Return counts of records by state, of the partitions of a group that are led here. A
        topic that the caller may not describe has an error, as in DescribeShareGroupOffsets.
        """
        refused = self._refused(request.group_id, context)
        keys = _keys(request.topics)
        if refused is None and len(keys) > PARTITIONS_MAX:
            message = f"{len(keys)} partitions in one request; at most {PARTITIONS_MAX}"
            refused = Answer(ErrorCode.INVALID_REQUEST, message)
        if refused is not None:
            return share_pb2.DescribeShareLagsResponse(
                error_code=refused.error_code, error_message=refused.message
            )
        permitted = [key for key in keys if self._hidden(key[0], context) is None]
        views = await self._inspector.views(request.group_id, permitted)
        lags = [self._lag(key, views.get(key, _HIDDEN)) for key in keys]
        image, requester = self._metadata.image, caller_of(context).requester
        for lag in lags:
            lag.dead_letter_problem = shown_problem(
                lag.dead_letter_problem,
                request.group_id,
                image,
                self._facts.authorizer,
                requester,
            )
        return share_pb2.DescribeShareLagsResponse(lags=lags)

    async def Browse(  # noqa: N802 - the name in the proto
        self, request: share_pb2.BrowseShareRequest, context: Context
    ) -> share_pb2.BrowseShareResponse:
        """Return ranges of a window."""
        found = (
            self._refused(request.group_id, context)
            or self._hidden(TopicId(request.topic_id), context)
            or _refused_span(request)
        )
        if found is None:
            key = (TopicId(request.topic_id), request.partition)
            one = (await self._inspector.views(request.group_id, [key]))[key]
            if isinstance(one, WindowView):
                return self._ranges(request, one)
            found = one
        return share_pb2.BrowseShareResponse(
            error_code=found.error_code, error_message=found.message
        )

    def _refused(self, group_id: str, context: Context) -> Answer | None:
        if not group_id:
            return Answer(ErrorCode.INVALID_REQUEST, "the group id is empty")
        if self._facts.authorizer.authorize(
            caller_of(context).requester, Operation.DESCRIBE, group_resource(group_id)
        ):
            return None
        return Answer(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no DESCRIBE on the group")

    def _hidden(self, topic_id: TopicId, context: Context) -> Answer | None:
        """Return the refusal of a topic that the caller may not describe."""
        topic = self._metadata.image.topics_by_id.get(topic_id)
        if topic is None or self._facts.authorizer.authorize(
            caller_of(context).requester, Operation.DESCRIBE, topic_resource(topic.name)
        ):
            return None
        return _HIDDEN

    def _lag(self, key: PartitionKey, found: WindowView | Answer) -> Lag:
        if isinstance(found, Answer):
            code, message = found
            return Lag(topic_id=key[0], partition=key[1], error_code=code, error_message=message)
        counted = self._inspector.counts(found)
        return Lag(
            topic_id=key[0],
            partition=key[1],
            start_offset=counted.start if found.has_start else -1,
            end_offset=counted.end,
            available=counted.available,
            acquired=counted.acquired,
            acknowledged=counted.acknowledged,
            archiving=counted.archiving,
            archived=counted.archived,
            behind=counted.behind,
            oldest_age_ms=self._inspector.oldest_age_ms(found),
            dead_letter_problem=found.letter_problem,
        )

    def _ranges(
        self, request: share_pb2.BrowseShareRequest, found: WindowView
    ) -> share_pb2.BrowseShareResponse:
        last = _END_OF_OFFSETS if request.last_offset == _ALL else Offset(request.last_offset)
        limit = min(request.ranges_max or RANGES_MAX, RANGES_MAX)
        ranges = list(islice(view(found.window, Offset(request.first_offset), last), limit + 1))
        following = ranges[limit].first_offset if len(ranges) > limit else -1
        now = self._facts.clock.now_ms()
        return share_pb2.BrowseShareResponse(
            start_offset=found.window.start if found.has_start else -1,
            end_offset=found.window.end,
            ranges=[_range(one, now) for one in ranges[:limit]],
            next_offset=following,
        )


def _keys(topics: Sequence[share_pb2.ShareTopicPartitions]) -> list[PartitionKey]:
    named = [(TopicId(one.topic_id), number) for one in topics for number in one.partitions]
    return list(dict.fromkeys(named))


def _refused_span(request: share_pb2.BrowseShareRequest) -> Answer | None:
    first, last = request.first_offset, request.last_offset
    if first < 0 or (last != _ALL and last < first) or request.ranges_max < 0:
        return Answer(
            ErrorCode.INVALID_REQUEST,
            f"offsets {first}-{last}, at most {request.ranges_max} ranges: give a first offset of 0"
            " or more, a last one that is not before it, or -1, and no negative number of ranges",
        )
    return None


def _range(one: RangeView, now: InstantMs) -> share_pb2.BrowseShareResponse.Range:
    found = share_pb2.BrowseShareResponse.Range(
        first_offset=one.first_offset,
        last_offset=one.last_offset,
        delivery_state=int(one.state),
        delivery_count=one.delivery_count,
        member_id=one.member,
    )
    if one.lock_ends_at is not None:
        found.lock_left_ms = max(0, one.lock_ends_at - now)
    if one.next_state is not None:
        found.next_state = int(one.next_state)
    if one.ready_at is not None:
        found.delay_left_ms = max(0, one.ready_at - now)
    if one.transaction is not None:
        found.producer_id, found.producer_epoch = one.transaction
    return found


def registration(service: SharePartitionViews) -> Callable[[Any], None]:
    """Return the function with which ``make_grpc_server`` registers the service."""

    def register(server: Any) -> None:
        add = share_pb2_grpc.add_SharePartitionsServicer_to_server
        add(service, server)  # type: ignore[no-untyped-call]

    return register
