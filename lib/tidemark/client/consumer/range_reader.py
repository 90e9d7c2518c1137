"""Raw batches of an offset range, for readers that decode columns instead of records.

A range [start, end) is read from the current leader, to its end and no further. Control batches are
left out, and under read_committed those of aborted transactions. A log may have holes (compaction,
aborted transactions), so fewer offsets than ``end - start`` are not an error; missing offsets at
the start or the end are, and raise RangeLostError.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from tidemark.client.config import MIB, ClientConfig, over_kafka, with_settings
from tidemark.client.consumer.fetched_chunk import FetchedChunk, ReadOptions
from tidemark.client.consumer.offset_lookup import OffsetLookup
from tidemark.client.consumer.positions import OffsetSpec
from tidemark.client.deadline import Deadline
from tidemark.client.errors import (
    ClientConfigError,
    ClientError,
    CorruptBatchError,
    LogTruncationError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    UnsupportedVersionError,
    error_for,
)
from tidemark.client.wire.metadata_cache import Leader
from tidemark.client.wire.session import Session, SessionClient, grpc_kafka_addresses
from tidemark.client.wire.transport import (
    EpochItem,
    EpochOutcome,
    FetchItem,
    FetchLimits,
    FetchOutcome,
)
from tidemark.codec.record_batch import BatchHeader
from tidemark.codec.records import RecordsError, records_payload
from tidemark.model.backoff import Backoff
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID
from tidemark.model.topics import TopicPartition, topic_id_text
from tidemark.runtime.clock import Clock

_BYTES_MIN: Final = 1
_LOOKUP_MS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeReaderConfig(ClientConfig):
    """Settings of a range reader."""

    max_partition_fetch_bytes: int = 8 * MIB
    """Limit of one fetch; at most two responses are held, one in use and one ahead."""
    fetch_max_wait_ms: int = 500
    check_crcs: bool = True
    default_api_timeout_ms: int = 60_000
    """Time without progress after which a read fails, including retries."""

    def __post_init__(self) -> None:
        ClientConfig.__post_init__(self)
        for name in ("max_partition_fetch_bytes", "fetch_max_wait_ms", "default_api_timeout_ms"):
            if getattr(self, name) <= 0:
                raise ClientConfigError(
                    ErrorCode.INVALID_CONFIG, f"{name} must be above 0, not {getattr(self, name)}"
                )


class RawBatch(NamedTuple):
    """One visible batch; ``records`` holds ``header.record_count`` records, decompressed.

    Only offsets of [start, end) belong to the requested range.
    """

    header: BatchHeader
    records: bytes
    start: int
    end: int

    @property
    def is_cut(self) -> bool:
        """True if some of the batch's offsets are outside the requested range."""
        return self.header.base_offset < self.start or self.header.last_offset >= self.end


class RangeLostError(OffsetOutOfRangeError):
    """Part of the range is missing: deleted, or lost in an unclean election.

    ``position`` is the next offset to read; ``log_start`` and ``log_end`` are the log's bounds.
    """

    hint = "request offsets that the log still holds"

    def __init__(
        self, partition: TopicPartition, wanted: tuple[int, int], bounds: tuple[int, int]
    ) -> None:
        self.position = wanted[0]
        self.log_start, self.log_end = bounds
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offsets {wanted[0]} to {wanted[1]} (exclusive) of {partition} are not all there:"
            f" the log holds {self.log_start} to {self.log_end}",
        )


