"""Metrics of the controller, under the names of Kafka's exporter. A standby has zeros."""

from collections import Counter
from collections.abc import Iterable

from tidemark.model.ids import NO_BROKER
from tidemark.model.metadata import COORDINATOR_KINDS, NO_COORDINATOR, TopicImage
from tidemark.runtime.metrics import Metrics

from controller.shell.changes import MILLISECONDS_BUCKETS
from controller.shell.node import ControllerNode


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
