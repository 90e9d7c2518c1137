import pytest
from controller.core.cluster import Cluster
from controller.core.effects import TopicResult
from controller.core.inputs import (
    CreatePartitions,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    RequestHeader,
    TopicRef,
)
from controller.core.topics import (
    TopicDefaults,
    decide_create_partitions,
    decide_create_topics,
    decide_delete_topics,
)
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID, BrokerId
from tidemark.model.metadata import TopicImage
from tidemark.model.topics import INTERNAL_TOPICS
from unit.controller.worlds import (
    NEVER,
    a_broker,
    a_cluster,
    a_topic,
    applied,
    create,
    new_topic,
    topic_id,
)

REQUEST = RequestHeader(1, NEVER)
DEFAULTS = TopicDefaults(partition_count=4, replication_factor=2, partitions_per_request_max=100)
HAND = {"partition_count": -1, "replication_factor": -1}


def one_result(cluster: Cluster, topic: NewTopic) -> TopicResult:
    change, (result,) = decide_create_topics(cluster, create(topic), DEFAULTS)
    assert (change is None) == (result.error is not ErrorCode.NONE)
    return result


def assigned(*assignments: tuple[int, tuple[int, ...]]) -> NewTopic:
    made = tuple((number, tuple(map(BrokerId, replicas))) for number, replicas in assignments)
    return new_topic("a", **HAND, assignments=made)


@pytest.mark.feature("H02", "H06")
def test_a_created_topic_is_in_the_image_with_its_leaders_spread() -> None:
    cluster = a_cluster()
    change, (result,) = decide_create_topics(cluster, create(new_topic("a", 6, 3)), DEFAULTS)
    applied(cluster, change)
    leaders = sorted(partition.leader for partition in cluster.image.topics["a"].partitions)
    assert leaders == [1, 1, 2, 2, 3, 3]
    assert result == TopicResult("a", topic_id("a"), partition_count=6, replication_factor=3)


def with_one_stopping(*topics: TopicImage) -> Cluster:
    """Return a cluster whose broker 1 shuts down."""
    brokers = (a_broker(1, shutting_down=True), a_broker(2), a_broker(3))
    return a_cluster(*topics, brokers=brokers)


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_a_broker_that_shuts_down_neither_leads_a_new_partition_nor_is_in_sync(factor: int) -> None:
    cluster = with_one_stopping(a_topic("old", (2, 3)))
    change, _ = decide_create_topics(cluster, create(new_topic("a", 6, factor)), DEFAULTS)
    applied(cluster, change)
    more = CreatePartitions(REQUEST, (MorePartitions("old", 4),), dice=0)
    applied(cluster, decide_create_partitions(cluster, more, DEFAULTS)[0])
    for one in (*cluster.image.topics["a"].partitions, *cluster.image.topics["old"].partitions):
        assert one.leader in (2, 3)
        assert set(one.isr) == set(one.replicas) - {1}
        assert 1 not in one.replicas or factor == 3, "there are enough others"


def test_an_assignment_by_hand_needs_a_broker_that_does_not_shut_down() -> None:
    cluster = with_one_stopping()
    refused = one_result(cluster, assigned((0, (1,))))
    assert refused.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "are fenced or in controlled shutdown" in refused.message
    change, _ = decide_create_topics(cluster, create(assigned((0, (1, 2)))), DEFAULTS)
    applied(cluster, change)
    (made,) = cluster.image.topics["a"].partitions
    assert (made.replicas, made.isr, made.leader) == ((1, 2), (2,), 2)