class RangeReader(SessionClient):
    """Reader of ranges: ``async with RangeReader("host:9092") as reader: async for batch in
    reader.read(...)``.

    ``settings`` are fields of RangeReaderConfig by name. With transport="grpc" bootstrap servers
    are gRPC addresses, which return those of the Kafka listeners.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        config: RangeReaderConfig | None = None,
        *,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        self.config = with_settings(config or RangeReaderConfig(), settings)
        self._clock = clock or Clock()
        self._bootstrap_servers = bootstrap_servers
        self._session = self._session_of(bootstrap_servers)

    async def start(self) -> Self:
        """Start the reader; ``async with`` does this. It connects at the first read."""
        if self.config.transport == "grpc":
            self._session = self._session_of(await self._kafka_addresses())
        return await super().start()

    async def read(
        self,
        partition: TopicPartition,
        start: int,
        end: int,
        *,
        read_committed: bool,
        topic_id: bytes = NO_TOPIC_ID,
    ) -> AsyncIterator[RawBatch]:
        """Yield the batches that hold offsets of [start, end), in order.

        Batches are decompressed as they are taken. With a ``topic_id``, a topic of the same name
        but another id is refused. Raises RangeLostError, CorruptBatchError,
        UnknownTopicOrPartitionError, and any error that persists for default_api_timeout_ms;
        RequestTimedOutError if records are in an open transaction for so long; LogTruncationError
        if an unclean election has replaced records that were read.
        """
        asked = OffsetRange(TopicPartition(*partition), start, end, topic_id)
        cursor = self.open(asked, read_committed=read_committed)
        try:
            while (chunk := await cursor.next()) is not None:
                for batch in raw_batches(asked, chunk):
                    yield batch
        finally:
            cursor.close()

    def open(self, asked: "OffsetRange", *, read_committed: bool) -> "RangeCursor":
        """Return a cursor over the fetches of a range.

        ``close`` it unless it is read to its end.
        """
        limits = FetchLimits(
            self.config.fetch_max_wait_ms,
            _BYTES_MIN,
            self.config.max_partition_fetch_bytes,
            self.config.max_partition_fetch_bytes,
            read_committed,
        )
        return RangeCursor(self._session, self.config, self._clock, asked, limits)

    # -- internals

    def _session_of(self, addresses: str | Sequence[str]) -> Session:
        return Session(addresses, over_kafka(self.config), self._clock)

    async def _kafka_addresses(self) -> list[str]:
        over_grpc = Session(self._bootstrap_servers, self.config, self._clock)
        await over_grpc.start()
        try:
            return await grpc_kafka_addresses(over_grpc)
        finally:
            await over_grpc.close()


class OffsetRange(NamedTuple):
    """Offsets [start, end) of one partition, with the topic's id."""

    partition: TopicPartition
    start: int
    end: int
    topic_id: bytes = NO_TOPIC_ID


def raw_batches(asked: OffsetRange, chunk: FetchedChunk) -> Iterator[RawBatch]:
    """Yield the visible batches of one fetch within the range. Raises CorruptBatchError."""
    while (batch := chunk.next_raw()) is not None:
        header, view = batch
        if header.base_offset >= asked.end:
            return
        if view is None or header.last_offset < asked.start:
            continue
        try:
            yield RawBatch(header, records_payload(view, header), asked.start, asked.end)
        except RecordsError as problem:
            raise CorruptBatchError(
                ErrorCode.CORRUPT_MESSAGE,
                f"the batch of offsets {header.base_offset} to {header.last_offset} of"
                f" {asked.partition} cannot be read: {problem}",
            ) from None


_Fetched = FetchedChunk | ClientError | None


