"""ShareStateClient: reads and writes the state of share-partitions at the share-coordinators.

Each call is about one group, whose state is in one shard. A call whose response was lost may be
made twice; writes allow for that, because a state's start offset and delivery counts only rise.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from tidemark_wire.v1 import share_pb2_grpc

from tidemark.model.backoff import Dice
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.metadata import SHARE
from tidemark.model.share_state import (
    ReadState,
    ReadStateSummary,
    SharePartitionKey,
    StateRead,
    StateResult,
    StateSummary,
    WriteState,
)
from tidemark.runtime import share_state_wire as wire
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.coordinator_client import CoordinatorClient, ImageDirectory
from tidemark.runtime.metadata_cache import MetadataCache

READS_MAX: Final = 32
"""States that one call reads. A state may have 20,000 batches, and the limit of a message holds for
all states of a response.
"""
_STREAMS: Final = {"WriteStates": "StreamWrites"}
"""Every acknowledgement waits for a write."""


class _OfSharePartition(Protocol):
    @property
    def key(self) -> SharePartitionKey: ...


class _Refusal(Protocol):
    """Answer that may be an error and nothing else."""

    def __init__(
        self, key: SharePartitionKey, error_code: ErrorCode, *, error_message: str | None
    ) -> None: ...


AskedT = TypeVar("AskedT", bound=_OfSharePartition)
AnswerT = TypeVar("AnswerT", bound=_Refusal)


class ShareStateClient:
    """Concurrent calls over the channels of one pool, which its creator closes."""

    def __init__(self, client: CoordinatorClient) -> None:
        """``client`` makes stubs of the service ShareCoordinator; see ``share_coordinators``."""
        self._client = client

    async def read(
        self, group_id: str, reads: Sequence[ReadState], timeout_s: float
    ) -> list[StateRead]:
        """Read states of share-partitions of one group, for the leader of their partitions.

        All methods return an answer for each request, in order, and raise nothing: if the
        coordinator did not answer, every answer has the error (COORDINATOR_NOT_AVAILABLE,
        COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR; REQUEST_TIMED_OUT after which a write may
        still take effect).
        """

        parts = (reads[at : at + READS_MAX] for at in range(0, len(reads), READS_MAX))
        async with asyncio.TaskGroup() as group:
            calls = [
                group.create_task(self._read(group_id, part, timeout_s), name="read-states")
                for part in parts
            ]
        return [answer for call in calls for answer in call.result()]

    async def _read(
        self, group_id: str, reads: Sequence[ReadState], timeout_s: float
    ) -> list[StateRead]:
        async def call() -> list[StateRead]:
            request = wire.write_reads(group_id, reads)
            response = await self._client.call("ReadStates", group_id, request, timeout_s)
            return wire.read_read_answers(_keys(reads), response)

        return await _answered(call, reads, StateRead)

    async def write(
        self, group_id: str, writes: Sequence[WriteState], timeout_s: float
    ) -> list[StateResult]:
        """Write changes of share-partitions of one group: those accepted are one append."""
        try:  # as _answered does, with fewer calls: acknowledgements wait for it
            request = wire.write_writes(group_id, writes)
            response = await self._client.call("WriteStates", group_id, request, timeout_s)
            return wire.read_write_answers(_keys(writes), response)
        except TidemarkError as failure:
            return _refusals(failure, writes, StateResult)

    async def summaries(
        self, group_id: str, summaries: Sequence[ReadStateSummary], timeout_s: float
    ) -> list[StateSummary]:
        """Read epochs, start offsets and counts of share-partitions of one group."""

        async def call() -> list[StateSummary]:
            request = wire.write_summaries(group_id, summaries)
            response = await self._client.call("ReadStateSummaries", group_id, request, timeout_s)
            return wire.read_summary_answers(_keys(summaries), response)

        return await _answered(call, summaries, StateSummary)


def share_coordinators(
    metadata: MetadataCache, channels: ChannelPool, *, dice: Dice
) -> CoordinatorClient:
    """Return a client of the share-coordinators that the metadata shows."""
    stub: Callable[[Any], Any] = share_pb2_grpc.ShareCoordinatorStub
    directory = ImageDirectory(metadata, SHARE)
    return CoordinatorClient(directory, channels, stub, streams=_STREAMS, dice=dice)


async def _answered(
    call: Callable[[], Awaitable[list[AnswerT]]],
    asked: Sequence[AskedT],
    refusal: type[AnswerT],
) -> list[AnswerT]:
    """Return the answers of ``call``, or for each request the TidemarkError that it raised."""
    try:
        return await call()
    except TidemarkError as failure:
        return _refusals(failure, asked, refusal)


def _refusals(
    failure: TidemarkError, asked: Sequence[AskedT], refusal: type[AnswerT]
) -> list[AnswerT]:
    message = failure.message or None
    return [refusal(one.key, failure.code, error_message=message) for one in asked]


def _keys(asked: Sequence[_OfSharePartition]) -> list[SharePartitionKey]:
    return [one.key for one in asked]
