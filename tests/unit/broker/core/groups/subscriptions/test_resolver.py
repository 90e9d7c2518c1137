"""The topics of a subscription."""

from collections.abc import Collection

from broker.core.groups.subscriptions.resolver import (
    Subscription,
    TopicResolver,
    partition_counts,
    pattern_problem,
)
from tidemark.codec.group_records_consumer import TopicMetadata
from unit.broker.core.groups.consumer.worlds import FakeTopics, topic_id


class Counting(FakeTopics):
    """Topics that count the reads of all names."""

    asked = 0

    def names(self) -> Collection[str]:
        self.asked += 1
        return super().names()


NOBODY = Subscription((), None)


def named(*names: str) -> Subscription:
    return Subscription(names, None)


def matched(regex: str) -> Subscription:
    return Subscription((), regex)


def test_names_mean_the_topics_that_exist() -> None:
    topics = FakeTopics(a=3, b=1)
    found = TopicResolver().metadata([named("a", "nothing")], topics)
    assert found == (TopicMetadata(topic_id(1), "a", 3),)


def test_a_pattern_means_all_topics_that_fit() -> None:
    topics = FakeTopics(a1=3, a2=1, b=2)
    found = TopicResolver().metadata([matched("a.")], topics)
    assert [topic.topic_name for topic in found] == ["a1", "a2"]


def test_names_and_pattern_together_mean_both() -> None:
    subscription = Subscription(("b",), "a.")
    ids = TopicResolver().topic_ids([subscription], FakeTopics(a1=1, b=1, c=1))
    assert ids == {subscription: {topic_id(1), topic_id(2)}}


def test_a_pattern_never_means_our_own_topics_but_a_name_does() -> None:
    topics = FakeTopics(__consumer_offsets=50, a=1)
    both = [matched(".*"), named("__consumer_offsets")]
    ids = TopicResolver().topic_ids(both, topics)
    assert ids == {both[0]: {topic_id(2)}, both[1]: {topic_id(1)}}


def test_a_new_topic_is_found_once_the_metadata_has_it() -> None:
    topics = FakeTopics(a1=1)
    resolver = TopicResolver()
    resolver.metadata([matched("a.")], topics)
    topics.put("a2", 1)
    assert len(resolver.metadata([matched("a.")], topics)) == 2


def test_a_topic_that_is_gone_is_not_meant_any_more() -> None:
    topics = FakeTopics(a1=1, a2=1)
    resolver = TopicResolver()
    resolver.metadata([matched("a.")], topics)
    topics.delete("a1")
    assert [one.topic_name for one in resolver.metadata([matched("a.")], topics)] == ["a2"]


def test_a_pattern_is_matched_once_for_all_its_members() -> None:
    topics = Counting(a1=1)
    resolver = TopicResolver()
    for _ in range(3):
        resolver.metadata([matched("a.")], topics)
    assert topics.asked == 1


def test_patterns_nobody_uses_any_more_are_forgotten() -> None:
    resolver = TopicResolver()
    resolver.metadata([matched("a.")], FakeTopics(a1=1))
    resolver.metadata([NOBODY], FakeTopics(a1=1))
    assert not resolver._matches


def test_a_logged_pattern_that_cannot_be_read_means_nothing() -> None:
    assert TopicResolver().metadata([matched(r"\p{Greek}")], FakeTopics(a1=1)) == ()


def test_an_empty_pattern_is_none() -> None:
    assert pattern_problem("") is None
    assert pattern_problem(None) is None


def test_a_bad_pattern_is_explained() -> None:
    assert pattern_problem("(a") == "missing )"


def test_partition_counts_go_by_topic_id() -> None:
    assert partition_counts([TopicMetadata(topic_id(1), "a", 3)]) == {topic_id(1): 3}
