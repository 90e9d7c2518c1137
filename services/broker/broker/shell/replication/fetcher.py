"""LeaderFetcher: follows one leader over one connection: fetch, append, fetch again.

The next fetch is sent as soon as the answer is in the log. It reports that to the leader, and waits
there for the next records.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tidemark.kafka.fetch import FetchPartitionResult, FetchRequest, FetchResponse
from tidemark.kafka.headers import MalformedRequestError
from tidemark.model.backoff import Backoff, RetryDelays
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerId, InstantMs, TopicId
from tidemark.model.metadata import BrokerImage
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.telemetry import fields, shortened
from tidemark.storage.disk import DiskError

from broker.core.replica_fetcher import FetchAsk, PartitionKey, ReplicaFetcher
from broker.core.role import FOLLOWER
from broker.shell.cluster.registration import Registration
from broker.shell.facts import BrokerFacts
from broker.shell.partitions.appender import PartitionAppender
from broker.shell.partitions.disk_health import DiskHealth
from broker.shell.partitions.group_commits import GroupCommits
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.partitions.log_moves import LogMoves
from broker.shell.replication.applying import make_room, prepare_cut, set_log_start, truncate
from broker.shell.replication.leader_connection import Connect, LeaderConnection
from broker.shell.replication.leader_stream import LeaderStream
from broker.shell.replication.throttles import FollowerThrottle
from broker.storage.directory import LogDamagedError
from broker.storage.producer_replay import ProducerReplay

log = logging.getLogger(__name__)

FRAME_SLACK_BYTES: Final = 64 * 1024 * 1024
"""An answer may be longer than requested: a first batch always comes whole."""
BACKOFF_MS_FIRST: Final = 20
"""A new leader often learns of its election a moment after its followers do."""
FLUSH_LOOK_S: Final = 0.5
"""Interval at which a wait for a flush checks that the directory still takes writes: one that
fills up causes no event.
"""
LINES_MAX: Final = 100
"""Partitions of one answer that are logged with a line each."""
RECONNECT: Final = Backoff(50, 1_000)
_SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


@dataclass(frozen=True, slots=True)
class FetcherParts:
    """Parts of the broker that every fetcher uses."""

    facts: BrokerFacts
    registration: Registration
    metadata: MetadataCache
    throttle: FollowerThrottle
    appender: PartitionAppender
    group_commits: GroupCommits
    disks: DiskHealth
    log_moves: LogMoves
    on_readable: Callable[[HostedPartition], None] | None
    """Called when consumers may read more of a partition that is followed; None: they never do."""


class LeaderFetcher:
    """Everything that is followed at one leader."""

    def __init__(
        self,
        parts: FetcherParts,
        leader: BrokerId,
        *,
        flush_group: bool,
        connect: Connect = LeaderStream.open,
    ) -> None:
        self.leader = leader
        self._connect = connect
        self._parts = parts
        self._config = config = parts.facts.config
        self._clock = parts.facts.clock
        self._dice = parts.facts.dice
        self._flush_group = flush_group
        self._hosted: dict[PartitionKey, HostedPartition] = {}
        self._plan = ReplicaFetcher(partition_bytes_max=config.replica_fetch_max_bytes)
        self._news = asyncio.Event()
        self._synced = asyncio.Event()
        self._reconnect = RetryDelays(RECONNECT, self._dice)
        longest_ms = config.replica_fetch_backoff_ms
        self._backoff = Backoff(min(BACKOFF_MS_FIRST, longest_ms), longest_ms)
        self._failures: dict[PartitionKey, int] = {}
        """Failures in a row, of each partition that its leader could not serve."""
        self._retries: dict[int, InstantMs] = {}
        """Time at which partitions that failed in this answer are fetched again, by their failures
        in a row. It is the same for all of them: a request costs more than a partition in it.
        """
        self._unreachable: str | None = None
        """Reason why the last attempt did not reach the leader."""
        self._not_followed: dict[str, list[str]] = {}
        """Partitions of this answer to log, by the reason."""

    # -- called by the manager

    def add(self, hosted: HostedPartition) -> None:
        """Follow a partition from its present end."""
        self._hosted[_key(hosted)] = hosted
        self._plan.add(hosted.partition)
        self._news.set()
        self._synced.set()

    def remove(self, key: PartitionKey) -> None:
        """Stop following a partition, and forget its waits for the disk."""
        self._hosted.pop(key, None)
        self._failures.pop(key, None)
        self._plan.remove(key)
        self._synced.set()

    def synced(self, hosted: HostedPartition) -> None:
        """Note that more of a partition is on disk."""
        self._plan.moved(_key(hosted))
        self._synced.set()

    def leader_moved(self, broker: BrokerImage | None) -> None:
        """Note that the leader registered again, or was removed: do not wait for a timeout to
        look.
        """
        if broker is not None and not broker.fenced:
            self._reconnect.reset()
            self._news.set()

    # -- the life of the connection

    async def run(self) -> None:
        """Fetch until cancelled."""
        while True:
            await self._wait_for_work()
            try:
                await self._follow()
            except (OSError, MalformedRequestError) as failure:
                self._plan.failed()
                self._note_unreachable(str(failure) or type(failure).__name__)
                await self._pause(self._reconnect.next_s())

    def _note_unreachable(self, reason: str) -> None:
        """Log why the leader is not reachable, once for all attempts that fail in the same way."""
        if reason != self._unreachable:
            self._unreachable = reason
            log.info("leader not reachable", extra=fields(leader=self.leader, reason=reason))

    def _note_reachable(self) -> None:
        self._reconnect.reset()
        if self._unreachable is not None:
            self._unreachable = None
            log.info("leader reachable again", extra=fields(leader=self.leader))

    async def _wait_for_work(self) -> None:
        while not len(self._plan):
            self._news.clear()
            await self._news.wait()

    async def _pause(self, seconds: float) -> None:
        """Pause, and end early with news of the leader or another partition to follow."""
        self._news.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return

    async def _follow(self) -> None:
        config = self._config
        broker = self._parts.metadata.image.brokers.get(self.leader)
        if broker is None:
            raise ConnectionError("no such broker is registered")
        point = broker.replication_endpoint()
        if point is None:
            raise ConnectionError("it advertises no listener for brokers: give it one, INTERNAL")
        timeout_s = config.replica_socket_timeout_ms / 1_000
        connection = await self._connect(
            point,
            client_id=f"broker-{self._parts.registration.broker_id}-replica",
            answer_bytes_max=config.replica_fetch_response_max_bytes + FRAME_SLACK_BYTES,
            timeout_s=timeout_s,
        )
        try:
            while len(self._plan):
                await self._exchange(connection, timeout_s)
        finally:
            connection.close()
            self._plan.failed()

    async def _exchange(self, connection: LeaderConnection, timeout_s: float) -> None:
        clock = self._clock
        if self._flush_group:
            await self._await_flush()
        self._hold_throttled(clock.now_ms())
        ask = self._plan.request(clock.now_ms())
        if ask is None:
            due = self._plan.next_due()
            wait_ms = RECONNECT.max_ms if due is None else max(1, due - clock.now_ms())
            await self._pause(wait_ms / 1_000)
            return
        response = await connection.fetch(self._request(ask), timeout_s)
        self._note_reachable()
        await self._take(response)

    def _request(self, ask: FetchAsk) -> FetchRequest:
        config, registration = self._config, self._parts.registration
        return FetchRequest(
            replica_id=registration.broker_id,
            replica_epoch=registration.broker_epoch,
            wait_ms_max=config.replica_fetch_wait_max_ms,
            bytes_min=1,
            bytes_max=config.replica_fetch_response_max_bytes,
            isolation_level=0,
            session_id=ask.session_id,
            session_epoch=ask.session_epoch,
            topics=ask.topics,
            forgotten=ask.forgotten,
            rack_id="",
            cluster_id=None,
        )

    def _hold_throttled(self, now: InstantMs) -> None:
        """Leave out throttled partitions that are not in sync while the allowance is overdrawn."""
        throttle = self._parts.throttle
        rest_ms = throttle.rest_ms(now)
        if rest_ms:
            named = [key for key, hosted in self._hosted.items() if throttle.names(hosted)]
            self._plan.hold(named, InstantMs(now + rest_ms))

    async def _await_flush(self) -> None:
        """Wait until everything followed here is on disk: that is what the next fetch may
        report. What is in a directory that takes no writes any longer is not waited for.
        """
        while any(_is_unsynced(one) for one in self._hosted.values()):
            self._synced.clear()
            self._parts.group_commits.request()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_LOOK_S):
                    await self._synced.wait()

    # -- answers

    async def _take(self, response: FetchResponse) -> None:
        """Apply an answer. Between two truncations other code runs: each may take long."""
        if response.error_code:
            self._plan.failed()
            if ErrorCode(response.error_code) in _SESSION_ERRORS:
                return
            raise ConnectionError(f"fetch refused: {ErrorCode(response.error_code).name}")
        self._retries.clear()
        now_ms = self._clock.wall_ms()
        for _, topic_id, partitions in response.topics:
            for result, records in partitions:
                key = (TopicId(topic_id), result.partition)
                hosted = self._asked(key)
                if hosted is None:
                    continue
                if result.diverging_epoch is not None and not result.error_code:
                    replay = await self._cut_prepared(hosted, *result.diverging_epoch)
                    if self._asked(key) is hosted:
                        self._take_partition(key, hosted, result, None, now_ms, replay)
                    continue
                self._take_partition(key, hosted, result, records, now_ms)
        self._plan.answered(response.session_id)
        self._log_not_followed()

    def _asked(self, key: PartitionKey) -> HostedPartition | None:
        """Return the partition of an answer; None if it is followed at another leader or in another
        epoch by now: the answer is void.
        """
        hosted = self._hosted.get(key)
        if hosted is None or self._plan.asked_epoch(key) != hosted.partition.leader_epoch:
            return None
        return hosted

    @staticmethod
    async def _cut_prepared(
        hosted: HostedPartition, leader_epoch: int, end: int
    ) -> ProducerReplay | None:
        """Prepare a truncation. What fails is met again, and handled, by the truncation itself."""
        with contextlib.suppress(DiskError, LogDamagedError):
            if hosted.partition.role is FOLLOWER and hosted.manager.fenced is None:
                replay = await prepare_cut(hosted, leader_epoch, end)
                if replay is not None:
                    return replay
        await asyncio.sleep(0)
        return None

    def _take_partition(
        self,
        key: PartitionKey,
        hosted: HostedPartition,
        result: FetchPartitionResult,
        records: memoryview | None,
        now_ms: int,
        replay: ProducerReplay | None = None,
    ) -> None:
        if hosted.partition.role is not FOLLOWER or hosted.manager.fenced is not None:
            self._back_off(key, hosted, "its log directory takes no writes")
            return
        try:
            problem = self._apply(hosted, result, records, now_ms, replay)
        except DiskError as failure:
            self._parts.disks.fence_directory(hosted.manager, failure)
            self._back_off(key, hosted, f"its log directory took nothing: {failure}")
        except LogDamagedError as damage:
            self._parts.disks.note_damage(hosted, damage)
            self._back_off(key, hosted, "its log is damaged")
        else:
            self._plan.took(key, result.high_watermark)
            if problem is not None:
                self._back_off(key, hosted, problem)
            elif self._failures:
                self._failures.pop(key, None)

    def _apply(
        self,
        hosted: HostedPartition,
        result: FetchPartitionResult,
        records: memoryview | None,
        now_ms: int,
        replay: ProducerReplay | None,
    ) -> str | None:
        """Apply the leader's answer. Returns the reason why the partition cannot be followed for
        now, or None. ``now_ms`` is wall time; ``replay`` is for a truncation.
        """
        parts, partition = self._parts, hosted.partition
        _, error_code, high_watermark, _, log_start, diverging = result[:6]
        if error_code:
            return self._apply_error(hosted, result)
        if diverging is not None:
            truncate(hosted, *diverging, replay)
            return None
        problem = None
        if records:
            if parts.throttle.names(hosted):
                parts.throttle.fetched(hosted, len(records), self._clock.now_ms())
            if partition.bounds.log_end == partition.bounds.log_start:
                make_room(hosted, records)
            epoch = partition.leader_epoch
            problem = parts.appender.append_replicated(hosted, records, epoch, now_ms)
        if partition.leader_told(high_watermark) and parts.on_readable is not None:
            parts.on_readable(hosted)
        if log_start > partition.bounds.log_start:
            hosted.log.advance_log_start(min(log_start, partition.high_watermark))
            parts.log_moves.log_start_moved(hosted)
        return problem

    @staticmethod
    def _apply_error(hosted: HostedPartition, result: FetchPartitionResult) -> str | None:
        """Begin again at the leader's log start, or return the error's name."""
        code = ErrorCode(result.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and result.log_start_offset >= 0:
            set_log_start(hosted, result.log_start_offset)
            return None
        return code.name

    def _back_off(self, key: PartitionKey, hosted: HostedPartition, reason: str) -> None:
        """Leave a partition out for a while, longer with each failure; news from the feed ends
        that.
        """
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        if failures not in self._retries:
            delay_ms = round(self._backoff.delay_ms(failures, self._dice()))
            self._retries[failures] = InstantMs(self._clock.now_ms() + delay_ms)
        self._plan.back_off(key, self._retries[failures])
        if failures == 1 or self._backoff.is_longest(failures):
            self._not_followed.setdefault(reason, []).append(str(hosted.topic_partition))

    def _log_not_followed(self) -> None:
        """Log the partitions of one answer that are not followed: a line each, or one for many."""
        for reason, names in self._not_followed.items():
            if len(names) > LINES_MAX:
                words = fields(**shortened("partitions", names), leader=self.leader, reason=reason)
                log.info("partitions not followed: retrying", extra=words)
                continue
            for name in names:
                words = fields(partition=name, leader=self.leader, reason=reason)
                log.info("partition not followed: retrying", extra=words)
        self._not_followed.clear()


def _is_unsynced(hosted: HostedPartition) -> bool:
    partition = hosted.partition
    return (
        hosted.manager.fenced is None
        and partition.role is FOLLOWER
        and partition.synced_end < partition.log_end
    )


def _key(hosted: HostedPartition) -> PartitionKey:
    return hosted.topic_id, hosted.topic_partition.partition