def test_counts_of_minus_one_are_the_defaults() -> None:
    result = one_result(a_cluster(), new_topic("a", -1, -1))
    assert (result.partition_count, result.replication_factor) == (4, 2)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (new_topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic("__cluster_metadata"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic("old"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (new_topic("dotted_name"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic("a", 0), ErrorCode.INVALID_PARTITIONS),
        (new_topic("a", -2), ErrorCode.INVALID_PARTITIONS),
        (new_topic("a", 101), ErrorCode.POLICY_VIOLATION),
        (new_topic("a", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new_topic("a", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new_topic("a", configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (new_topic("a", configs={"retention": "1"}), ErrorCode.INVALID_CONFIG),
        (new_topic("a", configs={"retention.ms": "1" * 70_000}), ErrorCode.INVALID_CONFIG),
    ],
)
def test_an_invalid_topic_is_refused(topic: NewTopic, code: ErrorCode) -> None:
    cluster = a_cluster(a_topic("old", (1,)), a_topic("dotted.name", (1,)))
    result = one_result(cluster, topic)
    assert result.error is code
    assert result.message


def test_a_replication_factor_beyond_the_brokers_is_refused_in_kafkas_words() -> None:
    assert one_result(a_cluster(), new_topic("a", 1, 4)).message == (
        "Unable to replicate the partition 4 time(s): The target replication factor of 4 cannot"
        " be reached because only 3 broker(s) are registered."
    )


def test_a_topic_has_a_bounded_number_of_replicas() -> None:
    small = TopicDefaults(replicas_per_topic_max=5)
    _, (result,) = decide_create_topics(a_cluster(), create(new_topic("a", 2, 3)), small)
    assert result.error is ErrorCode.POLICY_VIOLATION
    request = CreatePartitions(REQUEST, (MorePartitions("a", 6),), dice=0)
    _, (result,) = decide_create_partitions(a_cluster(a_topic("a", (1,))), request, small)
    assert result.error is ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_internal_topics_are_created_as_requested_and_neither_deleted_nor_grown(name: str) -> None:
    configs = {"cleanup.policy": "compact", "min.insync.replicas": "2"}
    result = one_result(a_cluster(), new_topic(name, 50, 3, configs=configs))
    assert (result.error, result.partition_count, result.configs) == (ErrorCode.NONE, 50, configs)
    cluster = a_cluster(a_topic(name, (1, 2)))
    change, (refused,) = decide_delete_topics(
        cluster, DeleteTopics(REQUEST, (TopicRef("", topic_id(name)),)), DEFAULTS
    )
    assert (change, refused.error) == (None, ErrorCode.INVALID_REQUEST)
    assert "is internal" in refused.message
    more = CreatePartitions(REQUEST, (MorePartitions(name, 6),), dice=0)
    change, (refused,) = decide_create_partitions(cluster, more, DEFAULTS)
    assert (change, refused.error) == (None, ErrorCode.INVALID_REQUEST)


def test_names_with_two_underscores_are_anyones() -> None:
    assert one_result(a_cluster(), new_topic("__consumer_offsets")).error is ErrorCode.NONE


def test_an_assignment_by_hand_is_taken_as_it_is() -> None:
    cluster = a_cluster()
    change, _ = decide_create_topics(cluster, create(assigned((1, (3,)), (0, (2,)))), DEFAULTS)
    applied(cluster, change)
    replicas = [partition.replicas for partition in cluster.image.topics["a"].partitions]
    assert replicas == [(2,), (3,)]


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (assigned((0, (1,)), (0, (2,))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((1, (1,))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, (1,)), (1, (1, 2))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, (7,))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new_topic("a", 1, -1, assignments=((0, (BrokerId(1),)),)), ErrorCode.INVALID_REQUEST),
        (new_topic("a", -1, 1, assignments=((0, (BrokerId(1),)),)), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_wrong_assignment_is_refused(topic: NewTopic, code: ErrorCode) -> None:
    assert one_result(a_cluster(), topic).error is code


def test_topics_of_a_request_stand_or_fall_alone() -> None:
    request = create(new_topic("good"), new_topic("bad!"), new_topic("x.y"), new_topic("x_y"))
    change, results = decide_create_topics(a_cluster(), request, DEFAULTS)
    good, bad = ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION
    assert [result.error for result in results] == [good, bad, good, bad]
    assert change is not None
    assert [topic.name for topic in change.delta.topics_changed] == ["good", "x.y"]


def test_a_name_twice_in_a_request_is_refused_both_times() -> None:
    request = create(new_topic("a"), new_topic("a"))
    change, results = decide_create_topics(a_cluster(), request, DEFAULTS)
    assert change is None
    assert {result.error for result in results} == {ErrorCode.INVALID_REQUEST}


def test_validating_only_changes_nothing() -> None:
    request = create(new_topic("a", 3), validate_only=True)
    change, (result,) = decide_create_topics(a_cluster(), request, DEFAULTS)
    assert (change, result.error, result.partition_count) == (None, ErrorCode.NONE, 3)


@pytest.mark.parametrize("ref", [TopicRef("a", NO_TOPIC_ID), TopicRef("", topic_id("a"))])
def test_a_topic_is_deleted_by_name_or_by_id(ref: TopicRef) -> None:
    cluster = a_cluster(a_topic("a", (1,)), a_topic("b", (1,)))
    change, (result,) = decide_delete_topics(cluster, DeleteTopics(REQUEST, (ref,)), DEFAULTS)
    applied(cluster, change)
    assert (set(cluster.image.topics), result.name, result.error) == ({"b"}, "a", ErrorCode.NONE)


@pytest.mark.parametrize(
    ("ref", "code"),
    [
        (TopicRef("gone", NO_TOPIC_ID), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicRef("", topic_id("gone")), ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
def test_an_unknown_topic_is_not_deleted(ref: TopicRef, code: ErrorCode) -> None:
    change, (result,) = decide_delete_topics(a_cluster(), DeleteTopics(REQUEST, (ref,)), DEFAULTS)
    assert (change, result.error) == (None, code)


def test_no_topic_is_deleted_where_that_is_disabled() -> None:
    cluster, ref = a_cluster(a_topic("a", (1,))), TopicRef("a", NO_TOPIC_ID)
    disabled = TopicDefaults(may_delete=False)
    change, (result,) = decide_delete_topics(cluster, DeleteTopics(REQUEST, (ref,)), disabled)
    assert (change, result.name, result.error) == (None, "a", ErrorCode.TOPIC_DELETION_DISABLED)


def test_a_topic_named_twice_is_not_deleted() -> None:
    refs = (TopicRef("a", NO_TOPIC_ID), TopicRef("", topic_id("a")))
    cluster = a_cluster(a_topic("a", (1,)))
    change, results = decide_delete_topics(cluster, DeleteTopics(REQUEST, refs), DEFAULTS)
    assert change is None
    assert {result.error for result in results} == {ErrorCode.INVALID_REQUEST}


@pytest.mark.feature("H06")
def test_added_partitions_even_the_leaders_out() -> None:
    cluster = a_cluster(a_topic("a", (1,), (2,)))
    request = CreatePartitions(REQUEST, (MorePartitions("a", 6),), dice=0)
    change, (result,) = decide_create_partitions(cluster, request, DEFAULTS)
    applied(cluster, change)
    leaders = [partition.leader for partition in cluster.image.topics["a"].partitions]
    assert leaders[:2] == [1, 2]
    assert (sorted(leaders), result.partition_count) == ([1, 1, 2, 2, 3, 3], 6)


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (MorePartitions("gone", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not exist"),
        (MorePartitions("a", 2), ErrorCode.INVALID_PARTITIONS, "already has 2 partition(s)"),
        (MorePartitions("a", 1), ErrorCode.INVALID_PARTITIONS, "would not be an increase"),
        (
            MorePartitions("a", 4, ((BrokerId(1),),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "only 1 assignment(s)",
        ),
        (
            MorePartitions("a", 3, ((BrokerId(1), BrokerId(2)),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "not consistent",
        ),
    ],
)
def test_partitions_that_cannot_be_added_are_refused(
    more: MorePartitions, code: ErrorCode, words: str
) -> None:
    cluster = a_cluster(a_topic("a", (1,), (2,)))
    request = CreatePartitions(REQUEST, (more,), dice=0)
    change, (result,) = decide_create_partitions(cluster, request, DEFAULTS)
    assert (change, result.error) == (None, code)
    assert words in result.message


def test_added_partitions_can_be_assigned_by_hand() -> None:
    cluster = a_cluster(a_topic("a", (1,)))
    more = MorePartitions("a", 3, ((BrokerId(3),), (BrokerId(3),)))
    change, _ = decide_create_partitions(
        cluster, CreatePartitions(REQUEST, (more,), dice=0), DEFAULTS
    )
    applied(cluster, change)
    assert [item.leader for item in cluster.image.topics["a"].partitions] == [1, 3, 3]
