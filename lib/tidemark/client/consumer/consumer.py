"""Consumer: records of partitions from their leaders, from any offset."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from tidemark.client.config import ConsumerConfig, with_settings
from tidemark.client.consumer.fetched_chunk import ConsumerRecord
from tidemark.client.consumer.fetcher import RESETS, Fetcher
from tidemark.client.consumer.group import ConsumerGroup
from tidemark.client.consumer.group_types import (
    GroupMetadata,
    OffsetAndMetadata,
    OffsetsInput,
    RebalanceListener,
    as_offsets,
)
from tidemark.client.consumer.membership import Subscription
from tidemark.client.consumer.offset_lookup import OffsetAndTimestamp
from tidemark.client.consumer.positions import OffsetSpec, PartitionState
from tidemark.client.deadline import Deadline
from tidemark.client.errors import (
    ClientConfigError,
    CorruptBatchError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from tidemark.client.spans import ClientSpans
from tidemark.client.wire.session import Session
from tidemark.codec.varint import INT64_MAX
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock

Partition = TopicPartition | tuple[str, int]
_ITERATION_WAIT_MS: Final = 60_000
_LAUNCH_EVERY: Final = 256


class Consumer:
    """Reader of records: ``async with Consumer("host:9092") as consumer:
    consumer.assign([("topic", 0)])`` and ``poll``.

    With a ``group_id`` the group stores its offsets. After ``subscribe`` the group divides the
    topics' partitions among its members and offsets are committed automatically; after ``assign``
    only ``commit`` does so.

    ``settings`` are fields of ConsumerConfig by name. A consumer belongs to the event loop in which
    it was started.
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
        self._clock = clock or Clock()
        self._session = Session(bootstrap_servers, self.config, self._clock)
        self._fetcher = Fetcher(self._session, self.config, self._clock)
        self._group = (
            None
            if self.config.group_id is None
            else ConsumerGroup(self._session, self._fetcher, self.config, self._clock)
        )
        self._spans = (
            ClientSpans(self.config.client_id, self.config.group_id)
            if self.config.tracing_enable
            else None
        )
        self._turn = 0
        self._iterated = 0

    async def start(self) -> Self:
        """Start the consumer; ``async with`` does this. It connects at the first poll."""
        await self._session.start()
        self._want_topics()
        if self._group is not None:
            self._group.start()
            self._group.begin(self._fetcher.states.values())
        return self

    async def close(self) -> None:
        """Commit if enabled, leave the group and release all resources."""
        await self._close(commits=True)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Records polled before a failure may not have been processed.
        await self._close(commits=kind is None)

    # -- assignment

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Replace the assignment by these partitions.

        Partitions that were assigned before keep their positions. New ones start at the committed
        offset or by auto_offset_reset. Raises ClientConfigError for a subscribed consumer.
        """
        if self._group is not None and self._group.is_subscribed:
            raise ClientConfigError(
                ErrorCode.INVALID_REQUEST,
                "assign() on a subscribed consumer",
                hint="await unsubscribe() first",
            )
        wanted = [TopicPartition(*partition) for partition in partitions]
        before, self._fetcher.states = self._fetcher.states, {}
        reset = RESETS[self.config.auto_offset_reset]
        for partition in wanted:
            kept = before.get(partition)
            self._fetcher.states[partition] = kept or self._fresh_state(partition, reset)
        self._want_topics()
        if self._group is not None:
            self._group.begin(self._fetcher.states.values())

    async def assign_topic(self, *topics: str) -> tuple[TopicPartition, ...]:
        """Assign all partitions of these topics and return them.

        Raises UnknownTopicOrPartitionError.
        """
        deadline = Deadline.after(self.config.request_timeout_ms, self._clock.now_ms())
        partitions: list[TopicPartition] = []
        for topic in topics:
            view = await self._session.cluster.topic(topic, deadline)
            partitions += [TopicPartition(topic, each.partition) for each in view.partitions]
        self.assign(partitions)
        return tuple(partitions)

    def assignment(self) -> tuple[TopicPartition, ...]:
        """Return the assigned partitions in the order of assignment."""
        return tuple(self._fetcher.states)

    def subscribe(
        self,
        topics: Iterable[str] = (),
        listener: RebalanceListener | None = None,
        *,
        pattern: str | None = None,
    ) -> None:
        """Subscribe to topics, whose partitions the group divides among its members.

        Partitions are assigned and revoked within ``poll``. ``pattern`` is a regular expression for
        topic names, which the coordinator evaluates. A further call replaces the subscription.
        Raises ClientConfigError without a group_id.
        """
        if isinstance(topics, str):
            raise TypeError("topics is a list of names, not one name")
        group = self._needs_group("subscribe()")
        if self._fetcher.states and not group.is_subscribed:
            raise ClientConfigError(
                ErrorCode.INVALID_REQUEST,
                "subscribe() on a consumer with assigned partitions",
                hint="assign([]) first",
            )
        group.subscribe(Subscription(tuple(dict.fromkeys(topics)), pattern), listener)

    async def unsubscribe(self) -> None:
        """Commit if enabled, leave the group and clear the assignment."""
        if self._group is not None:
            await self._group.unsubscribe()
        self._fetcher.states = {}

    # -- the group's offsets

    async def commit(self, offsets: OffsetsInput | None = None) -> None:
        """Commit offsets (of the next records to read) and wait until they are durable.

        Without ``offsets``, commits the positions of all partitions. Retries for
        default_api_timeout_ms. Raises CommitFailedError if the partitions now belong to another
        member.
        """
        self._session.check_running()
        group = self._needs_group("commit()")
        await group.commit(None if offsets is None else as_offsets(offsets))

    async def committed(
        self, partitions: Iterable[Partition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offset of each partition, None without one."""
        self._session.check_running()
        wanted = [TopicPartition(*partition) for partition in partitions]
        found = await self._needs_group("committed()").committed(wanted)
        return {partition: found.get(partition) for partition in wanted}

    def group_metadata(self) -> GroupMetadata:
        """Return the member's identity for ``TransactionalProducer.send_offsets``."""
        return self._needs_group("group_metadata()").metadata()

    # -- positions

    def seek(self, partition: Partition, offset: int) -> None:
        """Set the position to any offset."""
        if not 0 <= offset <= INT64_MAX:
            raise ValueError(
                f"offset {offset} is negative or too large; use seek_to_beginning or seek_to_end"
            )
        self._state(partition).seek(offset)
        self._fetcher.changed.set()

    def seek_to_beginning(self, *partitions: Partition) -> None:
        """Set the position to the log start; without arguments, in every assigned partition."""
        self._seek_by(partitions, OffsetSpec.EARLIEST)

    def seek_to_end(self, *partitions: Partition) -> None:
        """Set the position to the log end; without arguments, in every assigned partition."""
        self._seek_by(partitions, OffsetSpec.LATEST)

    def seek_to_timestamp(self, timestamp_ms: int, *partitions: Partition) -> None:
        """Set the position to the first record at or after ``timestamp_ms``, or to the log end.

        Without partitions, in every assigned partition.
        """
        self._seek_by(partitions, _checked_time(timestamp_ms))

    async def position(self, partition: Partition) -> int:
        """Return the offset of the next record that ``poll`` returns, looked up if necessary.

        Raises ClientError.
        """
        state = self._state(partition)
        deadline = Deadline.after(self.config.request_timeout_ms, self._clock.now_ms())
        while state.position is None:
            self._check(state)
            if deadline.passed(self._clock.now_ms()):
                raise RequestTimedOutError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"the position of {state.partition} is not known yet",
                )
            await self._advance(deadline)
        return state.position

    def rewind(self, unseen: Iterable[ConsumerRecord]) -> None:
        """Set positions back to the first of these polled records in each partition."""
        first: dict[TopicPartition, int] = {}
        for record in unseen:
            first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        for partition, offset in first.items():
            self.seek(partition, offset)

    def pause(self, *partitions: Partition) -> None:
        """Stop returning records of these partitions until ``resume``; keep those buffered."""
        for partition in partitions:
            self._state(partition).paused = True

    def resume(self, *partitions: Partition) -> None:
        """Let polls return records of these partitions again, after ``pause``."""
        for partition in partitions:
            self._state(partition).paused = False
        self._fetcher.changed.set()

    def paused(self) -> tuple[TopicPartition, ...]:
        """Return the paused partitions."""
        return tuple(state.partition for state in self._fetcher.states.values() if state.paused)

    # -- reading

    async def poll(
        self, max_records: int | None = None, *, timeout_ms: int = 1_000
    ) -> list[ConsumerRecord]:
        """Return records in offset order of each partition, at most ``max_records``
        (max_poll_records).

        Waits for at most ``timeout_ms`` if there are none, then returns []. Raises
        OffsetOutOfRangeError with auto_offset_reset="none", CorruptBatchError, AuthorizationError
        and other errors; each names the partition.
        """
        self._session.check_running()
        records_max = self.config.max_poll_records if max_records is None else max_records
        if records_max <= 0:
            raise ValueError(f"max_records is {records_max}; it must be above 0")
        deadline = Deadline.after(timeout_ms, self._clock.now_ms())
        began_ms = self._clock.wall_ms()
        advanced = False  # with timeout_ms=0, fetches are started and may run once, too
        while True:
            if self._group is not None:
                await self._group.attend()
            records = self._take(records_max)
            if records and self._spans is not None:
                self._note(self._spans, records, began_ms)
            if records:
                self._fetcher.launch()
                return records
            for state in self._fetcher.states.values():
                self._check(state)
            if advanced and deadline.passed(self._clock.now_ms()):
                self._fetcher.launch()
                return []
            await self._advance(deadline)
            advanced = True

    @staticmethod
    def _note(spans: ClientSpans, records: Sequence[ConsumerRecord], began_ms: int) -> None:
        spans.polled(
            (one.topic for one in records),
            (one.headers for one in records),
            began_ms=began_ms,
            count=len(records),
        )

    def __aiter__(self) -> Self:
        """Iterate over records without end: ``async for record in consumer``.

        The position advances with each record.
        """
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Wait for the next record and return it."""
        self._iterated += 1
        group = self._group
        if (
            self._spans is None
            and self._iterated % _LAUNCH_EVERY
            and not (group is not None and group.on_next_record())
        ):
            records = self._take(1)
            if records:
                return records[0]
        while not (records := await self.poll(1, timeout_ms=_ITERATION_WAIT_MS)):
            pass
        return records[0]

    # -- offsets of logs

    async def beginning_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """Return the log start of each partition."""
        return await self._ends(partitions, OffsetSpec.EARLIEST)

    async def end_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """Return the log end that readers see of each partition.

        This is the high watermark, or under read_committed the last stable offset.
        """
        return await self._ends(partitions, OffsetSpec.LATEST)

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record of each partition at or after a timestamp, None without one."""
        found = await self._look_up(
            {
                TopicPartition(*partition): _checked_time(time)
                for partition, time in timestamps_ms.items()
            }
        )
        return {part: place if place.offset >= 0 else None for part, place in found.items()}

    def high_watermark(self, partition: Partition) -> int | None:
        """Return the high watermark of the last fetch; None before the first."""
        known = self._state(partition).high_watermark
        return known if known >= 0 else None

    # -- internals

    async def _close(self, *, commits: bool) -> None:
        try:
            if self._group is not None and self._session.is_running:
                await self._group.close(commits=commits)
        finally:
            await self._session.close()

    def _needs_group(self, what: str) -> ConsumerGroup:
        if self._group is None:
            raise ClientConfigError(ErrorCode.INVALID_GROUP_ID, f"{what} needs a group_id")
        return self._group

    def _fresh_state(self, partition: TopicPartition, reset: int | None) -> PartitionState:
        if self._group is None:
            return PartitionState(partition, reset)
        state = PartitionState(partition, None)
        state.waits_for_commit = True
        return state

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
        """Return buffered records, starting with another partition each time."""
        states = [state for state in self._fetcher.states.values() if state.has_records]
        if not states:
            return []
        self._turn = (self._turn + 1) % len(states)
        taken: list[ConsumerRecord] = []
        for state in states[self._turn :] + states[: self._turn]:
            try:
                taken += state.take(records_max - len(taken))
            except CorruptBatchError:
                if not taken:
                    raise
                # A later poll raises it: records taken from other partitions must not be lost.
            if len(taken) >= records_max:
                break
        return taken

    async def _advance(self, deadline: Deadline) -> None:
        """Start fetches and wait for a change, the end of a back-off, or the deadline."""
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
        """Raise a partition's error; one that a seek cannot clear is retried at the next poll."""
        error = state.error
        if error is None:
            if state.position is None and state.reset is None and not state.waits_for_commit:
                raise self._no_position(state)
            return
        if not isinstance(error, OffsetOutOfRangeError):
            state.error = None
        if self._group is not None:
            self._group.begin([state])
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


def _checked_time(timestamp_ms: int) -> int:
    """Return a timestamp to look up; negative numbers would be the ends of the log."""
    if not 0 <= timestamp_ms <= INT64_MAX:
        raise ValueError(f"timestamp_ms {timestamp_ms} is negative or too large")
    return timestamp_ms
