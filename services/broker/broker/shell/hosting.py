"""Hosting: turns each new image into hosted partitions. Runs on the loop, inside the feed's
callback.

A topic is known by its id: a directory of another id under the same name is set aside (``-stray``)
and never served. What this broker does not host by the image is deleted when the feed said so, and
set aside when it was found at start.
"""

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from tidemark.model.config_values import InvalidConfigError
from tidemark.model.metadata import (
    START_OF_FEED,
    ClusterDelta,
    ClusterImage,
    PartitionImage,
    TopicImage,
)
from tidemark.model.topic_configs import TOPIC_CONFIG_KEYS, TopicConfig, topic_config
from tidemark.model.topics import TopicPartition
from tidemark.runtime.telemetry import fields
from tidemark.storage.disk import DiskError

from broker.core.partition import LogState, Partition, PartitionLimits, Role
from broker.core.unread_bytes import UNKNOWN_BYTES
from broker.shell.node import HostedPartition
from broker.storage.log import Log
from broker.storage.log_manager import LogManager
from broker.storage.recompression import rule_for

if TYPE_CHECKING:
    from broker.shell.node import BrokerNode

log = logging.getLogger(__name__)


class Following(Protocol):
    """Who fetches what this broker follows: hears of every hosted partition whose leader changed.
    Called on the loop, cheap.
    """

    def apply(self, hosted: HostedPartition) -> None:
        """Follow the partition's leader where it has one and we are not it; else stop that."""

    def remove(self, hosted: HostedPartition) -> None:
        """The partition is hosted no more."""

    def brokers_changed(self, image: ClusterImage) -> None:
        """A broker came, went, or is reached elsewhere."""