class RangeCursor:
    """Cursor over one range: one fetch is in flight while the previous one is used."""

    def __init__(
        self,
        session: Session,
        config: RangeReaderConfig,
        clock: Clock,
        asked: OffsetRange,
        limits: FetchLimits,
    ) -> None:
        self._session = session
        self._config = config
        self._clock = clock
        self._asked = asked
        self._limits = limits
        self._options = ReadOptions(config.check_crcs, limits.read_committed)
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._position = asked.start
        self._epoch = self._validated_epoch = -1
        """Leader epochs of the record before the position, and of the leader whose log has what was
        read; -1: not known.
        """
        self._failures = 0
        self._ahead: asyncio.Future[_Fetched] | None = None
        self._fetching: asyncio.Task[None] | None = None
        session.cache.want([asked.partition.topic])

    async def next(self) -> FetchedChunk | None:
        """Return the next fetch; None at the end of the range. Raises as RangeReader.read."""
        if self._position >= self._asked.end:
            return None
        ahead = self._ahead or self._fetch_ahead()
        fetched = await ahead
        self._ahead = self._fetching = None
        if isinstance(fetched, ClientError):
            raise fetched
        if fetched is None:
            self._position = self._asked.end
            return None
        self._position, self._epoch = fetched.end, fetched.epoch
        if self._position < self._asked.end:
            self._ahead = self._fetch_ahead()
        return fetched

    def close(self) -> None:
        """Stop fetching."""
        self._position = self._asked.end
        if self._fetching is not None:
            self._fetching.cancel()

    # -- internals

    def _fetch_ahead(self) -> "asyncio.Future[_Fetched]":
        future: asyncio.Future[_Fetched] = asyncio.get_running_loop().create_future()
        self._fetching = self._session.spawn(self._fill(future), name="range-fetch")
        return future

    async def _fill(self, future: "asyncio.Future[_Fetched]") -> None:
        """Store a failure as a value: it concerns the reader, not the session's other tasks."""
        fetched: _Fetched
        try:
            fetched = await self._fetched()
        except ClientError as problem:
            fetched = problem
        if not future.done():
            future.set_result(fetched)

    async def _fetched(self) -> FetchedChunk | None:
        deadline = Deadline.after(self._config.default_api_timeout_ms, self._clock.now_ms())
        self._failures = 0
        while True:
            leader = await self._leader(deadline)
            if leader is None or not await self._validated(leader, deadline):
                continue
            item = FetchItem(
                self._asked.partition, leader.topic_id, leader.leader_epoch, self._position
            )
            try:
                outcomes = await self._session.transport.fetch(
                    leader.broker_id, [item], self._limits
                )
            except ClientError as problem:
                await self._on_problem(problem, deadline)
                continue
            for outcome in outcomes:
                if outcome.error_code:
                    await self._on_error(outcome, leader, deadline)
                elif outcome.records:
                    return self._chunk(outcome)
                elif await self._is_at_end(outcome, deadline):
                    return None

    async def _leader(self, deadline: Deadline) -> Leader | None:
        """Return the leader; None after a delay if there is none."""
        topic, partition = self._asked.partition
        view = await self._session.cluster.topic(topic, deadline)
        wanted = self._asked.topic_id
        if NO_TOPIC_ID not in (wanted, view.topic_id) and view.topic_id != wanted:
            problem = error_for(
                ErrorCode.UNKNOWN_TOPIC_ID,
                f"topic {topic!r} was deleted and created again:"
                f" its id is {topic_id_text(view.topic_id)}, no longer {topic_id_text(wanted)}",
            )
            await self._on_problem(problem, deadline, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return None
        if partition >= len(view.partitions):
            # It may have been added after the metadata was fetched.
            problem = error_for(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{self._asked.partition} does not exist:"
                f" the topic has {len(view.partitions)} partitions",
            )
            await self._on_problem(problem, deadline)
            return None
        leader = self._session.cache.leader(self._asked.partition)
        if leader is None:
            problem = error_for(
                ErrorCode.LEADER_NOT_AVAILABLE,
                f"{self._asked.partition} has no leader to read from",
            )
            await self._on_problem(problem, deadline)
        return leader

    async def _validated(self, leader: Leader, deadline: Deadline) -> bool:
        """Compare what was read with the log of a new leader (KIP-320). Returns False, after a
        delay, if it is not known. Raises LogTruncationError.
        """
        if self._epoch < 0 or leader.leader_epoch in (self._validated_epoch, -1):
            self._validated_epoch = leader.leader_epoch
            return True
        partition = self._asked.partition
        item = EpochItem(partition, leader.leader_epoch, self._epoch)
        try:
            (outcome,) = await self._session.transport.epoch_ends(leader.broker_id, [item])
        except UnsupportedVersionError:
            outcome = EpochOutcome(partition, 0, self._epoch, self._position)
        except ClientError as problem:
            await self._on_problem(problem, deadline)
            return False
        if outcome.error_code:
            where = self._session.transport.where(leader.broker_id)
            failed = error_for(outcome.error_code, f"validating {partition} failed", where=where)
            await self._on_problem(failed, deadline)
            return False
        if outcome.epoch < 0 or outcome.end_offset < self._position:
            raise _truncated(item, self._position, outcome)
        self._validated_epoch = leader.leader_epoch
        return True

    async def _on_error(self, outcome: FetchOutcome, leader: Leader, deadline: Deadline) -> None:
        if outcome.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._on_out_of_range(deadline)
            return
        where = self._session.transport.where(leader.broker_id)
        problem = error_for(
            outcome.error_code,
            f"fetching {self._asked.partition} from offset {self._position} failed",
            where=where,
            detail=outcome.message,
        )
        code = problem.code
        if code is ErrorCode.UNKNOWN_TOPIC_ID:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # not known there yet, or deleted
        await self._on_problem(problem, deadline, code)

    async def _on_out_of_range(self, deadline: Deadline) -> None:
        """Raise RangeLostError below the log start; beyond the end, wait for a lagging leader."""
        lost = RangeLostError(
            self._asked.partition, (self._position, self._asked.end), await self._bounds()
        )
        if self._position < lost.log_start or deadline.passed(self._clock.now_ms()):
            raise lost
        await self._wait()

    async def _bounds(self) -> tuple[int, int]:
        partition, session = self._asked.partition, self._session
        lookup = OffsetLookup(session.cluster, session.transport, self._config, self._clock)
        found = [
            await lookup.look_up(
                {partition: spec},
                allowed_ms=_LOOKUP_MS,
                read_committed=self._limits.read_committed,
            )
            for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
        ]
        return found[0][partition].offset, found[1][partition].offset

    async def _is_at_end(self, outcome: FetchOutcome, deadline: Deadline) -> bool:
        """True if an empty fetch means the end of the range, not a lagging leader."""
        read_committed = self._limits.read_committed
        log_end = outcome.last_stable if read_committed else outcome.high_watermark
        if log_end >= self._asked.end:
            return True
        if not deadline.passed(self._clock.now_ms()):
            return False
        if outcome.high_watermark >= self._asked.end:
            raise _unstable(self._asked, self._position, deadline)
        raise RangeLostError(
            self._asked.partition, (self._position, self._asked.end), (outcome.log_start, log_end)
        )

    async def _on_problem(
        self, problem: ClientError, deadline: Deadline, code: ErrorCode | None = None
    ) -> None:
        """Wait before the next attempt, or raise the error if it is final."""
        if self._session.cluster.gives_up(code or problem.code, deadline):
            raise problem
        self._session.cache.mark_stale()
        await self._wait()

    async def _wait(self) -> None:
        self._failures += 1
        delay_ms = self._backoff.delay_ms(self._failures, random.random())
        await asyncio.sleep(delay_ms / 1_000)

    def _chunk(self, outcome: FetchOutcome) -> FetchedChunk:
        chunk = FetchedChunk(self._asked.partition, outcome.records, self._options, outcome.aborted)
        if chunk.end < 0:
            raise MessageTooLargeError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"the batch at offset {outcome.fetch_offset} of {outcome.partition} does not fit",
                hint="raise max_partition_fetch_bytes",
            )
        return chunk


def _unstable(asked: OffsetRange, position: int, deadline: Deadline) -> RequestTimedOutError:
    return RequestTimedOutError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"offsets {position} to {asked.end} (exclusive) of {asked.partition} were held back by an"
        f" open transaction for {deadline.allowed_ms} ms",
        hint="read them when it has ended, or raise default_api_timeout_ms",
    )


def _truncated(asked: EpochItem, position: int, outcome: EpochOutcome) -> LogTruncationError:
    is_known = outcome.epoch >= 0 and outcome.end_offset >= 0
    since = f" from offset {outcome.end_offset} on" if is_known else ""
    error = LogTruncationError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"{asked.partition} was read up to offset {position} in epoch {asked.epoch}, and the log of"
        f" its leader in epoch {asked.leader_epoch} has other records{since}",
        hint="read the whole range again",
    )
    error.divergent_offset = outcome.end_offset if is_known else None
    return error
