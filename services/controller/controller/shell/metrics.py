"""Metrics of a controller, under the names of Kafka's exporter and of kafka_exporter.

A standby controller has zeros, and none of the series that exist once in a cluster.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial

from tidemark.model.ids import NO_BROKER
from tidemark.model.metadata import COORDINATOR_KINDS, NO_COORDINATOR, PartitionImage, TopicImage
from tidemark.runtime.exposition import LabelValues
from tidemark.runtime.metrics import Metrics

from controller.shell.changes import MILLISECONDS_BUCKETS
from controller.shell.node import ControllerNode

_NO_LEADER = -1
_OF_LEADERLESS = (
    ("leader", "broker id of a partition's leader; -1: none"),
    ("leader_is_preferred", "1 if a partition is led by its preferred replica"),
    ("replicas", "replicas of a partition"),
    ("in_sync_replica", "in-sync replicas of a partition"),
    ("under_replicated_partition", "1 if a replica of a partition is not in sync"),
)


def measure(node: ControllerNode, metrics: Metrics) -> None:
    """Register the metrics, under the names of Kafka's exporter. A standby has zeros."""
    prefix = "kafka_controller_kafkacontroller"
    metrics.computed_one(f"{prefix}_activecontrollercount", lambda: float(node.is_active))
    metrics.computed_one(f"{prefix}_globaltopiccount", lambda: sum(1 for _ in _image_topics(node)))
    metrics.computed_one(
        f"{prefix}_globalpartitioncount",
        lambda: sum(len(topic.partitions) for topic in _image_topics(node)),
    )
    metrics.computed_one(f"{prefix}_offlinepartitionscount", lambda: _offline(node))
    metrics.computed_one(f"{prefix}_activebrokercount", lambda: _brokers(node, fenced=False))
    metrics.computed_one(f"{prefix}_fencedbrokercount", lambda: _brokers(node, fenced=True))
    metrics.computed_one(
        f"{prefix}_metadataerrorcount",
        lambda: float(node.stats.faults.value),
        "internal errors; each ends a term, or refuses a request",
    )
    _measure_topics(node, metrics)
    metrics.computed(
        "tidemark_controller_coordinators",
        lambda: _coordinators(node),
        "registered replicas of coordinator services",
        ("kind",),
    )
    metrics.computed(
        "tidemark_controller_unowned_shards",
        lambda: _unowned(node),
        "shards that no coordinator serves",
        ("kind",),
    )
    metrics.computed_one(
        f"{prefix}_preferredreplicaimbalancecount",
        lambda: _not_preferred(node),
        "partitions not led by their preferred replica",
    )
    metrics.computed_one(
        f"{prefix}_reassigningpartitionscount",
        lambda: _reassigning(node),
        "partitions whose replicas are being moved",
    )
    prefix = "kafka_controller_controllerstats"
    node.stats.times_ms = metrics.timings(
        f"{prefix}_leaderelectionrateandtimems",
        "milliseconds to write and publish a change that elects leaders",
        bounds=MILLISECONDS_BUCKETS,
    ).at()
    node.stats.unclean = metrics.counter(
        f"{prefix}_uncleanleaderelections", "leaders elected that may lack acknowledged records"
    ).at()
    metrics.computed(
        "tidemark_controller_feed_lag_updates",
        lambda: _feed_lags(node),
        "updates that a subscriber has not acknowledged",
        ("subscriber",),
    )


def _measure_topics(node: ControllerNode, metrics: Metrics) -> None:
    """Register series that exist once in a cluster. The series of a partition with a leader are its
    leader's.
    """
    metrics.computed(
        "kafka_brokers",
        lambda: [((), float(_brokers(node, fenced=False)))] if node.is_active else [],
        "brokers that are registered and not fenced",
    )
    metrics.computed(
        "kafka_topic_partitions",
        lambda: _partition_counts(node),
        "partitions of a topic",
        ("topic",),
    )
    for number, (name, doc) in enumerate(_OF_LEADERLESS):
        metrics.computed(
            f"kafka_topic_partition_{name}",
            partial(_of_leaderless, node, number),
            f"{doc}; here only partitions without a leader",
            ("topic", "partition"),
        )


def _partition_counts(node: ControllerNode) -> Iterator[tuple[LabelValues, float]]:
    """Yield the number of partitions of each topic, on the active controller."""
    topics = tuple(_image_topics(node)) if node.is_active else ()
    return (((topic.name,), float(len(topic.partitions))) for topic in topics)


def _of_leaderless(node: ControllerNode, number: int) -> Iterator[tuple[LabelValues, float]]:
    """Yield one figure of _OF_LEADERLESS for each partition without a leader, on the active
    controller.
    """
    for topic in tuple(_image_topics(node)) if node.is_active else ():
        for partition in topic.partitions:
            if partition.leader == NO_BROKER:
                labels = (topic.name, str(partition.partition))
                yield labels, _figures_of(partition)[number]


def _figures_of(partition: PartitionImage) -> tuple[float, ...]:
    in_sync, replicas = len(partition.isr), len(partition.replicas)
    return _NO_LEADER, 0, replicas, in_sync, float(in_sync < replicas)


def _image_topics(node: ControllerNode) -> Iterable[TopicImage]:
    return () if node.image is None else node.image.topics.values()


def _offline(node: ControllerNode) -> int:
    return sum(
        partition.leader == NO_BROKER
        for topic in _image_topics(node)
        for partition in topic.partitions
    )


def _not_preferred(node: ControllerNode) -> int:
    return sum(
        partition.leader != partition.replicas[0]
        for topic in _image_topics(node)
        for partition in topic.partitions
    )


def _reassigning(node: ControllerNode) -> int:
    return sum(
        partition.is_reassigning for topic in _image_topics(node) for partition in topic.partitions
    )


def _brokers(node: ControllerNode, *, fenced: bool) -> int:
    if node.image is None:
        return 0
    return sum(broker.fenced is fenced for broker in node.image.brokers.values())


def _coordinators(node: ControllerNode) -> list[tuple[tuple[str, ...], float]]:
    registered = () if node.image is None else node.image.coordinators
    counts = Counter(kind for kind, _ in registered)
    return [((kind,), float(counts[kind])) for kind in COORDINATOR_KINDS]


def _unowned(node: ControllerNode) -> list[tuple[tuple[str, ...], float]]:
    shards = {} if node.image is None else node.image.shards
    return [
        ((kind,), float(sum(one.coordinator_id == NO_COORDINATOR for one in shards.get(kind, ()))))
        for kind in COORDINATOR_KINDS
    ]


def _feed_lags(node: ControllerNode) -> list[tuple[tuple[str, ...], float]]:
    if node.image is None:
        return []
    epoch, version_now = node.image.position
    lags: list[tuple[tuple[str, ...], float]] = []
    for item in node.feed.subscriptions:
        seen = item.acknowledged.version if item.acknowledged.controller_epoch == epoch else -1
        lags.append(((item.name,), float(version_now - seen)))
    return lags
