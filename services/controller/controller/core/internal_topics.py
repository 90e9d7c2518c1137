"""Internal topics with fewer replicas than the configuration of the brokers sets: they were created
by an older release, in a smaller cluster, or by hand.

Replicas are added as in a reassignment, some partitions at a time. Once all are in sync,
min.insync.replicas is raised.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from tidemark.model.ids import NO_BROKER, BrokerId
from tidemark.model.metadata import (
    BrokerImage,
    ClusterDelta,
    ClusterImage,
    InternalTopic,
    PartitionImage,
    TopicImage,
)

from controller.core.cluster import Change, Cluster, Loads, with_partitions
from controller.core.configs import MIN_INSYNC
from controller.core.elr_on_config_change import without_elr
from controller.core.placement import node_of
from controller.core.reassignments import moved_to
from controller.core.topic_rules import rules_of

MOVES_MAX: Final = 5
"""Partitions of a topic that get replicas at the same time: each copies a log."""


def due_raise(cluster: Cluster) -> Change | None:
    """Return the next step of raising an internal topic; None if there is none."""
    for target in asked_for(cluster.image.brokers.values()):
        topic = cluster.image.topics.get(target.name)
        if topic is None:
            continue
        change = _more_replicas(cluster, topic, target.replication_factor)
        change = change or _higher_minimum(cluster.image, topic, target)
        if change is not None:
            return change
    return None


def asked_for(brokers: Iterable[BrokerImage]) -> list[InternalTopic]:
    """Return the least that all live brokers ask for: while they are restarted with another value,
    the smaller value.
    """
    least: dict[str, InternalTopic] = {}
    for one in (item for broker in brokers if not broker.fenced for item in broker.internal_topics):
        so_far = least.get(one.name, one)
        least[one.name] = InternalTopic(
            one.name,
            min(one.replication_factor, so_far.replication_factor),
            min(one.min_insync_replicas, so_far.min_insync_replicas),
        )
    return list(least.values())


def _more_replicas(cluster: Cluster, topic: TopicImage, factor: int) -> Change | None:
    image, loads = cluster.image, cluster.loads.copy()
    room = MOVES_MAX - sum(one.is_reassigning for one in topic.partitions)
    drafts: dict[int, PartitionImage] = {}
    for partition in topic.partitions:
        if len(drafts) >= room:
            break
        if partition.is_reassigning or partition.leader == NO_BROKER:
            continue
        target = extended(partition.replicas, image.brokers, loads, factor)
        if target != partition.replicas:
            drafts[partition.partition] = moved_to(partition, target, image.brokers)
            loads.add((target,))
    if not drafts:
        return None
    return Change(ClusterDelta(topics_changed=with_partitions(image, {topic.topic_id: drafts})))


def extended(
    replicas: tuple[BrokerId, ...],
    brokers: Mapping[BrokerId, BrokerImage],
    loads: Loads,
    factor: int,
) -> tuple[BrokerId, ...]:
    """Return ``factor`` replicas, these first. Others are on live brokers on other machines: other
    racks first, then the least loaded. Without enough brokers the replicas stay as they are.
    """
    made = list(replicas)
    while len(made) < factor:
        present = [brokers[one] for one in made if one in brokers]
        nodes = {node_of(one) for one in present}
        racks = Counter(one.rack for one in present)
        candidates = [
            one
            for one in brokers.values()
            if not one.fenced and not one.shutting_down and node_of(one) not in nodes
        ]
        if not candidates:
            return replicas
        best = min(
            candidates,
            key=lambda one: (racks[one.rack], loads.replicas[one.broker_id], one.broker_id),
        )
        made.append(best.broker_id)
    return tuple(made)


def _higher_minimum(image: ClusterImage, topic: TopicImage, target: InternalTopic) -> Change | None:
    """Raise the minimum once every partition has all replicas, and so many in sync that it accepts
    writes with the new minimum.
    """
    minimum = min(target.min_insync_replicas, target.replication_factor)
    if minimum <= rules_of(image, topic).min_insync_replicas:
        return None
    for one in topic.partitions:
        too_few = len(one.replicas) < target.replication_factor or len(one.isr) < minimum
        if too_few or one.is_reassigning:
            return None
    raised = replace(topic, configs={**topic.configs, MIN_INSYNC: str(minimum)})
    return Change(ClusterDelta(topics_changed=(without_elr(raised),)))
