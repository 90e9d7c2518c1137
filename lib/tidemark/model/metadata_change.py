"""MetadataChange: the difference of two images, by kind. The first image is compared with the empty
one.

Comparing large images takes time: ``changes`` is a generator that yields after bounded work.
"""

import enum
from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

from tidemark.model.ids import BrokerId, TopicId
from tidemark.model.metadata import (
    START_OF_FEED,
    ClusterDelta,
    ClusterImage,
    PartitionImage,
    TopicImage,
)

COMPARED_AT_ONCE: Final = 2_000
"""Partitions compared between two yields, which takes a few milliseconds."""


class Kind(enum.Flag):
    """Kinds of changes; a change of metadata has one or more."""

    TOPICS_CREATED = enum.auto()
    TOPICS_DELETED = enum.auto()
    PARTITIONS = enum.auto()
    """Changed or added partitions of an existing topic."""
    TOPIC_CONFIGS = enum.auto()
    BROKERS = enum.auto()
    BROKER_CONFIGS = enum.auto()
    GROUP_CONFIGS = enum.auto()
    ACLS = enum.auto()
    USERS = enum.auto()
    """Credentials of users."""
    QUOTAS = enum.auto()
    """Quotas of clients."""
    CLIENT_METRICS = enum.auto()
    """Subscriptions to metrics of clients."""
    COORDINATORS = enum.auto()
    """Coordinator services, and owners of their shards."""
    FIRST = enum.auto()
    """The first image of this process."""
    POSITION = enum.auto()
    """A new image: part of every change."""


class ChangedPartitions(NamedTuple):
    """Changed partitions of one topic of the new image."""

    topic: TopicImage
    numbers: tuple[int, ...]


class MetadataChange(NamedTuple):
    """Difference between ``before`` and ``image``."""

    before: ClusterImage
    image: ClusterImage
    kinds: Kind
    topics_created: tuple[TopicImage, ...]
    topics_deleted: tuple[TopicImage, ...]
    """Deleted topics as in ``before``."""
    topics_configured: tuple[TopicImage, ...]
    """Existing topics whose configuration changed."""
    partitions: tuple[ChangedPartitions, ...]
    brokers: frozenset[BrokerId]
    """Brokers that registered, changed or left."""

    @property
    def is_first(self) -> bool:
        """True for the first image of this process."""
        return Kind.FIRST in self.kinds


def changes(
    before: ClusterImage, image: ClusterImage, delta: ClusterDelta | None
) -> Generator[None, None, MetadataChange]:
    """Compare two images in bounded steps, restricted to the objects of ``delta`` unless None."""
    created: list[TopicImage] = []
    configured: list[TopicImage] = []
    partitions: list[ChangedPartitions] = []
    compared = 0
    for topic_id, states in ({} if delta is None else delta.partitions_changed).items():
        was = before.topics_by_id[topic_id].partitions
        places = tuple(one.partition for one in states if was[one.partition] != one)
        if places:
            partitions.append(ChangedPartitions(image.topics_by_id[topic_id], places))
    for topic in _topics(image, delta):
        old = before.topics_by_id.get(topic.topic_id)
        if old is None:
            created.append(topic)
            continue
        if old.configs != topic.configs:
            configured.append(topic)
        numbers = tuple(_changed(old.partitions, topic.partitions))
        if numbers:
            partitions.append(ChangedPartitions(topic, numbers))
        compared += len(topic.partitions)
        if compared >= COMPARED_AT_ONCE:
            compared = 0
            yield
    deleted = tuple(_deleted(before, image, delta))
    brokers = frozenset(_brokers(before, image))
    kinds = {
        Kind.FIRST: before.position == START_OF_FEED,
        Kind.TOPICS_CREATED: created,
        Kind.TOPICS_DELETED: deleted,
        Kind.PARTITIONS: partitions,
        Kind.TOPIC_CONFIGS: configured,
        Kind.BROKERS: brokers,
        Kind.BROKER_CONFIGS: image.broker_configs != before.broker_configs,
        Kind.GROUP_CONFIGS: image.group_configs != before.group_configs,
        Kind.ACLS: image.acls is not before.acls and image.acls != before.acls,
        Kind.USERS: image.users != before.users,
        Kind.QUOTAS: image.quotas is not before.quotas and image.quotas != before.quotas,
        Kind.CLIENT_METRICS: image.client_metrics != before.client_metrics,
        Kind.COORDINATORS: (image.coordinators, image.shards)
        != (before.coordinators, before.shards),
    }
    found = Kind.POSITION
    for kind, has_changed in kinds.items():
        if has_changed:
            found |= kind
    return MetadataChange(
        before,
        image,
        found,
        tuple(created),
        deleted,
        tuple(configured),
        tuple(partitions),
        brokers,
    )


def _topics(image: ClusterImage, delta: ClusterDelta | None) -> Iterator[TopicImage]:
    """Yield the topics of ``image`` that may have changed."""
    if delta is None:
        yield from image.topics_by_id.values()
        return
    for topic in delta.topics_changed:
        known = image.topics_by_id.get(topic.topic_id)
        if known is not None:
            yield known


def _changed(old: tuple[PartitionImage, ...], new: tuple[PartitionImage, ...]) -> Iterator[int]:
    if old is new:
        return
    for number, state in enumerate(new):
        if number >= len(old) or (state is not old[number] and state != old[number]):
            yield number


def _deleted(
    before: ClusterImage, image: ClusterImage, delta: ClusterDelta | None
) -> Iterator[TopicImage]:
    topic_ids = before.topics_by_id.keys() if delta is None else delta.topics_deleted
    for topic_id in topic_ids:
        topic = before.topics_by_id.get(TopicId(topic_id))
        if topic is not None and topic_id not in image.topics_by_id:
            yield topic


def _brokers(before: ClusterImage, image: ClusterImage) -> Iterator[BrokerId]:
    if before.brokers is image.brokers:
        return
    for broker_id in before.brokers.keys() | image.brokers.keys():
        if before.brokers.get(broker_id) != image.brokers.get(broker_id):
            yield broker_id