class Hosting:
    """What of the cluster's image lives on this broker."""

    def __init__(self, node: "BrokerNode", following: Following | None = None) -> None:
        self._node = node
        self._following = following
        self._complete = True
        self._changed: list[HostedPartition] = []
        """Whose leader changed by the image that is being taken."""

    def on_image(self, image: ClusterImage, delta: ClusterDelta | None) -> None:
        """Host by the new image, then show it. ``delta`` None: all of it may have changed."""
        node = self._node
        defaults_moved = delta is None or bool(delta.broker_configs_changed)
        changed = image.topics.values() if defaults_moved else delta_topics(delta)
        self._remove_gone(image)
        if self._following is not None and image.brokers != node.image.brokers:
            self._following.brokers_changed(image)
        defaults = self._defaults(image)
        for topic in changed:
            current = image.topics.get(topic.name)
            if current is not None and current.topic_id == topic.topic_id:
                self._host_topic(topic, defaults)
        if node.image.position == START_OF_FEED:
            self._set_strays_aside()
        node.take_image(image)
        self._wake_changed()

    def retry(self) -> None:
        """Host what no directory took before; called when a directory has healed."""
        if not self._complete:
            self._complete = True
            defaults = self._defaults(self._node.image)
            for topic in self._node.image.topics.values():
                self._host_topic(topic, defaults)
            self._wake_changed()

    def _wake_changed(self) -> None:
        """Who is parked hears who leads now: by the new image."""
        changed, self._changed = self._changed, []
        for hosted in changed:
            self._node.parked.gone(hosted)

    # -- topics

    def _defaults(self, image: ClusterImage) -> dict[str, str]:
        """What this broker was started with, under what was set for all brokers, under what was set
        for this one.
        """
        defaults = self._node.config.topic_defaults()
        for owner in ("", str(self._node.broker_id)):
            dynamic = image.broker_configs.get(owner, {})
            for key in TOPIC_CONFIG_KEYS.values():
                if key.broker_name in dynamic:
                    defaults[key.name] = dynamic[key.broker_name]
        return defaults

    def _host_topic(self, topic: TopicImage, defaults: dict[str, str]) -> None:
        config: TopicConfig | None = None
        for state in topic.partitions:
            if self._node.broker_id not in state.replicas:
                continue
            if config is None:
                config = _effective(topic, defaults)
            hosted = self._node.hosted.get((topic.name, state.partition))
            if hosted is None:
                hosted = self._begin(topic, state, config)
            if hosted is not None:
                self._follow(hosted, topic, state, config)

    def _begin(
        self, topic: TopicImage, state: PartitionImage, config: TopicConfig
    ) -> HostedPartition | None:
        """Take up a partition: from the directory that has it, else in a new one."""
        node = self._node
        topic_partition = TopicPartition(topic.name, state.partition)
        try:
            manager, found = self._directory(topic_partition, topic, config)
        except DiskError as failure:
            log.error(
                "partition not hosted",
                extra=fields(partition=str(topic_partition), reason=str(failure)),
            )
            self._complete = False
            return None
        partition = Partition(
            topic_partition,
            topic.topic_id,
            node.broker_id,
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
        hosted.counters = node.counters.topic(topic.name)
        node.hosted[topic_partition] = hosted
        node.hosted_by_id[topic.topic_id, state.partition] = hosted
        return hosted

    def _limits(self, config: TopicConfig) -> PartitionLimits:
        return PartitionLimits.of(config, records_max=self._node.config.batch_records_max)

    def _directory(
        self, topic_partition: TopicPartition, topic: TopicImage, config: TopicConfig
    ) -> tuple[LogManager, Log]:
        """Raises DiskError when no directory can take it."""
        node = self._node
        for manager in node.log_managers:
            found = manager.logs.get(topic_partition)
            if found is None:
                continue
            if found.topic_id == topic.topic_id:
                found.update_config(config)
                return manager, found
            log.warning("stray log set aside", extra=fields(partition=str(topic_partition)))
            manager.mark_stray(topic_partition)
        usable = [manager for manager in node.log_managers if manager.fenced is None]
        failure: DiskError | None = None
        for manager in sorted(usable, key=lambda one: len(one.logs)):
            try:
                node.on_new_log(manager, topic_partition)
                return manager, manager.create(
                    topic_partition, topic.topic_id, config, node.clock.wall_ms()
                )
            except DiskError as error:
                node.fence_directory(manager, error)
                failure = error
        raise failure or DiskError("log.dirs", "every log directory is fenced")

    def _follow(
        self,
        hosted: HostedPartition,
        topic: TopicImage,
        state: PartitionImage,
        config: TopicConfig,
    ) -> None:
        """Take over role and configuration as the image has them."""
        node, partition = self._node, hosted.partition
        hosted.topic = topic
        if hosted.log.config != config:
            hosted.log.update_config(config)
        was = (partition.role, partition.leader, partition.leader_epoch)
        high_watermark, replicas = partition.high_watermark, partition.replicas
        members = (partition.isr, replicas)
        partition.configure(self._limits(config))
        hosted.rule = rule_for(config)
        self._take_role(hosted, state)
        if partition.high_watermark != high_watermark:
            node.parked.moved(hosted, UNKNOWN_BYTES)
        elif (partition.isr, partition.replicas) != members:
            node.parked.has_news(hosted)
        if not set(replicas) <= set(partition.replicas):
            node.parked.replicas_left(hosted)
        if partition.limits.flush_group and partition.synced_end < partition.log_end:
            # It is not readable before a round has been: do not wait for a write.
            node.on_group_write()
        if was == (partition.role, partition.leader, partition.leader_epoch):
            return
        self._changed.append(hosted)
        if self._following is not None:
            self._following.apply(hosted)
        log.info(
            "partition taken up",
            extra=fields(
                partition=str(partition.topic_partition),
                role=partition.role.name.lower(),
                leader=partition.leader,
                epoch=state.leader_epoch,
            ),
        )

    def _take_role(self, hosted: HostedPartition, state: PartitionImage) -> None:
        """Lead, follow or neither, as the image says."""
        node, partition, epochs = self._node, hosted.partition, hosted.log.epochs
        if state.leader == node.broker_id:
            if partition.lead(state, node.clock.now_ms()):
                # Followers ask by epoch at once; on disk it is needed with its first record.
                epochs.assign(partition.leader_epoch, partition.log_end)
            return
        if partition.role is Role.LEADER:
            epochs.truncate_to(partition.log_end)  # nothing was written in the epoch that ends
        if state.leader >= 0:
            partition.follow(state)
        else:
            partition.become_offline(state.leader, state.leader_epoch)

    # -- what goes

    def _remove_gone(self, image: ClusterImage) -> None:
        """Delete what we host of topics that are gone, made anew, or moved away."""
        node = self._node
        gone = [hosted for hosted in node.hosted.values() if not self._belongs(image, hosted)]
        for hosted in gone:
            topic_partition = hosted.topic_partition
            del node.hosted[topic_partition]
            del node.hosted_by_id[hosted.topic_id, topic_partition.partition]
            hosted.partition.become_offline(hosted.partition.leader, hosted.partition.leader_epoch)
            self._changed.append(hosted)
            if self._following is not None:
                self._following.remove(hosted)
            log.info("partition deleted", extra=fields(partition=str(topic_partition)))
            try:
                hosted.manager.delete(topic_partition, node.clock.wall_ms())
            except DiskError as failure:
                node.fence_directory(hosted.manager, failure)

    def _belongs(self, image: ClusterImage, hosted: HostedPartition) -> bool:
        topic = image.topics_by_id.get(hosted.topic_id)
        number = hosted.topic_partition.partition
        return (
            topic is not None
            and number < len(topic.partitions)
            and self._node.broker_id in topic.partitions[number].replicas
        )

    def _set_strays_aside(self) -> None:
        """At start: directories of topics that are no more, or not ours."""
        for manager in self._node.log_managers:
            strays = [
                topic_partition
                for topic_partition in manager.logs
                if topic_partition not in self._node.hosted
            ]
            for topic_partition in strays:
                log.warning("stray log set aside", extra=fields(partition=str(topic_partition)))
                try:
                    manager.mark_stray(topic_partition)
                except DiskError as failure:
                    self._node.fence_directory(manager, failure)


def delta_topics(delta: ClusterDelta | None) -> Iterable[TopicImage]:
    """The topics that a delta brings."""
    return delta.topics_changed if delta is not None else ()


def _effective(topic: TopicImage, defaults: dict[str, str]) -> TopicConfig:
    try:
        return topic_config(topic.configs, defaults)
    except InvalidConfigError as reason:
        # The controller checks a topic's settings; together with this broker's they may still
        # contradict.
        log.error("topic configuration", extra=fields(topic=topic.name, reason=str(reason)))
        return topic_config(topic.configs)
