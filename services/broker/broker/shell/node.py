"""BrokerNode: what one broker process holds, and the append and the read that Kafka's listener and
gRPC share.

Everything here runs on the event loop. ``append`` and ``read`` are synchronous: they are the hot
path's three calls (admit, append, appended) and its one (read), with bytes, disk and clock around
the core's decisions.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from crc32c import crc32c
from tidemark.codec.record_batch import (
    CRC_START,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_V2,
    read_header,
    set_base_offset_and_epoch,
    set_log_append_time,
)
from tidemark.kafka.fetch import FetchPartition
from tidemark.model.backoff import Dice
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID, BrokerEpoch, BrokerId, TopicId
from tidemark.model.metadata import ClusterImage
from tidemark.model.metadata_change import Kind, MetadataChange
from tidemark.model.topics import TopicPartition
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.clock import Clock
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.storage.disk import DiskError, DiskFullError, ExhaustedError

from broker.config import BrokerConfig
from broker.core.authorizer import Authorizer
from broker.core.fetch_sessions import FetchSessions
from broker.core.partition import AppendPlan, Partition, Refusal, Repeated, Role
from broker.core.quotas import Quotas
from broker.shell.disk_health import DiskHealth
from broker.shell.groups.coordinator import Groups
from broker.shell.hosted import AppendOutcome as AppendOutcome
from broker.shell.hosted import HostedPartition as HostedPartition
from broker.shell.hosted import ReadOutcome as ReadOutcome
from broker.shell.leader_throttle import LeaderThrottle
from broker.shell.limits import ConnectionLimits
from broker.shell.parking_lot import ParkingLot, parked_limits
from broker.shell.replication.follower_throttle import FollowerThrottle
from broker.shell.txn_relay import TxnRelay
from broker.shell.txn_verifier import TxnVerifier
from broker.storage.directory import LogDamagedError
from broker.storage.log import OffsetOutOfRangeError
from broker.storage.log_manager import LogManager

if TYPE_CHECKING:
    from tidemark.runtime.controller_client import ControllerClient
    from tidemark.runtime.producer_ids import ProducerIds
    from tidemark.runtime.worker_pool import WorkerPool

log = logging.getLogger(__name__)

HOSTING: Final = "hosting"
PARKED_REQUESTS: Final = "parked-requests"
LIVE_BROKERS: Final = "live-brokers"
THROTTLES: Final = "throttles"
GROUPS: Final = "groups"
LISTENERS: Final = "listeners"
MEMBERSHIP: Final = "membership"
ACT_FIRST: Final = (HOSTING,)
"""Subscribers of the metadata that act before a new image is shown: partitions of it are hosted."""
ACT_THEN: Final = (LIVE_BROKERS, THROTTLES, PARKED_REQUESTS, GROUPS, LISTENERS, MEMBERSHIP)


_NO_ERROR: Final = ErrorCode.NONE
_DAMAGED: Final = Refusal(
    ErrorCode.KAFKA_STORAGE_ERROR, "the partition's log is damaged: see the broker's log"
)
_CORRUPT: Final = Refusal(ErrorCode.CORRUPT_MESSAGE, "the batch does not match its CRC")
_NO_BATCH: Final = Refusal(
    ErrorCode.INVALID_RECORD, "a partition's records must be exactly one record batch"
)


class BrokerNode(DiskHealth):
    """One broker: its partitions, the current image, and the services that handlers use."""

    def __init__(
        self,
        config: BrokerConfig,
        log_managers: Sequence[LogManager],
        *,
        clock: Clock,
        controller: "ControllerClient",
        producer_ids: "ProducerIds",
        workers: "WorkerPool",
        lookups: "WorkerPool | None" = None,
        draw_session_id: Callable[[], int],
        channels: ChannelPool | None = None,
        authorizer: Authorizer | None = None,
        quotas: Quotas | None = None,
        failed_directories: Sequence[str] = (),
        dice: Dice = random.random,
    ) -> None:
        """``failed_directories``: those of log.dirs that did not open. ``dice`` spreads retries."""
        super().__init__(log_managers, failed_directories)
        self.config = config
        self.broker_id = BrokerId(config.broker_id)
        self.broker_epoch = -1
        self.metadata = MetadataCache(first=ACT_FIRST, then=ACT_THEN)
        self.hosted_by_id: dict[tuple[bytes, int], HostedPartition] = {}
        self.clock = clock
        self.dice = dice
        self.controller = controller
        self.producer_ids = producer_ids
        self.workers = workers
        """Look at the records of batches before they are appended."""
        self.lookups = lookups or workers
        """Look for the record of a point in time."""
        self.authorizer = authorizer or Authorizer()
        self.quotas = quotas or Quotas()
        self.leader_throttle = LeaderThrottle(config)
        self.follower_throttle = FollowerThrottle(config)
        self.metrics = self.counters
        self.limits = ConnectionLimits(
            connections_max=config.max_connections,
            connections_per_ip_max=config.max_connections_per_ip,
            buffers_max_bytes=config.buffers_max_bytes,
        )
        self.fetch_sessions: FetchSessions[FetchPartition] = FetchSessions(
            draw_session_id, sessions_max=config.max_incremental_fetch_session_cache_slots
        )
        self.parked = ParkingLot(parked_limits(config), clock, self.fetch_sessions)
        self.live: dict[BrokerId, BrokerEpoch] = {}
        """Brokers that may be in an ISR: registered, neither fenced nor stopping."""
        self.has_lease: Callable[[], bool] = _always
        """Whether nobody else can lead what this broker leads."""
        self.on_follower: Callable[[HostedPartition], None] = _not_noticed
        """Called when a follower outside the ISR made progress."""
        self.on_replica_synced: Callable[[HostedPartition], None] = _not_noticed
        """Called when a flush round reached more of what is followed here."""
        self.on_group_write: Callable[[], None] = _nothing
        """Called when a batch awaits a group-commit round."""
        self.on_new_log: Callable[[LogManager, TopicPartition], None] = _nothing_made
        """Called before a log is made: nothing kept under its name is true of it."""
        self.txn = TxnRelay(self.metadata, ChannelPool() if channels is None else channels, dice)
        self.txn_verifier: TxnVerifier | None = None
        """Asked about transactional batches; None: transaction.partition.verification.enable is
        off.
        """
        self.groups = Groups(
            self, config.group_settings(), commit_timeout_ms=config.offsets_commit_timeout_ms
        )
        self.topics_being_created: dict[str, asyncio.Future[None]] = {}
        """Automatic creations under way, by topic name."""
        self.metadata.subscribe(LIVE_BROKERS, Kind.BROKERS, self._note_live)
        self.metadata.subscribe(GROUPS, Kind.POSITION | Kind.TOPICS_DELETED, self.groups.follow)
        self.metadata.subscribe(THROTTLES, Kind.BROKER_CONFIGS, self._set_throttles)

    @property
    def image(self) -> ClusterImage:
        """All metadata as last shown."""
        return self.metadata.image

    # -- finding

    def find(self, topic: str, topic_id: bytes, partition: int) -> HostedPartition | ErrorCode:
        """The partition by name or (name '') by id, if it is hosted here; else what the asker
        hears.
        """
        if topic:
            found = self.hosted.get((topic, partition))
            if found is not None:
                if topic_id != NO_TOPIC_ID and topic_id != found.topic_id:
                    return ErrorCode.INCONSISTENT_TOPIC_ID
                return found
            known = self.image.topics.get(topic)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            found = self.hosted_by_id.get((topic_id, partition))
            if found is not None:
                return found
            known = self.image.topics_by_id.get(TopicId(topic_id))
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        if known is None:
            return unknown
        if not 0 <= partition < len(known.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if known.partitions[partition].leader == self.broker_id:
            return ErrorCode.KAFKA_STORAGE_ERROR  # ours by the image, yet no directory took it
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def registration(self) -> tuple[int, int]:
        """Broker id and current broker epoch."""
        return self.broker_id, self.broker_epoch

    # -- metadata

    def _note_live(self, change: MetadataChange) -> None:
        self.live = {
            one.broker_id: one.broker_epoch
            for one in change.image.brokers.values()
            if not one.fenced and not one.shutting_down
        }

    def _set_throttles(self, change: MetadataChange) -> None:
        self.leader_throttle.configure(change.image)
        self.follower_throttle.configure(change.image)

    # -- append

    def append(
        self,
        hosted: HostedPartition,
        batches: memoryview,
        *,
        acks: int,
        leader_epoch_expected: int = -1,
        now_ms: int,
    ) -> AppendOutcome:
        """Append one or more whole batches, patched in place. ``now_ms`` is wall time.

        Several batches (gRPC) are appended one by one; at the first refusal those before it stay.
        """
        first: AppendOutcome | None = None
        outcome = None
        position, end = 0, len(batches)
        while position < end:
            size = end - position
            if size >= HEADER_BYTES:
                declared = read_header(batches, position).batch_length + LENGTH_PREFIX_BYTES
                size = declared if HEADER_BYTES <= declared <= size else size
            outcome = self.append_batch(
                hosted,
                batches[position : position + size],
                acks,
                now_ms,
                leader_epoch_expected=leader_epoch_expected,
            )
            if outcome.error_code:
                return outcome
            first = first or outcome
            position += size
        if first is None or outcome is None:
            return self.refused(hosted, _NO_BATCH)
        return outcome._replace(base_offset=first.base_offset)

    def append_batch(
        self,
        hosted: HostedPartition,
        batch: memoryview,
        acks: int,
        now_ms: int,
        *,
        leader_epoch_expected: int = -1,
    ) -> AppendOutcome:
        """The hot path, for exactly one batch: admit, write once, appended."""
        size_bytes = len(batch)
        if size_bytes < HEADER_BYTES:
            return self.refused(hosted, _NO_BATCH)
        header = read_header(batch)
        if (
            header.magic == MAGIC_V2
            and header.batch_length + LENGTH_PREFIX_BYTES == size_bytes
            and crc32c(batch[CRC_START:]) != header.crc
        ):
            return self.refused(hosted, _CORRUPT)
        partition = hosted.partition
        plan = partition.admit(
            header,
            size_bytes,
            acks=acks,
            leader_epoch_expected=leader_epoch_expected,
            now_ms=now_ms,
        )
        if not isinstance(plan, AppendPlan):
            return self.not_planned(hosted, plan, acks)
        if plan.log_append_time_ms >= 0:
            set_log_append_time(batch, plan.log_append_time_ms)
        # A plan has the fields of AppendInfo, and plain numbers: making either anew costs 0.3 us.
        set_base_offset_and_epoch(batch, 0, plan.first, plan.leader_epoch)  # type: ignore[arg-type]
        try:
            hosted.log.append((batch,), plan, now_ms)  # type: ignore[arg-type]
        except DiskError as failure:
            return self.append_failed(hosted, plan, failure)
        except LogDamagedError as damage:
            return self.damaged(hosted, damage)
        gained_bytes = partition.appended(plan, now_ms)
        counters = hosted.counters
        counters.bytes_in += size_bytes
        counters.records_in += header.record_count
        end = plan.last + 1
        if self.parked.count or self.fetch_sessions.resting:
            self.parked.appended(hosted, size_bytes, gained_bytes)
        if not gained_bytes and partition.limits.flush_group:
            self.on_group_write()
        must_wait = (
            partition.high_watermark < end and acks != 0 and self._must_wait(partition, end, acks)
        )
        return AppendOutcome(
            _NO_ERROR,
            plan.first,
            end,
            plan.log_append_time_ms,
            partition.log_start,
            must_wait,
            None,
        )

    def not_planned(
        self, hosted: HostedPartition, plan: Repeated | Refusal, acks: int
    ) -> AppendOutcome:
        """What is refused, or was appended before."""
        if isinstance(plan, Refusal):
            return self.refused(hosted, plan)
        end = plan.last + 1
        return AppendOutcome(
            _NO_ERROR,
            plan.first,
            end,
            plan.log_append_time_ms,
            hosted.partition.log_start,
            acks != 0 and self._must_wait(hosted.partition, end, acks),
            None,
        )

    def _must_wait(self, partition: Partition, end: int, acks: int) -> bool:
        """An acknowledgement that does not wait for the ISR needs the lease."""
        has_lease = acks != 1 or self.has_lease()
        return not partition.acknowledgeable(end, acks, has_lease=has_lease)

    def append_failed(
        self, hosted: HostedPartition, plan: AppendPlan, failure: DiskError
    ) -> AppendOutcome:
        """A full disk only stops writes, and heals; any other error takes the directory out of
        service.
        """
        stays = isinstance(failure, DiskFullError | ExhaustedError)
        self.fence_directory(hosted.manager, failure)
        return self.refused(hosted, hosted.partition.append_failed(plan, fenced=not stays))

    def damaged(self, hosted: HostedPartition, damage: LogDamagedError) -> AppendOutcome:
        """Nothing can be appended to a log whose end is lost."""
        self.note_damage(hosted, damage)
        return self.refused(hosted, _DAMAGED)

    @staticmethod
    def refused(hosted: HostedPartition, refusal: Refusal) -> AppendOutcome:
        """What a refusal looks like to who asked for the append."""
        hosted.counters.failed_produces += 1
        return AppendOutcome(
            refusal.error_code,
            base_offset=-1,
            end=-1,
            log_append_time_ms=-1,
            log_start=hosted.partition.log_start,
            must_wait=False,
            message=refusal.message,
            refused_records=refusal.records,
        )

    # -- read

    def read(
        self,
        hosted: HostedPartition,
        fetch_offset: int,
        *,
        bytes_max: int,
        read_committed: bool = False,
        leader_epoch_expected: int = -1,
    ) -> ReadOutcome:
        """What is readable from ``fetch_offset``: slices of up to ``bytes_max`` bytes, the first
        batch always whole. ``read_committed``: below the last stable offset, with the aborted
        transactions among it.
        """
        partition = hosted.partition
        refused = partition.epoch_refused(leader_epoch_expected)
        if refused is not None:
            return ReadOutcome(refused.error_code, None, -1, -1, -1)
        high_watermark, log_start = partition.high_watermark, partition.log_start
        stable = partition.last_stable
        end = stable if read_committed else high_watermark
        if fetch_offset >= end:
            code = (
                ErrorCode.OFFSET_OUT_OF_RANGE
                if fetch_offset > partition.log_end
                else ErrorCode.NONE
            )
            return ReadOutcome(code, None, high_watermark, stable, log_start)
        outcome = self.read_log(hosted, fetch_offset, bytes_max=bytes_max, end=end)
        if not read_committed or outcome.read is None or not outcome.read.slices:
            return outcome
        return self._with_aborted(hosted, outcome, fetch_offset, end)

    def _with_aborted(
        self, hosted: HostedPartition, outcome: ReadOutcome, start: int, end: int
    ) -> ReadOutcome:
        assert outcome.read is not None
        try:
            aborted = hosted.log.aborted_in(start, outcome.read, end)
        except DiskError as failure:
            self.fence_directory(hosted.manager, failure)
            return ReadOutcome(ErrorCode.KAFKA_STORAGE_ERROR, None, -1, -1, -1)
        except LogDamagedError as damage:
            self.note_damage(hosted, damage)
            return ReadOutcome(ErrorCode.KAFKA_STORAGE_ERROR, None, -1, -1, -1)
        if not aborted:
            return outcome
        return outcome._replace(aborted=[(txn.producer_id, txn.first_offset) for txn in aborted])

    def read_log(
        self, hosted: HostedPartition, fetch_offset: int, *, bytes_max: int, end: int
    ) -> ReadOutcome:
        """Slices of the log below ``end``: whole batches, the first one however large."""
        partition = hosted.partition
        high_watermark, log_start = partition.high_watermark, partition.log_start
        stable = partition.last_stable
        try:
            found = hosted.log.read(fetch_offset, bytes_max, end=end)
        except OffsetOutOfRangeError:
            return ReadOutcome(
                ErrorCode.OFFSET_OUT_OF_RANGE, None, high_watermark, stable, log_start
            )
        except DiskError as failure:
            self.fence_directory(hosted.manager, failure)
            return ReadOutcome(ErrorCode.KAFKA_STORAGE_ERROR, None, -1, -1, -1)
        except LogDamagedError as damage:
            self.note_damage(hosted, damage)
            return ReadOutcome(ErrorCode.KAFKA_STORAGE_ERROR, None, -1, -1, -1)
        return ReadOutcome(ErrorCode.NONE, found, high_watermark, stable, log_start)

    # -- moves from maintenance

    def synced(self, hosted: HostedPartition, end: int) -> None:
        """A flush round reached ``end`` in this log."""
        before = hosted.partition.high_watermark
        gained_bytes = hosted.partition.synced(end)
        if hosted.partition.high_watermark != before:
            self.parked.moved(hosted, gained_bytes)
        if hosted.partition.role is Role.FOLLOWER:
            self.on_replica_synced(hosted)

    def log_start_moved(self, hosted: HostedPartition) -> None:
        """Retention or DeleteRecords moved the log's start."""
        if hosted.log.log_start > hosted.partition.log_start:
            hosted.partition.log_start_moved(hosted.log.log_start)
            self.parked.has_news(hosted)

    def by_topic_partition(self) -> dict[TopicPartition, HostedPartition]:
        """All hosted partitions."""
        return {one.topic_partition: one for one in self.hosted.values()}


def _nothing() -> None:
    """No one waits for group commits."""


def _always() -> bool:
    """Nobody else could lead: there is no controller."""
    return True


def _not_noticed(_: HostedPartition) -> None:
    """No one replicates."""


def _nothing_made(_: LogManager, __: TopicPartition) -> None:
    """No one keeps anything by the name of a log."""
