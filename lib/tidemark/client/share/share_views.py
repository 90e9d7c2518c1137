"""ShareViews: the records in flight of share groups, from the leaders of the partitions, over gRPC.

Views take no locks and change nothing.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import grpc.aio
from tidemark_wire.v1 import common_pb2, share_pb2, share_pb2_grpc

from tidemark.client.config import AdminConfig, with_settings
from tidemark.client.deadline import Deadline
from tidemark.client.errors import ClientError, NotLeaderError, error_for
from tidemark.client.wire.grpc_transport import GrpcTransport, client_error
from tidemark.client.wire.metadata_cache import Leader
from tidemark.client.wire.session import Session, SessionClient
from tidemark.model.backoff import Backoff
from tidemark.model.errors import ErrorCode
from tidemark.model.share_state import DeliveryState
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock


class ShareRange(NamedTuple):
    """Consecutive records of one state, from first to last, inclusive."""

    first_offset: int
    last_offset: int
    state: str
    """State: available, acquired, acknowledged, archiving or archived."""
    delivery_count: int
    member_id: str | None = None
    """Holder of the lock."""
    lock_left_ms: int | None = None
    next_state: str | None = None
    """State once the acknowledgement that is being written is stored."""
    delay_left_ms: int | None = None
    """Time until a released record is delivered again."""
    producer_id: int | None = None
    """Producer whose open transaction the acknowledgement belongs to."""


class ShareWindow(NamedTuple):
    """Records in flight of one share-partition. Those before ``start_offset`` are finished, those
    from ``end_offset`` on were never delivered. ``start_offset`` is None if the group has none yet.
    """

    start_offset: int | None
    end_offset: int
    ranges: tuple[ShareRange, ...]


class ShareLag(NamedTuple):
    """Counts of records of one share-partition, by state, from its start offset on."""

    start_offset: int | None
    end_offset: int
    available: int
    acquired: int
    acknowledged: int
    archiving: int
    archived: int
    behind: int
    """Readable records that were never delivered."""
    oldest_age_ms: int | None
    """Age of the oldest record whose delivery is not complete; None if there is none."""
    dead_letter_problem: str | None = None
    """Reason for which dead letters are not copied to their queue; None if they are."""

    @property
    def lag(self) -> int:
        """Number of records whose delivery is not complete."""
        return self.available + self.acquired + self.archiving + self.behind


class ShareViews(SessionClient):
    """Client for views: ``async with ShareViews("host:9292") as views``. Bootstrap servers are gRPC
    addresses. ``settings`` are fields of AdminConfig by name.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        config: AdminConfig | None = None,
        *,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        self.config = with_settings(config or AdminConfig(), {**settings, "transport": "grpc"})
        self._clock = clock or Clock()
        self._backoff = Backoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms)
        self._session = Session(bootstrap_servers, self.config, self._clock)

    async def browse(
        self,
        group_id: str,
        partition: TopicPartition,
        *,
        first_offset: int = 0,
        last_offset: int | None = None,
    ) -> ShareWindow:
        """Return the records in flight from ``first_offset`` to ``last_offset`` (None: the end),
        inclusive. Raises ClientError.
        """
        ranges: list[ShareRange] = []
        following = first_offset
        while True:
            answer = await self._browse(group_id, partition, following, last_offset)
            ranges += [_range(one) for one in answer.ranges]
            if answer.next_offset < 0:
                return ShareWindow(_known(answer.start_offset), answer.end_offset, tuple(ranges))
            following = answer.next_offset

    async def lag(self, group_id: str, partition: TopicPartition) -> ShareLag:
        """Return the counts of one share-partition. Raises ClientError."""
        at = TopicPartition(*partition)

        async def ask(stub: Any, leader: Leader, timeout_s: float) -> Any:
            topic = share_pb2.ShareTopicPartitions(
                topic_id=leader.topic_id, partitions=[at.partition]
            )
            request = share_pb2.DescribeShareLagsRequest(
                caller=self._caller(), group_id=group_id, topics=[topic]
            )
            answer = await stub.DescribeLags(request, timeout=timeout_s)
            return answer if answer.error_code else answer.lags[0]

        answer = await self._at_leader(at, ask, f"counting records of {at} in group {group_id!r}")
        return ShareLag(
            _known(answer.start_offset),
            answer.end_offset,
            answer.available,
            answer.acquired,
            answer.acknowledged,
            answer.archiving,
            answer.archived,
            answer.behind,
            _known(answer.oldest_age_ms),
            answer.dead_letter_problem or None,
        )

    # -- internals

    async def _browse(
        self, group_id: str, partition: TopicPartition, first: int, last: int | None
    ) -> Any:
        at = TopicPartition(*partition)

        async def ask(stub: Any, leader: Leader, timeout_s: float) -> Any:
            request = share_pb2.BrowseShareRequest(
                caller=self._caller(),
                group_id=group_id,
                topic_id=leader.topic_id,
                partition=at.partition,
                first_offset=first,
                last_offset=-1 if last is None else last,
            )
            return await stub.Browse(request, timeout=timeout_s)

        return await self._at_leader(at, ask, f"browsing {at} in group {group_id!r}")

    async def _at_leader(
        self,
        at: TopicPartition,
        ask: Callable[[Any, Leader, float], Awaitable[Any]],
        doing: str,
    ) -> Any:
        """Return the answer of the partition's leader, wherever it moves. Raises ClientError."""
        deadline = Deadline.after(self.config.default_api_timeout_ms, self._clock.now_ms())
        failures = 0
        while True:
            try:
                answer = await self._once(at, ask)
                if not answer.error_code:
                    return answer
                detail = answer.error_message or None
                problem = error_for(answer.error_code, f"{doing} failed", detail=detail)
            except ClientError as failed:
                problem = failed
            if self._session.cluster.gives_up(problem.code, deadline):
                raise problem
            self._session.cache.mark_stale()
            failures += 1
            await asyncio.sleep(self._backoff.delay_ms(failures, random.random()) / 1_000)

    async def _once(
        self, at: TopicPartition, ask: Callable[[Any, Leader, float], Awaitable[Any]]
    ) -> Any:
        timeout_ms = self.config.request_timeout_ms
        view = await self._session.cluster.topic(
            at.topic, Deadline.after(timeout_ms, self._clock.now_ms())
        )
        if not 0 <= at.partition < len(view.partitions):
            what = f"{at} does not exist"
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what)
        leader = self._session.cache.leader(at)
        if leader is None:
            raise NotLeaderError(ErrorCode.LEADER_NOT_AVAILABLE, f"{at} has no leader")
        transport = self._session.transport
        assert isinstance(transport, GrpcTransport), "a session over gRPC"
        stub = share_pb2_grpc.SharePartitionsStub(transport.channel(leader.broker_id))
        try:
            return await ask(stub, leader, timeout_ms / 1_000)
        except grpc.aio.AioRpcError as problem:
            raise client_error(problem, transport.where(leader.broker_id)) from None

    def _caller(self) -> common_pb2.Caller:
        return common_pb2.Caller(client_id=self.config.client_id)


def _range(wire: share_pb2.BrowseShareResponse.Range) -> ShareRange:
    def given(name: str) -> Any:
        return getattr(wire, name) if wire.HasField(name) else None

    following = given("next_state")
    return ShareRange(
        wire.first_offset,
        wire.last_offset,
        _state(wire.delivery_state),
        wire.delivery_count,
        given("member_id"),
        given("lock_left_ms"),
        None if following is None else _state(following),
        given("delay_left_ms"),
        given("producer_id"),
    )


def _state(number: int) -> str:
    return DeliveryState(number).name.lower()


def _known(number: int) -> int | None:
    return number if number >= 0 else None
