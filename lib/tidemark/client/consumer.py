"""Consumer: pulls records of assigned partitions from their leaders, from any offset, as often as
wanted (D01-D04).
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NoReturn, Self

from tidemark.client.config import ConsumerConfig, with_settings
from tidemark.client.errors import (
    ClientConfigError,
    NotAvailableYetError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from tidemark.client.fetcher import RESETS, Fetcher
from tidemark.client.offset_lookup import OffsetAndTimestamp
from tidemark.client.positions import ConsumerRecord, OffsetSpec, PartitionState
from tidemark.client.retry import Deadline
from tidemark.client.session import Session
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock

Partition = TopicPartition | tuple[str, int]
_ITERATION_WAIT_MS: Final = 60_000
_LAUNCH_EVERY: Final = 256


class Consumer:
    """Reads records. ``async with Consumer("host:9092") as consumer: consumer.assign([("topic",
    0)])`` and ``poll``.

    ``settings`` are fields of ConsumerConfig by name. Belongs to the event loop in which it was
    started.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        config: ConsumerConfig | None = None,
        *,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        self.config = with_settings(config or ConsumerConfig(), settings)
        if self.config.group_id is not None:
            _no_groups("group_id")
        if self.config.transport == "grpc" and self.config.isolation_level == "read_committed":
            raise ClientConfigError(
                ErrorCode.INVALID_CONFIG,
                "isolation_level='read_committed' needs transport='kafka' in this release",
            )
        self._clock = clock or Clock()
        self._session = Session(bootstrap_servers, self.config, self._clock)
        self._fetcher = Fetcher(self._session, self.config, self._clock)
        self._turn = 0
        self._iterated = 0

    async def start(self) -> Self:
        """Begin; connects at the first poll. ``async with`` does it for you."""
        await self._session.start()
        self._want_topics()
        return self

    async def close(self) -> None:
        """Let go of everything, now."""
        await self._session.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # ---- what to read

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Read exactly these partitions; those kept go on where they are, new ones start by
        auto_offset_reset.
        """
        wanted = [TopicPartition(*partition) for partition in partitions]
        before, self._fetcher.states = self._fetcher.states, {}
        reset = RESETS[self.config.auto_offset_reset]
        for partition in wanted:
            kept = before.get(partition)
            self._fetcher.states[partition] = kept or PartitionState(partition, reset)
        self._want_topics()

    async def assign_topic(self, *topics: str) -> tuple[TopicPartition, ...]:
        """Assign all partitions of these topics; returns them. Raises
        UnknownTopicOrPartitionError.
        """
        deadline = Deadline.after(self.config.request_timeout_ms, self._clock.now_ms())
        partitions: list[TopicPartition] = []
        for topic in topics:
            view = await self._session.cluster.topic(topic, deadline)
            partitions += [TopicPartition(topic, each.partition) for each in view.partitions]
        self.assign(partitions)
        return tuple(partitions)

    def assignment(self) -> tuple[TopicPartition, ...]:
        """What is read, in the order assigned."""
        return tuple(self._fetcher.states)

    def subscribe(self, topics: Iterable[str], group_id: str | None = None) -> NoReturn:
        """Not available yet: consumer groups. Raises NotAvailableYetError that names what to use
        instead.
        """
        _no_groups("subscribe()")

    # ---- where to read

    def seek(self, partition: Partition, offset: int) -> None:
        """Go on at an offset, earlier ones included (A18)."""
        if offset < 0:
            raise ValueError(f"offset {offset} is negative; use seek_to_beginning or seek_to_end")
        self._state(partition).seek(offset)
        self._fetcher.changed.set()

    def seek_to_beginning(self, *partitions: Partition) -> None:
        """Go on at the first offset that is still there; without arguments, in every assigned
        partition.
        """
        self._seek_by(partitions, OffsetSpec.EARLIEST)

    def seek_to_end(self, *partitions: Partition) -> None:
        """Go on behind the last record; without arguments, in every assigned partition."""
        self._seek_by(partitions, OffsetSpec.LATEST)

    def seek_to_timestamp(self, timestamp_ms: int, *partitions: Partition) -> None:
        """Go on at the first record not older than ``timestamp_ms``, or at the end; in these or all
        partitions.
        """
        if timestamp_ms < 0:
            raise ValueError(f"timestamp_ms {timestamp_ms} is negative")
        self._seek_by(partitions, timestamp_ms)

    async def position(self, partition: Partition) -> int:
        """Offset of the next record that poll will give, looked up if need be. Raises
        ClientError.
        """
        state = self._state(partition)
        deadline = Deadline.after(self.config.request_timeout_ms, self._clock.now_ms())
        while state.position is None:
            self._check(state)
            if state.reset is None:
                raise self._no_position(state)
            if deadline.passed(self._clock.now_ms()):
                raise RequestTimedOutError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"the position of {state.partition} is not known yet",
                )
            await self._advance(deadline)
        return state.position

    def rewind(self, unseen: Iterable[ConsumerRecord]) -> None:
        """Go back to the first of these records in each partition: they were polled but not
        used.
        """
        first: dict[TopicPartition, int] = {}
        for record in unseen:
            first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        for partition, offset in first.items():
            self.seek(partition, offset)

    def pause(self, *partitions: Partition) -> None:
        """Hand out nothing of these partitions until ``resume``; what is buffered stays."""
        for partition in partitions:
            self._state(partition).paused = True

    def resume(self, *partitions: Partition) -> None:
        """Read on."""
        for partition in partitions:
            self._state(partition).paused = False
        self._fetcher.changed.set()

    def paused(self) -> tuple[TopicPartition, ...]:
        """Partitions that ``pause`` holds."""
        return tuple(state.partition for state in self._fetcher.states.values() if state.paused)

    # ---- reading

    async def poll(
        self, max_records: int | None = None, *, timeout_ms: int = 1_000
    ) -> list[ConsumerRecord]:
        """Records in offset order of each partition, at most ``max_records`` (max_poll_records).

        Waits up to ``timeout_ms`` while there are none; [] then. Raises OffsetOutOfRangeError with
        auto_offset_reset="none", CorruptBatchError, AuthorizationError and the like, each naming
        the partition.
        """
        self._session.check_running()
        records_max = self.config.max_poll_records if max_records is None else max_records
        if records_max <= 0:
            raise ValueError(f"max_records is {records_max}; it must be above 0")
        deadline = Deadline.after(timeout_ms, self._clock.now_ms())
        while True:
            records = self._take(records_max)
            if records or deadline.passed(self._clock.now_ms()):
                self._fetcher.launch()
                return records
            for state in self._fetcher.states.values():
                self._check(state)
            await self._advance(deadline)

    def __aiter__(self) -> Self:
        """``async for record in consumer``: records without end, one at a time; the position moves
        with each.
        """
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record; waits for it."""
        self._iterated += 1
        if self._iterated % _LAUNCH_EVERY:
            records = self._take(1)
            if records:
                return records[0]
        while not (records := await self.poll(1, timeout_ms=_ITERATION_WAIT_MS)):
            pass
        return records[0]

    # ---- offsets of logs

    async def beginning_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """The first offset of each."""
        return await self._ends(partitions, OffsetSpec.EARLIEST)

    async def end_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """Behind the last record that may be read: high watermark, or last stable offset under
        read_committed.
        """
        return await self._ends(partitions, OffsetSpec.LATEST)

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition that is not older; None where there is none."""
        found = await self._look_up(
            {TopicPartition(*partition): time for partition, time in timestamps_ms.items()}
        )
        return {part: place if place.offset >= 0 else None for part, place in found.items()}

    def high_watermark(self, partition: Partition) -> int | None:
        """As of the last fetch; None before the first."""
        known = self._state(partition).high_watermark
        return known if known >= 0 else None

    # ---- within

    def _state(self, partition: Partition) -> PartitionState:
        state = self._fetcher.states.get(TopicPartition(*partition))
        if state is None:
            raise UnknownTopicOrPartitionError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{TopicPartition(*partition)} is not assigned",
                hint="name it in assign() first",
            )
        return state

    def _seek_by(self, partitions: Sequence[Partition], reset: int) -> None:
        states = [self._state(each) for each in partitions] or self._fetcher.states.values()
        for state in states:
            state.seek_by(reset)
        self._fetcher.changed.set()

    def _want_topics(self) -> None:
        if self._session.is_running:
            topics = {partition.topic for partition in self._fetcher.states}
            if self._session.cache.want(topics):
                self._session.cache.mark_stale()

    def _take(self, records_max: int) -> list[ConsumerRecord]:
        """Buffered records, beginning with another partition each time so that none starves."""
        states = [state for state in self._fetcher.states.values() if state.has_records]
        if not states:
            return []
        self._turn = (self._turn + 1) % len(states)
        taken: list[ConsumerRecord] = []
        for state in states[self._turn :] + states[: self._turn]:
            taken += state.take(records_max - len(taken))
            if len(taken) >= records_max:
                break
        return taken

    async def _advance(self, deadline: Deadline) -> None:
        """Launch what is wanted and wait until something changed, time to try again, or the
        deadline.
        """
        self._fetcher.changed.clear()
        due = self._fetcher.launch()
        until = deadline.at_ms if due is None else min(deadline.at_ms, due)
        now = self._clock.now_ms()
        try:
            async with asyncio.timeout(max(0.0, until - now) / 1_000):
                await self._fetcher.changed.wait()
        except TimeoutError:
            return

    def _check(self, state: PartitionState) -> None:
        """Raise what stands against a partition. What a seek cannot mend is tried again at the next
        poll.
        """
        error = state.error
        if error is None:
            if state.position is None and state.reset is None:
                raise self._no_position(state)
            return
        if not isinstance(error, OffsetOutOfRangeError):
            state.error = None
        raise error.with_traceback(None)

    def _no_position(self, state: PartitionState) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{state.partition} has no position and auto_offset_reset is 'none'",
            hint="seek() first, or set auto_offset_reset to 'earliest' or 'latest'",
        )

    async def _ends(
        self, partitions: Iterable[Partition], spec: OffsetSpec
    ) -> dict[TopicPartition, int]:
        found = await self._look_up({TopicPartition(*each): int(spec) for each in partitions})
        return {partition: place.offset for partition, place in found.items()}

    async def _look_up(
        self, queries: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        self._session.check_running()
        return await self._fetcher.lookup().look_up(
            queries,
            allowed_ms=self.config.request_timeout_ms,
            read_committed=self.config.isolation_level == "read_committed",
        )


def _no_groups(what: str) -> NoReturn:
    raise NotAvailableYetError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"{what}: consumer groups are not available yet in this client",
        hint="use assign() or assign_topic(), and keep positions yourself",
    )
