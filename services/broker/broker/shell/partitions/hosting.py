"""Hosting: turns each new image into hosted partitions. Runs on the loop, inside the feed's
callback.

A topic is identified by its id: a directory of another id under the same name is set aside
(``-stray``) and never served. A partition that the image takes away from this broker is deleted if
the feed said so, and set aside if it was found at the start.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol

from tidemark.model.ids import TopicId
from tidemark.model.metadata import ClusterImage, PartitionImage, TopicImage
from tidemark.model.metadata_change import Kind, MetadataChange
from tidemark.model.topic_configs import TopicConfig
from tidemark.model.topics import TopicPartition
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.telemetry import fields
from tidemark.storage.disk import DiskError, ExhaustedError

from broker.core.partition import LogState, Partition, PartitionLimits, Role
from broker.core.unread_bytes import UNKNOWN_BYTES
from broker.core.unsound import FOUND_AT_START, is_new_here, may_repair
from broker.shell.counters import BrokerCounters
from broker.shell.facts import BrokerFacts
from broker.shell.partitions.directory_moves import DirectoryMoves
from broker.shell.partitions.disk_health import DiskHealth
from broker.shell.partitions.group_commits import GroupCommits
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.partitions.parking_lot import ParkingLot
from broker.shell.partitions.repairs import Repairs
from broker.shell.partitions.role_log import log_roles
from broker.shell.partitions.table import PartitionTable
from broker.shell.partitions.topic_defaults import broker_defaults, effective
from broker.shell.subscribers import HOSTING, PARKED_REQUESTS
from broker.storage.log import Log
from broker.storage.log_manager import LogManager
from broker.storage.recompression import rule_for

log = logging.getLogger(__name__)

HOSTED_AT_ONCE: Final = 32
"""Partitions between two steps: each may open or create a log, which takes some 0.2 ms."""


class Following(Protocol):
    """Fetching of what this broker follows: notified of every hosted partition whose leader, or
    whose ``flush``, changed. Called on the loop; calls are cheap.
    """

    def apply(self, hosted: HostedPartition) -> None:
        """Follow the partition's leader if it has one that is another broker; otherwise stop
        following.
        """

    def remove(self, hosted: HostedPartition) -> None:
        """Stop following a partition that is no longer hosted."""

    def brokers_changed(self, image: ClusterImage) -> None:
        """Handle a broker that was added, removed, or has another address."""


class Hosting:
    """The part of the cluster's image that is hosted on this broker."""

    def __init__(
        self,
        facts: BrokerFacts,
        following: Following | None = None,
        *,
        metadata: MetadataCache,
        table: PartitionTable,
        disks: DiskHealth,
        parked: ParkingLot,
        group_commits: GroupCommits,
        counters: BrokerCounters,
        moves: DirectoryMoves,
        on_new_log: Callable[[LogManager, TopicPartition], None],
        on_retried: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_new_log`` is called before a log is created: anything kept under its name is
        void. ``on_retried`` is called after a partition was tried again: no image shows that it
        has a role now.
        """
        self._broker_id = facts.broker_id
        self._config = facts.config
        self._clock = facts.clock
        self._metadata = metadata
        self._table = table
        self._disks = disks
        self._parked = parked
        self._group_commits = group_commits
        self._counters = counters
        self._moves = moves
        self._on_new_log = on_new_log
        self._on_retried = on_retried
        self._following = following
        self._is_hosting = False
        self._unfinished: dict[tuple[TopicId, int], None] = {}
        """Partitions that no directory took, or whose log could not be repaired."""
        self._is_due = False
        """True if they are to be tried again without waiting for a directory that heals."""
        self._repairs = Repairs()
        self._changed: list[HostedPartition] = []
        """Partitions whose leader changed by the image that is being taken."""
        kinds = Kind.TOPICS_CREATED | Kind.TOPICS_DELETED | Kind.PARTITIONS | Kind.TOPIC_CONFIGS
        kinds |= Kind.BROKERS | Kind.BROKER_CONFIGS | Kind.FIRST
        metadata.subscribe(HOSTING, kinds, self._host)
        metadata.subscribe(PARKED_REQUESTS, kinds, self._wake_changed)

    def _host(self, change: MetadataChange) -> Iterator[None]:
        """Host partitions of an image that is not shown yet, in bounded steps."""
        self._is_hosting = True
        for topic in change.topics_deleted:
            yield from self._remove(topic, range(len(topic.partitions)))
        if self._following is not None and Kind.BROKERS in change.kinds:
            self._following.brokers_changed(change.image)
        defaults = broker_defaults(self._config, change.image, self._broker_id)
        for topic, numbers in _places(change):
            yield from self._host_partitions(topic, numbers, defaults)
        if change.is_first:
            self._set_strays_aside()
            self._moves.discard_unknown()
        self._is_hosting = False

    def unserved(self) -> int:
        """Return how many partitions that this broker leads in the image have no log here yet.

        Those of a directory that has failed do not count: waiting does not bring them back, and the
        broker serves what its other directories have.
        """
        return sum(map(self._leads, self._unfinished))

    def _leads(self, key: tuple[bytes, int]) -> bool:
        topic = self._metadata.image.topics_by_id.get(TopicId(key[0]))
        number = key[1]
        if topic is None or number >= len(topic.partitions):
            return False
        return topic.partitions[number].leader == self._broker_id

    async def retry(self) -> None:
        """Host or repair partitions that failed before, in bounded steps; called when a directory
        has healed.
        """
        self._is_due = False
        for number, key in enumerate(tuple(self._unfinished)):
            if number % HOSTED_AT_ONCE == HOSTED_AT_ONCE - 1:
                await asyncio.sleep(0)
            if self._is_hosting or self._is_due:
                # A newer image comes first, or there is still no descriptor.
                self._is_due = True
                return
            self._retry_one(*key)

    async def retry_due(self) -> None:
        """Retry partitions that failed for want of descriptors; called periodically."""
        if self._is_due:
            await self.retry()

    async def repair(self) -> None:
        """Repair logs that a thread has to walk before they are cut."""
        while True:
            key = await self._repairs.walk()
            if self._is_hosting:  # a newer image comes first
                self._unfinished[key] = None
                self._is_due = True
            else:
                self._retry_one(*key)

    def _retry_one(self, topic_id: TopicId, number: int) -> None:
        self._unfinished.pop((topic_id, number), None)
        topic = self._metadata.image.topics_by_id.get(topic_id)
        if topic is not None:
            defaults = broker_defaults(self._config, self._metadata.image, self._broker_id)
            for _ in self._host_partitions(topic, (number,), defaults):
                pass
            self._wake_changed()
            self._on_retried()
        self._repairs.forget((topic_id, number))

    def _not_finished(self, topic_id: TopicId, number: int, failure: DiskError) -> None:
        self._unfinished[topic_id, number] = None
        self._is_due = self._is_due or isinstance(failure, ExhaustedError)

    def _wake_changed(self, _: MetadataChange | None = None) -> None:
        """Wake parked requests of partitions whose leader changed, once the new image is shown, and
        log the partitions.
        """
        changed, self._changed = self._changed, []
        for hosted in changed:
            self._parked.gone(hosted)
        log_roles(changed)

    # -- topics

    def _host_partitions(
        self, topic: TopicImage, numbers: Sequence[int], defaults: dict[str, str]
    ) -> Iterator[None]:
        """Host these partitions of a topic as the image has them, and remove those that moved
        away.
        """
        config, hosted_now = None, 0
        for number in numbers:
            state = topic.partitions[number]
            hosted = self._table.by_id.get((topic.topic_id, number))
            if self._broker_id not in state.replicas:
                if hosted is not None:
                    self._remove_one(hosted)
                continue
            if config is None:
                config = effective(topic, defaults)
            if hosted is None:
                hosted = self._begin(topic, state, config)
            if hosted is not None:
                self._follow(hosted, state, config)
            hosted_now += 1
            if hosted_now % HOSTED_AT_ONCE == 0:
                yield

    def _begin(
        self, topic: TopicImage, state: PartitionImage, config: TopicConfig
    ) -> HostedPartition | None:
        """Begin to host a partition: from the directory that has it, otherwise in a new one."""
        topic_partition = TopicPartition(topic.name, state.partition)
        try:
            manager, found = self._directory(topic_partition, topic, state, config)
        except DiskError as failure:
            log.error(
                "partition not hosted",
                extra=fields(partition=str(topic_partition), reason=str(failure)),
            )
            self._not_finished(topic.topic_id, state.partition, failure)
            return None
        partition = Partition(
            topic_partition,
            topic.topic_id,
            self._broker_id,
            limits=self._limits(config),
            state=LogState(
                found.log_start,
                found.log_end,
                found.synced_end,
                manager.high_watermarks.get(topic_partition, -1),
            ),
            epochs=found.epochs,
            producers=found.producers,
        )
        hosted = HostedPartition(topic, partition, found, manager)
        hosted.counters = self._counters.topic(topic.name)
        if found.damage is not None:
            hosted.unsound_since = FOUND_AT_START
        if manager.failure is not None:
            partition.become_failed()
        self._table.add(hosted)
        self._moves.resume(hosted)
        return hosted

    def _limits(self, config: TopicConfig) -> PartitionLimits:
        return PartitionLimits.of(config, records_max=self._config.batch_records_max)

    def _directory(
        self,
        topic_partition: TopicPartition,
        topic: TopicImage,
        state: PartitionImage,
        config: TopicConfig,
    ) -> tuple[LogManager, Log]:
        """Choose a directory. Raises DiskError when none can take it, or it may be in one that
        failed.
        """
        for manager in self._disks.log_managers:
            found = manager.logs.get(topic_partition)
            if found is None:
                continue
            if found.topic_id == topic.topic_id:
                found.update_config(config)
                return manager, found
            log.warning("stray log set aside", extra=fields(partition=str(topic_partition)))
            manager.mark_stray(topic_partition)
        if self._disks.lacks_directory and not is_new_here(state, self._broker_id):
            raise DiskError("log.dirs", "its log may be in a directory that is out of service")
        usable = [manager for manager in self._disks.log_managers if manager.fenced is None]
        failure: DiskError | None = None
        chosen = self._moves.directory_for_new(topic_partition)
        for manager in sorted(usable, key=lambda one: (one is not chosen, len(one.logs))):
            try:
                manager.disk.expect_room()  # a half-made log would be a stray at the next try
                self._on_new_log(manager, topic_partition)
                return manager, manager.create(
                    topic_partition, topic.topic_id, config, self._clock.wall_ms()
                )
            except DiskError as error:
                self._disks.fence_directory(manager, error)
                failure = error
        raise failure or DiskError("log.dirs", "every log directory is fenced")

    def _follow(
        self,
        hosted: HostedPartition,
        state: PartitionImage,
        config: TopicConfig,
    ) -> None:
        """Take over role and configuration from the image."""
        partition = hosted.partition
        if hosted.log.config != config:
            hosted.log.update_config(config)
        was = (partition.role, partition.leader, partition.leader_epoch)
        high_watermark, replicas = partition.high_watermark, partition.replicas
        members, flush_group = (partition.isr, replicas), partition.limits.flush_group
        partition.configure(self._limits(config))
        hosted.rule = rule_for(config)
        self._take_role(hosted, state)
        is_repaired = self._maybe_repair(hosted, state, last_epoch=was[2])
        if partition.high_watermark != high_watermark:
            self._parked.moved(hosted, UNKNOWN_BYTES)
        if (partition.isr, partition.replicas) != members:
            self._parked.has_news(hosted)
        if not set(replicas) <= set(partition.replicas):
            self._parked.followers_look_again(hosted)
        if partition.limits.flush_group and partition.synced_end < partition.log_end:
            # Records are readable only after a round: do not wait for a write to request it.
            self._group_commits.request()
        is_same = was == (partition.role, partition.leader, partition.leader_epoch)
        if not is_same or is_repaired:
            self._changed.append(hosted)
        elif partition.limits.flush_group == flush_group:
            return
        self._tell_following(hosted)

    def _tell_following(self, hosted: HostedPartition) -> None:
        """Follow the leader that the partition has now, on the connection for its ``flush``."""
        if self._following is None:
            return
        if hosted.is_unsound:
            self._following.remove(hosted)
        else:
            self._following.apply(hosted)

    def _take_role(self, hosted: HostedPartition, state: PartitionImage) -> None:
        """Lead, follow or neither, by the image."""
        partition, epochs = hosted.partition, hosted.log.epochs
        if state.leader == self._broker_id:
            if partition.lead(state, self._clock.now_ms()):
                # Followers ask by epoch at once; on disk the epoch is needed with its first record.
                epochs.assign(partition.leader_epoch, partition.log_end)
            return
        if partition.role is Role.LEADER:
            epochs.truncate_to(partition.log_end)  # nothing was written in the epoch that ends
        if state.leader >= 0:
            partition.follow(state)
        else:
            partition.become_offline(state.leader, state.leader_epoch)

    # -- damage

    def note_unsound(self, hosted: HostedPartition) -> None:
        """Note that the disk of this replica failed or lost bytes. It no longer fetches, so that no
        fetch of it counts in a later leader epoch than the present one.
        """
        if hosted.unsound_since is None:
            hosted.unsound_since = hosted.partition.leader_epoch
            if self._following is not None:
                self._following.remove(hosted)

    def _maybe_repair(
        self, hosted: HostedPartition, state: PartitionImage, *, last_epoch: int
    ) -> bool:
        """Truncate a damaged log that no longer counts anywhere, so that it is fetched from its
        leader, if it need not be walked first. ``last_epoch``: the last epoch in which this replica
        may have fetched. Return True if it was truncated.
        """
        if hosted.log.damage is None or hosted.partition.role is not Role.FOLLOWER:
            return False
        if hosted.unsound_since is None:
            hosted.unsound_since = last_epoch
        if not may_repair(state, self._broker_id, unsound_since=hosted.unsound_since):
            return False
        damage, before = hosted.log.damage, hosted.partition.log_end
        try:
            prepared = self._repairs.prepared(hosted)
            if prepared is None:
                return False
            with prepared:
                hosted.log.repair()
        except DiskError as failure:
            self._disks.fence_directory(hosted.manager, failure)
            self._not_finished(hosted.topic_id, state.partition, failure)
            return False
        if hosted.log.log_start == hosted.partition.log_start:
            hosted.partition.truncated(hosted.log.log_end, hosted.log.synced_end)
        else:
            hosted.partition.started_at(hosted.log.log_start)
        hosted.unsound_since = None
        log.warning(
            "damaged log truncated, to be fetched again",
            extra=fields(
                partition=str(hosted.topic_partition),
                leader=state.leader,
                log_end=hosted.log.log_end,
                was=before,
                reason=damage,
            ),
        )
        return True

    # -- removal

    def _remove(self, topic: TopicImage, numbers: Iterable[int]) -> Iterator[None]:
        """Delete the partitions of a deleted topic."""
        for number in numbers:
            hosted = self._table.by_id.get((topic.topic_id, number))
            if hosted is not None:
                self._remove_one(hosted)
                if number % HOSTED_AT_ONCE == 0:
                    yield

    def _remove_one(self, hosted: HostedPartition) -> None:
        topic_partition = hosted.topic_partition
        self._moves.cancel(hosted)
        self._table.remove(hosted)
        if not self._table.hosts_topic(topic_partition.topic):
            self._counters.forget_topic(topic_partition.topic)
        hosted.partition.become_offline(hosted.partition.leader, hosted.partition.leader_epoch)
        self._changed.append(hosted)
        if self._following is not None:
            self._following.remove(hosted)
        log.info("partition deleted", extra=fields(partition=str(topic_partition)))
        try:
            hosted.manager.delete(topic_partition, self._clock.wall_ms())
        except DiskError as failure:
            self._disks.fence_directory(hosted.manager, failure)

    def _set_strays_aside(self) -> None:
        """Set aside, at the start, directories of topics that do not exist or are hosted
        elsewhere.
        """
        for manager in self._disks.log_managers:
            strays = [
                topic_partition
                for topic_partition in manager.logs
                if topic_partition not in self._table.by_name
            ]
            for topic_partition in strays:
                log.warning("stray log set aside", extra=fields(partition=str(topic_partition)))
                try:
                    manager.mark_stray(topic_partition)
                except DiskError as failure:
                    self._disks.fence_directory(manager, failure)


def _places(change: MetadataChange) -> Iterator[tuple[TopicImage, Sequence[int]]]:
    """Return topic and number of the partitions whose state or settings may have changed."""
    if change.is_first or Kind.BROKER_CONFIGS in change.kinds:
        whole: Iterable[TopicImage] = change.image.topics.values()
    else:
        whole = (*change.topics_created, *change.topics_configured)
        configured = {topic.topic_id for topic in change.topics_configured}
        for topic, numbers in change.partitions:
            if topic.topic_id not in configured:
                yield topic, numbers
    for topic in whole:
        yield topic, range(len(topic.partitions))
