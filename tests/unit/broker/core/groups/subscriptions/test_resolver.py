"""The topics of a subscription."""

from collections.abc import Mapping

from broker.core.groups.subscriptions.resolver import (
    Subscription,
    partition_counts,
    pattern_problem,
    subscribed,
    topic_ids,
)
from tidemark.codec.group_records_consumer import TopicMetadata
from unit.broker.core.groups.consumer.worlds import FakeTopics, topic_id

MATCHES: Mapping[str, frozenset[str]] = {"a.": frozenset({"a1", "a2"})}


def test_names_mean_the_topics_that_exist() -> None:
    found = subscribed([Subscription(("a", "nothing"), None)], {}, FakeTopics(a=3, b=1))
    assert found == (TopicMetadata(topic_id(1), "a", 3),)


def test_a_pattern_means_the_topics_that_it_matched_as_far_as_they_exist() -> None:
    found = subscribed([Subscription((), "a.")], MATCHES, FakeTopics(a2=1, b=2))
    assert [topic.topic_name for topic in found] == ["a2"]


def test_a_pattern_that_was_not_matched_yet_means_nothing() -> None:
    assert subscribed([Subscription((), "b.")], MATCHES, FakeTopics(b1=1)) == ()


def test_names_and_pattern_together_mean_both() -> None:
    subscription = Subscription(("b",), "a.")
    ids = topic_ids([subscription], MATCHES, FakeTopics(a1=1, b=1, c=1))
    assert ids == {subscription: {topic_id(1), topic_id(2)}}


def test_an_empty_pattern_is_none() -> None:
    assert pattern_problem("") is None
    assert pattern_problem(None) is None


def test_a_bad_pattern_is_explained() -> None:
    assert pattern_problem("(a") == "missing )"


def test_partition_counts_go_by_topic_id() -> None:
    assert partition_counts([TopicMetadata(topic_id(1), "a", 3)]) == {topic_id(1): 3}
