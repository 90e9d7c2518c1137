"""Decisions on topics: create, delete, add partitions. Each topic of a request is decided alone."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import NO_TOPIC_ID, BrokerId
from tidemark.model.metadata import BrokerImage, ClusterDelta, TopicImage
from tidemark.model.topics import INTERNAL_TOPICS, metric_name, topic_name_problem

from controller.core.cluster import Change, Cluster, Loads, new_partition
from controller.core.configs import check_topic_configs
from controller.core.effects import TopicResult
from controller.core.inputs import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    TopicRef,
)
from controller.core.liveness import active
from controller.core.placement import Replicas, check_assignment, place

UNSET: Final = -1
METADATA_TOPIC: Final = "__cluster_metadata"
"""The only name that Kafka reserves. Clients may create other names with two underscores."""


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """Defaults of requests that name no counts, and bounds of requests."""

    partition_count: int = 1
    replication_factor: int = 1
    partitions_per_request_max: int = 10_000
    replicas_per_topic_max: int = 50_000  # of all partitions: they are one znode, of at most 1 MB
    may_delete: bool = True

    def __post_init__(self) -> None:
        assert self.partition_count > 0, "num.partitions"
        assert self.replication_factor > 0, "default.replication.factor"
        assert self.partitions_per_request_max > 0, "partitions per request"
        assert self.replicas_per_topic_max > 0, "replicas per topic"


class _Draft:
    """The cluster with all topics that a request has created so far."""

    def __init__(self, cluster: Cluster, defaults: TopicDefaults, dice: int) -> None:
        self.cluster = cluster
        self.defaults = defaults
        self.dice = dice
        self.loads: Loads = cluster.loads.copy()
        self.brokers: dict[BrokerId, BrokerImage] = dict(cluster.image.brokers)
        self.active = active(cluster.image.brokers)
        self.partitions_left = defaults.partitions_per_request_max

    def spend(self, partition_count: int) -> None:
        """Count new partitions. Raises TidemarkError POLICY_VIOLATION beyond the bound."""
        if partition_count > self.partitions_left:
            raise TidemarkError(
                ErrorCode.POLICY_VIOLATION,
                "Excessively large number of partitions per request: at most"
                f" {self.defaults.partitions_per_request_max} may be created at once.",
            )
        self.partitions_left -= partition_count

    def place(
        self, existing: Iterable[Replicas], partition_count: int, replication_factor: int
    ) -> list[Replicas]:
        """Place the replicas of new partitions, and count them. Raises TidemarkError."""
        existing = tuple(existing)
        self.spend(partition_count)
        placed = place(
            self.brokers.values(),
            self.loads,
            existing,
            partition_count=partition_count,
            replication_factor=replication_factor,
            dice=self.dice,
        )
        self.loads.add(placed)
        return placed


def _twice(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name, count in Counter(names).items() if count > 1)


def _duplicate(name: str) -> TopicResult:
    return TopicResult(name, error=ErrorCode.INVALID_REQUEST, message="Duplicate topic name.")


def _refused(name: str, error: TidemarkError) -> TopicResult:
    return TopicResult(name, error=error.code, message=error.message)


def _granted(topic: TopicImage) -> TopicResult:
    return TopicResult(
        topic.name,
        topic.topic_id,
        partition_count=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=topic.configs,
    )


def _change(topics: list[TopicImage], *, validate_only: bool) -> Change | None:
    if validate_only or not topics:
        return None
    return Change(ClusterDelta(topics_changed=tuple(topics)))


# -- creation


def decide_create_topics(
    cluster: Cluster, request: CreateTopics, defaults: TopicDefaults
) -> tuple[Change | None, tuple[TopicResult, ...]]:
    """Return the change, if any, and the results to send once it is written."""
    draft = _Draft(cluster, defaults, request.dice)
    twice = _twice(topic.name for topic in request.topics)
    created: list[TopicImage] = []
    results: list[TopicResult] = []
    taken: dict[str, str] = {}
    for new in request.topics:
        if new.name in twice:
            results.append(_duplicate(new.name))
            continue
        try:
            _check_name(cluster, taken, new.name)
            topic = _create(draft, new)
        except TidemarkError as error:
            results.append(_refused(new.name, error))
            continue
        taken[metric_name(new.name)] = new.name
        created.append(topic)
        results.append(_granted(topic))
    return _change(created, validate_only=request.validate_only), tuple(results)


def _metric(name: str) -> str:
    return name.replace(".", "_")


def _check_name(cluster: Cluster, taken: Mapping[str, str], name: str) -> None:
    problem = topic_name_problem(name)
    if problem is None and name == METADATA_TOPIC:
        problem = f"Creation of internal topic {name} is prohibited."
    if problem is not None:
        raise TidemarkError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if name in cluster.image.topics:
        raise TidemarkError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = cluster.colliding_topic(name) or taken.get(metric_name(name))
    if other is not None:
        raise TidemarkError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {other}",
        )


def _create(draft: _Draft, new: NewTopic) -> TopicImage:
    configs = dict(new.configs or {})
    check_topic_configs(configs, draft.cluster.image.broker_configs)
    assignment = _assigned(draft, new) if new.assignments else _counted(draft, new)
    _check_replicas(draft, assignment)
    return TopicImage(
        name=new.name,
        topic_id=new.topic_id,
        configs=configs,
        partitions=tuple(
            new_partition(number, replicas, draft.active)
            for number, replicas in enumerate(assignment)
        ),
    )


def _counted(draft: _Draft, new: NewTopic) -> list[Replicas]:
    if new.replication_factor == 0 or new.replication_factor < UNSET:
        raise TidemarkError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if new.partition_count == 0 or new.partition_count < UNSET:
        raise TidemarkError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions must be larger than 0, or -1 to use the default value.",
        )
    defaults = draft.defaults
    partition_count = (
        defaults.partition_count if new.partition_count == UNSET else new.partition_count
    )
    replication_factor = (
        defaults.replication_factor if new.replication_factor == UNSET else new.replication_factor
    )
    return draft.place((), partition_count, replication_factor)


def _assigned(draft: _Draft, new: NewTopic) -> list[Replicas]:
    for name, count in (
        ("replication factor", new.replication_factor),
        ("numPartitions", new.partition_count),
    ):
        if count != UNSET:
            raise TidemarkError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {name} was not set to -1.",
            )
    numbers = Counter(number for number, _ in new.assignments)
    repeated = [number for number, count in numbers.items() if count > 1]
    if repeated:
        raise TidemarkError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Found multiple manual partition assignments for partition {repeated[0]}",
        )
    if set(numbers) != set(range(len(numbers))):
        raise TidemarkError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    assignment = [replicas for _, replicas in sorted(new.assignments)]
    draft.spend(len(assignment))
    _take_assignment(draft, assignment, None)
    return assignment


def _take_assignment(
    draft: _Draft, assignment: list[Replicas], replication_factor: int | None
) -> None:
    for replicas in assignment:
        check_assignment(replicas, draft.brokers, replication_factor)
        replication_factor = len(replicas)
        if draft.active.isdisjoint(replicas):
            raise TidemarkError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"All brokers specified in the manual partition assignment {replicas} are fenced or"
                " in controlled shutdown.",
            )
    draft.loads.add(assignment)


def _check_replicas(draft: _Draft, assignment: list[Replicas]) -> None:
    replicas_max = draft.defaults.replicas_per_topic_max
    if sum(map(len, assignment)) > replicas_max:
        raise TidemarkError(
            ErrorCode.POLICY_VIOLATION,
            f"A topic may have {replicas_max} replicas, those of all its partitions together.",
        )


# -- deletion


def decide_delete_topics(
    cluster: Cluster, request: DeleteTopics, defaults: TopicDefaults
) -> tuple[Change | None, tuple[TopicResult, ...]]:
    """Return the change, if any, and the results to send once it is written."""
    if not defaults.may_delete:
        code, words = ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled."
        return None, tuple(TopicResult(*ref, code, words) for ref in request.topics)
    named = [(ref, _find(cluster, ref)) for ref in request.topics]
    twice = _twice(topic.name for _, topic in named if topic is not None)
    deleted: list[TopicImage] = []
    results: list[TopicResult] = []
    for ref, topic in named:
        if topic is None:
            results.append(_unknown(ref))
        elif topic.name in twice:
            results.append(_duplicate(topic.name))
        elif topic.name in INTERNAL_TOPICS:
            results.append(_refused(topic.name, _undeletable(topic.name)))
        else:
            deleted.append(topic)
            results.append(_granted(topic))
    if not deleted:
        return None, tuple(results)
    delta = ClusterDelta(topics_deleted=tuple(topic.topic_id for topic in deleted))
    return Change(delta), tuple(results)


def _undeletable(name: str) -> TidemarkError:
    """Return the refusal to delete an internal topic. Kafka deletes them, with all their state."""
    return TidemarkError(
        ErrorCode.INVALID_REQUEST,
        f"Topic '{name}' is internal: deleting it would lose the durable state of every group or"
        " transaction of this cluster.",
    )


def _find(cluster: Cluster, ref: TopicRef) -> TopicImage | None:
    if ref.name:
        return cluster.image.topics.get(ref.name)
    return cluster.image.topics_by_id.get(ref.topic_id)


def _unknown(ref: TopicRef) -> TopicResult:
    code = (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if ref.name or ref.topic_id == NO_TOPIC_ID
        else ErrorCode.UNKNOWN_TOPIC_ID
    )
    words = (
        f"The topic '{ref.name}' does not exist."
        if ref.name
        else "This server does not host this topic ID."
    )
    return TopicResult(ref.name, ref.topic_id, code, words)


# -- additional partitions


def decide_create_partitions(
    cluster: Cluster, request: CreatePartitions, defaults: TopicDefaults
) -> tuple[Change | None, tuple[TopicResult, ...]]:
    """Return the change, if any, and the results to send once it is written."""
    draft = _Draft(cluster, defaults, request.dice)
    twice = _twice(more.name for more in request.topics)
    grown: list[TopicImage] = []
    results: list[TopicResult] = []
    for more in request.topics:
        if more.name in twice:
            results.append(_duplicate(more.name))
            continue
        try:
            topic = _grow(draft, more)
        except TidemarkError as error:
            results.append(_refused(more.name, error))
            continue
        grown.append(topic)
        results.append(_granted(topic))
    return _change(grown, validate_only=request.validate_only), tuple(results)


def _grow(draft: _Draft, more: MorePartitions) -> TopicImage:
    topic = draft.cluster.image.topics.get(more.name)
    if topic is None:
        raise TidemarkError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{more.name}' does not exist."
        )
    if topic.name in INTERNAL_TOPICS:
        raise TidemarkError(
            ErrorCode.INVALID_REQUEST,
            f"The number of partitions of internal topic '{topic.name}' cannot be changed: names"
            " would fall into other partitions than those that hold their state.",
        )
    present = len(topic.partitions)
    added = more.partition_count - present
    if added <= 0:
        raise TidemarkError(ErrorCode.INVALID_PARTITIONS, _no_increase(more, present))
    if more.assignments and len(more.assignments) != added:
        raise TidemarkError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {added} additional partition(s), but only"
            f" {len(more.assignments)} assignment(s) were specified.",
        )
    existing = [partition.replicas for partition in topic.partitions]
    replication_factor = len(existing[0])
    assignment = list(more.assignments)
    if assignment:
        draft.spend(added)
        _take_assignment(draft, assignment, replication_factor)
    else:
        assignment = draft.place(existing, added, replication_factor)
    _check_replicas(draft, existing + assignment)
    new = tuple(
        new_partition(present + index, replicas, draft.active)
        for index, replicas in enumerate(assignment)
    )
    return replace(topic, partitions=topic.partitions + new)


def _no_increase(more: MorePartitions, present: int) -> str:
    if more.partition_count == present:
        return f"Topic already has {present} partition(s)."
    return (
        f"The topic {more.name} currently has {present} partition(s);"
        f" {more.partition_count} would not be an increase."
    )
