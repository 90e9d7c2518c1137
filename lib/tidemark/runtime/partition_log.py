"""RemotePartitionLog: one partition of a coordinator's state topic, written and read over gRPC.

It belongs to one owner. Every append carries the owner epoch, so that the partition's leader
refuses it once a later owner has taken over. One append is in flight at a time. After a refusal
that left nothing in the log, the append goes to the next leader. Any other failure of an append
has an unknown outcome, and the log must not be appended to again: drop it, acquire a new owner
epoch and load again.
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from tidemark_wire.v1 import common_pb2, partition_store_pb2_grpc
from tidemark_wire.v1 import partition_store_pb2 as pb

from tidemark.codec.record_batch import iterate_headers
from tidemark.model.backoff import Backoff, Dice, RetryDelays
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.metadata import ClusterImage
from tidemark.model.partition_leader import PartitionLeader, find_leader
from tidemark.model.topics import TopicPartition
from tidemark.runtime.append_call import AppendCall, Stream, UnknownOutcomeError
from tidemark.runtime.channel_pool import (
    CallFailedError,
    ChannelPool,
    call_failures,
)
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.streams import END_OF_STREAM
from tidemark.runtime.telemetry import fields

log = logging.getLogger(__name__)

T = TypeVar("T")
_ALL_IN_SYNC: Final = -1
_EARLIEST: Final = -2
_BACKOFF: Final = Backoff(20, 1_000)
_UNARY_TIMEOUT_S: Final = 5.0
_DEPOSED_PATIENCE_S: Final = 1.0
"""Time to wait for the response of a leader that has been replaced."""

_PASSING: Final = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
"""Errors of an append that wrote nothing; it may succeed once the cluster has settled."""

_READ_PASSING: Final = _PASSING | {
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.CORRUPT_MESSAGE,
}
"""Errors after which an idempotent request is repeated."""


@dataclass(frozen=True, slots=True)
class LogLimits:
    """Limits of time and size."""

    append_timeout_ms: int = 20_000
    """Time in which an append must be committed. Longer than a dead follower stays in the ISR
    (replica.lag.time.max.ms).
    """
    take_over_timeout_ms: int = 30_000
    read_bytes_max: int = 4 * 1024 * 1024
    """Bound on one fetch; its first batch is always returned whole."""
    read_wait_ms_max: int = 500

    def __post_init__(self) -> None:
        assert self.append_timeout_ms > 0, "a time limit is needed"
        assert self.take_over_timeout_ms > 0, "a time limit is needed"
        assert self.read_bytes_max > 0, "a read of nothing never ends"


class RemotePartitionLog:
    """See the module. One task takes over, reads and appends; ``close`` it after use."""

    def __init__(
        self,
        at: TopicPartition,
        metadata: MetadataCache,
        channels: ChannelPool,
        *,
        owner_epoch: int,
        client_id: str = "",
        limits: LogLimits | None = None,
        dice: Dice = random.random,
    ) -> None:
        """``metadata`` shows the partition's leader; ``owner_epoch`` starts at 1."""
        assert owner_epoch > 0, "owner epochs start at 1"
        self.at = at
        self.owner_epoch = owner_epoch
        self._metadata = metadata
        self._channels = channels
        self._client_id = client_id
        self._limits = limits or LogLimits()
        self._dice = dice
        self._appends: AppendCall | None = None
        self._fetches = _Fetches(channels)
        self._is_broken = False
        self._refused = ""

    def close(self) -> None:
        """End the streams. An append in flight may still be written."""
        self._is_broken = True
        self._end_appends()
        self._fetches.end()

    # -- ShardLog

    async def take_over(self) -> int:
        """Write the OWNER record, which fences every earlier owner; return the log's end after it
        (exclusive), up to which everything is committed.

        Writing it twice does no harm, so every failure is retried. Raises TidemarkError:
        TRANSACTION_COORDINATOR_FENCED if there is a later owner, REQUEST_TIMED_OUT if it could not
        be written in time.
        """

        async def attempt(leader: PartitionLeader) -> int:
            request = self._request(leader)
            request.owner_takes_over = True
            answer = await self._within(patience_s, self._exchange(leader, request), "take over")
            return int(answer.base_offset) + 1

        patience_s = self._limits.append_timeout_ms / 1_000
        timeout_s = self._limits.take_over_timeout_ms / 1_000
        work = self._persist(attempt, _READ_PASSING)
        return await self._within(timeout_s, work, "take over", persists=True)

    async def append(self, batches: bytes) -> int:
        """Append whole record batches; return their end offset (exclusive) once they are committed.

        Raises TidemarkError if the append was refused or its outcome is unknown. The log is broken
        in either case.
        """
        assert not self._is_broken, f"{self.at}: an append failed, or the log was closed"
        offset_count = sum(header.last_offset_delta + 1 for _, header in iterate_headers(batches))
        assert offset_count > 0, "an append of no records"

        async def attempt(leader: PartitionLeader) -> int:
            request = self._request(leader)
            request.batches = batches
            answer = await self._exchange(leader, request)
            return int(answer.base_offset) + offset_count

        timeout_s = self._limits.append_timeout_ms / 1_000
        self._is_broken = True  # until it is known to be written
        work = self._persist(attempt, _PASSING)
        end = await self._within(timeout_s, work, "append", persists=True)
        self._is_broken = False
        return end

    def confirm(self) -> None:
        """Return None. An earlier owner may answer from memory until it learns that it is fenced:
        partitions' leaders check epochs of producers and states, whatever such an answer said.
        """

    async def read(self, end: int) -> AsyncGenerator[memoryview, None]:
        """Yield whole record batches, control batches included, from the log's start up to ``end``
        (exclusive), one at a time and in order. Follows the leader without a time limit.

        Raises TidemarkError if a retry cannot help.
        """
        position = await self._persist(self._start, _READ_PASSING)

        async def pull(leader: PartitionLeader) -> bytes:
            return await self._pull(leader, position)

        try:
            while position < end:
                batches = memoryview(await self._persist(pull, _READ_PASSING))
                for at, header in iterate_headers(batches):
                    if header.base_offset >= end:
                        return  # batches below ``end`` have been compacted away
                    if header.last_offset >= position:
                        yield batches[at : at + header.size_bytes]
                        position = header.last_offset + 1
        finally:
            self._fetches.end()

    async def delete_before(self, offset: int) -> None:
        """Delete the records below ``offset``, one attempt at the leader. May overlap with appends.
        Raises TidemarkError.
        """
        leader = self._leader()
        request = pb.DeleteRecordsRequest(
            partition=_wire(self.at, leader), offset=offset, owner_epoch=self.owner_epoch
        )
        channel = await self._channels.channel(leader.grpc_endpoint)
        stub: Any = partition_store_pb2_grpc.PartitionStoreStub(channel)
        try:
            with call_failures(leader.grpc_endpoint):
                response = await stub.DeleteRecords(request, timeout=_UNARY_TIMEOUT_S)
        except CallFailedError as failure:
            raise TidemarkError(ErrorCode.NETWORK_EXCEPTION, str(failure)) from None
        self._check(response.error_code, response.error_message)

    # -- requests to the leader

    async def _within(
        self, timeout_s: float, work: Awaitable[T], what: str, *, persists: bool = False
    ) -> T:
        """Do ``work`` within ``timeout_s``. Raises UnknownOutcomeError REQUEST_TIMED_OUT, with the
        last refusal if ``work`` persists.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await work
        except TimeoutError:
            self._end_appends()
            words = f"{self.at}: {what} was not acknowledged within {timeout_s:g} s"
            if persists and self._refused:
                words += f"; last refused: {self._refused}"
            raise UnknownOutcomeError(ErrorCode.REQUEST_TIMED_OUT, words) from None

    async def _persist(
        self, attempt: Callable[[PartitionLeader], Awaitable[T]], passing: frozenset[ErrorCode]
    ) -> T:
        """Attempt at the leader; repeat at the current leader after a code of ``passing``. Raises
        TidemarkError for other codes.
        """
        delays: RetryDelays | None = None
        self._refused = ""
        while True:
            position = self._metadata.image.position
            try:
                return await attempt(self._leader())
            except TidemarkError as failure:
                if failure.code not in passing:
                    self._end_appends()
                    raise
                self._refused = failure.message
                words = fields(partition=str(self.at), reason=failure.message)
                log.debug("trying again", extra=words)
            delays = delays or RetryDelays(_BACKOFF, self._dice)
            await self._metadata.wait_newer_or(position, delays.next_s())

    async def _while_leading(self, leader: PartitionLeader, work: Awaitable[T]) -> T:
        """Wait for a response of the leader; once the metadata shows another leader, only for
        _DEPOSED_PATIENCE_S. A leader that is paused or cut off may not respond at all. Raises
        TidemarkError NOT_LEADER_OR_FOLLOWER, with an unknown outcome.
        """
        now = asyncio.get_running_loop().time
        patience = asyncio.timeout(None)

        def look(image: ClusterImage) -> None:
            if find_leader(image, self.at) != leader and patience.when() is None:
                patience.reschedule(now() + _DEPOSED_PATIENCE_S)

        try:
            async with patience:
                look(self._metadata.image)
                with self._metadata.watched(look):
                    return await work
        except TimeoutError:
            words = (
                f"{self.at}: {leader.grpc_endpoint} is no longer its leader, and has not answered"
            )
            raise TidemarkError(ErrorCode.NOT_LEADER_OR_FOLLOWER, words) from None

    def _leader(self) -> PartitionLeader:
        leader = find_leader(self._metadata.image, self.at)
        if leader is None:
            raise TidemarkError(ErrorCode.LEADER_NOT_AVAILABLE, f"{self.at}: no leader is known")
        return leader

    def _request(self, leader: PartitionLeader) -> pb.AppendRequest:
        return pb.AppendRequest(
            partition=_wire(self.at, leader),
            current_leader_epoch=leader.leader_epoch,
            acks=_ALL_IN_SYNC,
            timeout_ms=self._limits.append_timeout_ms,
            client_id=self._client_id,
            owner_epoch=self.owner_epoch,
        )

    async def _exchange(
        self, leader: PartitionLeader, request: pb.AppendRequest
    ) -> pb.AppendResponse:
        """Send one append. Raises TidemarkError if it was refused, UnknownOutcomeError if that is
        not certain.
        """
        appends = self._appends
        if appends is None or not appends.is_open_to(leader.grpc_endpoint):
            appends = await self._while_leading(leader, self._open_appends(leader))
        try:
            answer = await self._while_leading(leader, appends.exchange(request))
        except UnknownOutcomeError:
            self._end_appends()
            raise
        except TidemarkError as deposed:
            self._end_appends()
            raise UnknownOutcomeError(ErrorCode.REQUEST_TIMED_OUT, deposed.message) from None
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            return answer
        words = f"{self.at}: {answer.error_message or code.name}"
        if answer.base_offset < 0:
            raise TidemarkError(code, words)
        # The append is in that leader's log, and may be committed or truncated.
        outcome = ErrorCode.REQUEST_TIMED_OUT if code in _PASSING else code
        raise UnknownOutcomeError(outcome, words)

    async def _open_appends(self, leader: PartitionLeader) -> AppendCall:
        """Open a stream to this leader. Raises TidemarkError LEADER_NOT_AVAILABLE; nothing has been
        sent then.
        """
        self._end_appends()
        channel = await self._channels.channel(leader.grpc_endpoint)
        appends = self._appends = AppendCall(channel, leader.grpc_endpoint)
        try:
            await appends.wait_open()
        except CallFailedError as failure:
            self._end_appends()
            raise TidemarkError(ErrorCode.LEADER_NOT_AVAILABLE, str(failure)) from None
        return appends

    def _end_appends(self) -> None:
        if self._appends is not None:
            self._appends.close()
            self._appends = None

    async def _start(self, leader: PartitionLeader) -> int:
        query = pb.ListOffsetsRequest.Query(
            partition=_wire(self.at, leader),
            timestamp_ms=_EARLIEST,
            current_leader_epoch=leader.leader_epoch,
        )
        channel = await self._channels.channel(leader.grpc_endpoint)
        stub: Any = partition_store_pb2_grpc.PartitionStoreStub(channel)
        try:
            with call_failures(leader.grpc_endpoint):
                response = await stub.ListOffsets(
                    pb.ListOffsetsRequest(queries=[query]), timeout=_UNARY_TIMEOUT_S
                )
        except CallFailedError as failure:
            raise TidemarkError(ErrorCode.NETWORK_EXCEPTION, str(failure)) from None
        answer = response.answers[0]
        self._check(answer.error_code, "its log start is unknown")
        return int(answer.offset)

    async def _pull(self, leader: PartitionLeader, position: int) -> bytes:
        limits = self._limits
        request = pb.FetchRequest(
            partition=_wire(self.at, leader),
            current_leader_epoch=leader.leader_epoch,
            fetch_offset=position,
            bytes_max=limits.read_bytes_max,
            bytes_min=1,
            wait_ms_max=limits.read_wait_ms_max,
            client_id=self._client_id,
        )
        wait_s = limits.read_wait_ms_max / 1_000 + limits.append_timeout_ms / 1_000
        try:
            exchange = self._fetches.exchange(leader.grpc_endpoint, request, wait_s)
            answer = await self._while_leading(leader, exchange)
            self._check(answer.error_code, answer.error_message)
        except TidemarkError:
            self._fetches.end()
            raise
        return bytes(answer.batches)

    def _check(self, error_code: int, words: str) -> None:
        code = ErrorCode(error_code)
        if code is not ErrorCode.NONE:
            raise TidemarkError(code, f"{self.at}: {words or code.name}")


class _Fetches:
    """Stream of fetches to the current leader, one at a time."""

    def __init__(self, channels: ChannelPool) -> None:
        self._channels = channels
        self._endpoint = ""
        self._call: Stream | None = None

    def end(self) -> None:
        """End the stream; the next exchange opens another one."""
        if self._call is not None:
            self._call.cancel()
            self._call = None

    async def exchange(
        self, endpoint: str, request: pb.FetchRequest, wait_s: float
    ) -> pb.FetchResponse:
        """Send one fetch; return its response. Raises TidemarkError NETWORK_EXCEPTION,
        REQUEST_TIMED_OUT.
        """
        if self._call is None or self._endpoint != endpoint:
            self.end()
            stub: Any = partition_store_pb2_grpc.PartitionStoreStub(
                await self._channels.channel(endpoint)
            )
            self._endpoint, self._call = endpoint, stub.Fetch()
        try:
            async with asyncio.timeout(wait_s):
                with call_failures(endpoint):
                    await self._call.write(request)
                    answer = await self._call.read()
        except TimeoutError:
            self.end()
            words = f"{endpoint}: no answer within {wait_s:g} s"
            raise TidemarkError(ErrorCode.REQUEST_TIMED_OUT, words) from None
        except CallFailedError as failure:
            self.end()
            raise TidemarkError(ErrorCode.NETWORK_EXCEPTION, str(failure)) from None
        if answer is END_OF_STREAM:
            self.end()
            words = f"{endpoint}: the broker ended the stream"
            raise TidemarkError(ErrorCode.NETWORK_EXCEPTION, words)
        return answer  # type: ignore[no-any-return]  # generated stubs are untyped


def _wire(at: TopicPartition, leader: PartitionLeader) -> common_pb2.TopicPartition:
    return common_pb2.TopicPartition(
        topic=at.topic, topic_id=leader.topic_id, partition=at.partition
    )
