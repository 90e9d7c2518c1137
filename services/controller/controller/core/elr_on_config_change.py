"""Eligible leader replicas when configuration changes.

They hold all committed records because the high watermark did not move while the ISR was below
min.insync.replicas. After a change of that minimum this is uncertain, and no replica stays
eligible. Without any replica in sync nobody leads, so that the watermark does not move whatever the
minimum is: those that are eligible stay so, for no other is known to have all records.
"""

from dataclasses import replace

from tidemark.model.ids import PartitionEpoch
from tidemark.model.metadata import ClusterImage, FeedPosition, TopicImage

from controller.core.cluster import Change, Cluster
from controller.core.configs import decide_alter_configs
from controller.core.effects import ConfigResult
from controller.core.inputs import AlterConfigs
from controller.core.topic_rules import rules_of


def decide_configs(
    cluster: Cluster, request: AlterConfigs
) -> tuple[Change | None, tuple[ConfigResult, ...]]:
    """Decide as ``decide_alter_configs``, and clear the ELR of partitions whose minimum changes."""
    change, results = decide_alter_configs(cluster, request)
    if change is None:
        return None, results
    before, delta = cluster.image, change.delta
    epoch, version = before.position
    after = before.apply(delta, FeedPosition(epoch, version + 1), before.controller_id)
    topics = {topic.topic_id: topic for topic in delta.topics_changed}
    for topic in after.topics.values():
        if any(one.elr for one in topic.partitions) and _minimum_changed(before, after, topic):
            topics[topic.topic_id] = without_elr(topic)
    return replace(change, delta=replace(delta, topics_changed=tuple(topics.values()))), results


def _minimum_changed(before: ClusterImage, after: ClusterImage, topic: TopicImage) -> bool:
    was = rules_of(before, before.topics_by_id[topic.topic_id])
    return was.min_insync_replicas != rules_of(after, topic).min_insync_replicas


def without_elr(topic: TopicImage) -> TopicImage:
    """Return the topic with the ELR of each partition empty, except where nobody is in sync."""
    return replace(
        topic,
        partitions=tuple(
            replace(one, elr=(), partition_epoch=PartitionEpoch(one.partition_epoch + 1))
            if one.elr and one.isr
            else one
            for one in topic.partitions
        ),
    )
