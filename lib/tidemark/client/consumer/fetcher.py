"""Fetches of assigned partitions ahead of ``poll``, and lookups of their positions.

One fetch is in flight for each group of partitions. Positions are looked up at each leader by
itself, so that one that does not answer holds up only its own partitions.
"""

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Hashable
from typing import Final

from tidemark.client.config import ConsumerConfig
from tidemark.client.consumer.fetched_chunk import ReadOptions
from tidemark.client.consumer.near_replicas import NearReplicas
from tidemark.client.consumer.offset_lookup import OffsetLookup
from tidemark.client.consumer.positions import OffsetSpec, PartitionState, Validation
from tidemark.client.errors import (
    AuthorizationError,
    ClientError,
    CorruptBatchError,
    LogTruncationError,
    MessageTooLargeError,
    UnsupportedVersionError,
    error_for,
)
from tidemark.client.wire.cluster import Cluster
from tidemark.client.wire.metadata_cache import Leader
from tidemark.client.wire.session import Session
from tidemark.client.wire.transport import (
    EpochItem,
    EpochOutcome,
    FetchItem,
    FetchLimits,
    FetchOutcome,
)
from tidemark.model.backoff import Backoff
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock

log: Final = logging.getLogger("tidemark.client.consumer.fetcher")

RESETS: Final = {"earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST, "none": None}


class _Asked:
    """Partitions of one fetch as they were when it was decided; a seek may move them meanwhile."""

    def __init__(self, broker_id: int, limits: FetchLimits) -> None:
        self.broker_id = broker_id
        self.limits = limits
        self.items: list[FetchItem] = []
        self.states: dict[TopicPartition, tuple[PartitionState, int]] = {}
        self.leaders: dict[TopicPartition, Leader] = {}

    def add(self, state: PartitionState, leader: Leader) -> None:
        """Add a partition at its current position."""
        assert state.fetch_position is not None, "fetched without a position"
        state.fetching = True
        self.states[state.partition] = (state, state.generation)
        self.leaders[state.partition] = leader
        self.items.append(
            FetchItem(state.partition, leader.topic_id, leader.leader_epoch, state.fetch_position)
        )


class Fetcher:
    """Fetches of one consumer, in tasks of its session. ``changed`` wakes waiting callers."""

    def __init__(self, session: Session, config: ConsumerConfig, clock: Clock) -> None:
        self.states: dict[TopicPartition, PartitionState] = {}
        self.changed = asyncio.Event()
        self._session = session
        self._config = config
        self._clock = clock
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._read_committed = config.isolation_level == "read_committed"
        self._ahead_bytes_max = (
            config.prefetch_beyond_lso_bytes_max if config.prefetch_beyond_lso else 0
        )
        self._options = ReadOptions(config.check_crcs, self._read_committed, self._ahead_bytes_max)
        self._limits = FetchLimits(
            config.fetch_max_wait_ms,
            config.fetch_min_bytes,
            config.fetch_max_bytes,
            config.max_partition_fetch_bytes,
            self._read_committed,
            config.client_rack or "",
        )
        self._near = NearReplicas(config.metadata_max_age_ms)
        self._under_way: set[Hashable] = set()
        self._looking_up: set[tuple[PartitionState, int]] = set()
        self._refreshing = False

    @property
    def cluster(self) -> Cluster:
        """Metadata of the session."""
        return self._session.cluster

    def launch(self) -> float | None:
        """Start the fetches and lookups that are due; never waits.

        Returns the end of the earliest back-off, None without one.
        """
        now = self._clock.now_ms()
        if self.cluster.cache.is_stale(now):
            self._refresh()
            if not self.cluster.cache.version:
                return None
        self._launch_fetches(now)
        self._launch_lookups(now)
        instants = [state.resume_at for state in self.states.values() if state.resume_at > now]
        return min(instants, default=None)

    def _launch_fetches(self, now: int) -> None:
        if not self._has_room():
            return
        groups: dict[Hashable, _Asked] = {}
        doubtful: dict[int, list[tuple[PartitionState, Validation]]] = defaultdict(list)
        for state in self.states.values():
            if not state.wants_fetch(now, self._bytes_ahead_max(state)):
                continue
            leader = self.cluster.cache.leader(state.partition)
            if leader is None:
                self._on_no_leader(state, now)
                continue
            validation = state.validation(leader.leader_epoch)
            if validation is not None:
                state.validating = True
                doubtful[leader.broker_id].append((state, validation))
                continue
            limits = self._limits._replace(
                read_committed=self._read_committed and not state.is_ahead
            )
            broker_id = self._near.broker_for(state.partition, leader, now)
            broker_group = self._session.transport.fetch_group(broker_id, state.partition)
            group: Hashable = (broker_group, limits.read_committed)
            if group not in self._under_way:
                groups.setdefault(group, _Asked(broker_id, limits)).add(state, leader)
        for group, asked in groups.items():
            self._under_way.add(group)
            self._session.spawn(self._fetch(group, asked), name=f"fetch-{group}")
        for broker_id, wanted in doubtful.items():
            self._session.spawn(self._validate(broker_id, wanted), name=f"validate-{broker_id}")

    def _launch_lookups(self, now: int) -> None:
        by_broker: dict[int, list[tuple[PartitionState, int, int | None]]] = defaultdict(list)
        for state in self.states.values():
            asked = (state, state.generation)
            if not state.wants_lookup(now) or asked in self._looking_up:
                continue
            leader = self.cluster.cache.leader(state.partition)
            if leader is None:
                self._on_no_leader(state, now)
                continue
            self._looking_up.add(asked)
            by_broker[leader.broker_id].append((*asked, state.reset))
        for wanted in by_broker.values():
            self._session.spawn(self._look_up(wanted), name="consumer-positions")

    def _bytes_ahead_max(self, state: PartitionState) -> int:
        return self._ahead_bytes_max if state.is_ahead else self._config.max_partition_fetch_bytes

    def _has_room(self) -> bool:
        """True if there is room to fetch.

        Records held back until a transaction ends must not use up the room in which its marker is
        fetched. They are then dropped, and fetched again once stable.
        """
        states = self.states.values()
        buffered = sum(state.buffered_bytes for state in states)
        full = buffered >= self._config.buffered_bytes_max
        if not self._ahead_bytes_max:
            return not full
        for state in states:
            if state.is_held_up and (full or state.buffered_bytes >= self._ahead_bytes_max):
                state.stop_ahead()
                full = False
        return not full

    def _on_no_leader(self, state: PartitionState, now: int) -> None:
        """Refresh metadata for a partition without a leader; fail an unknown one after a grace."""
        self._back_off(state)
        self._refresh()
        code = self.cluster.cache.topic_error(state.partition.topic)
        view = self.cluster.cache.topic(state.partition.topic)
        beyond = view is not None and state.partition.partition >= len(view.partitions)
        if not beyond and code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            state.unknown_since = None
            return
        if state.unknown_since is None:
            state.unknown_since = now
        elif now - state.unknown_since >= self._config.unknown_topic_grace_ms:
            state.unknown_since = None
            state.error = error_for(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{state.partition} does not exist"
            )

    async def _fetch(self, group: Hashable, asked: _Asked) -> None:
        try:
            outcomes = await self._session.transport.fetch(
                asked.broker_id, asked.items, asked.limits
            )
        except ClientError as problem:
            self.cluster.cache.mark_stale()
            for state, _ in asked.states.values():
                self._near.drop(state.partition)
                self._on_problem(state, problem)
        else:
            for outcome in outcomes:
                self._on_outcome(outcome, asked)
        finally:
            for state, _ in asked.states.values():
                state.fetching = False
            self._under_way.discard(group)
            self.changed.set()

    def _on_outcome(self, outcome: FetchOutcome, asked: _Asked) -> None:
        partition = outcome.partition
        state, generation = asked.states[partition]
        leader, failed = asked.leaders[partition], outcome.error_code != ErrorCode.NONE
        if failed:
            self._near.drop(partition)
        elif outcome.preferred_replica >= 0:
            self._near.use(partition, outcome.preferred_replica, leader, self._clock.now_ms())
        if generation != state.generation:
            return
        if not failed:
            state.unknown_since = None
            try:
                state.on_fetched(generation, outcome, self._options)
            except (CorruptBatchError, MessageTooLargeError) as unreadable:
                state.error = unreadable
        elif outcome.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
            self.cluster.cache.mark_stale()
            where = self._session.transport.where(asked.broker_id)
            problem = error_for(
                outcome.error_code,
                f"fetching {partition} from offset {outcome.fetch_offset} failed",
                where=where,
                detail=outcome.message,
            )
            self._on_problem(state, problem)
        elif asked.broker_id == leader.broker_id:
            self._on_out_of_range(state, outcome)
        else:
            self._back_off(state)  # a follower may lack what its leader has

    def _on_out_of_range(self, state: PartitionState, outcome: FetchOutcome) -> None:
        """Apply auto_offset_reset: retention passed the position, or the log was truncated.

        A reset drops what was fetched before, so it waits until those records were returned.
        """
        if outcome.fetch_offset != state.fetch_position:
            return
        reset = RESETS[self._config.auto_offset_reset]
        if reset is not None and state.holds_records:
            self._back_off(state)
        elif reset is not None:
            state.seek_by(reset)
        else:
            state.error = _out_of_range(state, outcome)

    async def _validate(
        self, broker_id: int, wanted: list[tuple[PartitionState, Validation]]
    ) -> None:
        """Compare positions with the log of a new leader before it is fetched from."""
        items = [EpochItem(state.partition, one.leader_epoch, one.epoch) for state, one in wanted]
        try:
            outcomes = await self._session.transport.epoch_ends(broker_id, items)
        except UnsupportedVersionError:
            for state, asked in wanted:
                state.on_validated(asked, asked.epoch, asked.offset)
        except ClientError as problem:
            self.cluster.cache.mark_stale()
            for state, _ in wanted:
                self._on_problem(state, problem)
        else:
            found = {outcome.partition: outcome for outcome in outcomes}
            for state, asked in wanted:
                missing = EpochOutcome(state.partition, ErrorCode.UNKNOWN_SERVER_ERROR)
                self._on_epoch_end(state, asked, found.get(state.partition, missing))
        finally:
            for state, _ in wanted:
                state.validating = False
            self.changed.set()

    def _on_epoch_end(
        self, state: PartitionState, asked: Validation, outcome: EpochOutcome
    ) -> None:
        if outcome.error_code:
            problem = error_for(outcome.error_code, f"validating {state.partition} failed")
            self.cluster.cache.mark_stale()
            if isinstance(problem, AuthorizationError):
                state.error = problem
            else:
                self._back_off(state)
        elif state.on_validated(asked, outcome.epoch, outcome.end_offset):
            self._on_truncated(state, asked, outcome)

    def _on_truncated(
        self, state: PartitionState, asked: Validation, outcome: EpochOutcome
    ) -> None:
        """Go back to where the log differs from what was read, or fail without a reset policy."""
        reset = RESETS[self._config.auto_offset_reset]
        is_known = outcome.epoch >= 0 and outcome.end_offset >= 0
        error = _truncated(state, asked, outcome.end_offset if is_known else None)
        if reset is None:
            state.error = error
            return
        log.warning("%s; auto_offset_reset applies", error.what)
        if is_known:
            state.seek(outcome.end_offset, outcome.epoch)
        else:
            state.seek_by(reset)

    def _on_problem(self, state: PartitionState, problem: ClientError) -> None:
        if problem.retriable:
            self._back_off(state)
        else:
            state.error = problem

    def _back_off(self, state: PartitionState) -> None:
        state.failures += 1
        delay_ms = self._backoff.delay_ms(state.failures, random.random())
        state.resume_at = self._clock.now_ms() + delay_ms

    async def _look_up(self, wanted: list[tuple[PartitionState, int, int | None]]) -> None:
        """Look up positions. A timestamp after the last record gives the log end."""
        queries = {state.partition: reset for state, _, reset in wanted if reset is not None}
        try:
            found = await self.lookup().look_up(
                queries,
                allowed_ms=self._config.request_timeout_ms,
                read_committed=self._read_committed,
            )
            late = {part: OffsetSpec.LATEST for part, place in found.items() if place.offset < 0}
            if late:
                found |= await self.lookup().look_up(
                    late,
                    allowed_ms=self._config.request_timeout_ms,
                    read_committed=self._read_committed,
                )
        except ClientError as problem:
            for state, _, _ in wanted:
                self._on_problem(state, problem)
        else:
            for state, generation, _ in wanted:
                state.on_looked_up(generation, found[state.partition].offset)
        finally:
            self._looking_up.difference_update((state, number) for state, number, _ in wanted)
            self.changed.set()

    def lookup(self) -> OffsetLookup:
        """Return a lookup of offsets by timestamp."""
        session = self._session
        return OffsetLookup(session.cluster, session.transport, self._config, self._clock)

    def _refresh(self) -> None:
        if not self._refreshing:
            self._refreshing = True
            self._session.spawn(self._ask_leaders(), name="consumer-metadata")

    async def _ask_leaders(self) -> None:
        try:
            await self.cluster.refresh(seen_version=self.cluster.cache.version)
        except ClientError as problem:
            self.cluster.problem = problem
        finally:
            self._refreshing = False
            self.changed.set()


def _truncated(state: PartitionState, asked: Validation, end: int | None) -> LogTruncationError:
    since = "" if end is None else f" from offset {end} on"
    error = LogTruncationError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"{state.partition} was read up to offset {asked.offset} in epoch {asked.epoch}, and the"
        f" log of its leader in epoch {asked.leader_epoch} has other records{since}",
    )
    error.divergent_offset = end
    return error


def _out_of_range(state: PartitionState, outcome: FetchOutcome) -> ClientError:
    return error_for(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"offset {outcome.fetch_offset} of {state.partition} is outside the log"
        f" (it starts at {outcome.log_start})",
    )
