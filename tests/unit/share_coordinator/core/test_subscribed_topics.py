from share_coordinator.core.subscribed_topics import (
    SubscribedTopic,
    metadata_hash,
    subscribed_topics,
)
from unit.broker.core.groups.consumer.worlds import FakeTopics, topic_id

TOPICS = FakeTopics(t=3, u=1)


def test_topics_that_do_not_exist_are_left_out() -> None:
    found = subscribed_topics([("t", "later"), ("t",)], TOPICS)
    assert found == {topic_id(1): SubscribedTopic("t", 3)}


def test_the_hash_is_of_ids_names_and_counts() -> None:
    both = subscribed_topics([("t", "u")], TOPICS)
    hashes = {
        metadata_hash(both),
        metadata_hash({**both, topic_id(1): SubscribedTopic("t", 4)}),
        metadata_hash({**both, topic_id(1): SubscribedTopic("x", 3)}),
        metadata_hash(subscribed_topics([("t",)], TOPICS)),
        metadata_hash({topic_id(9): SubscribedTopic("t", 3)}),
    }
    assert len(hashes) == 5
    assert metadata_hash({}) == 0


def test_the_hash_is_the_same_in_every_process() -> None:
    found = metadata_hash({topic_id(1): SubscribedTopic("t", 3)})
    assert found == metadata_hash(dict(reversed(subscribed_topics([("t",)], TOPICS).items())))
    assert -(2**63) <= found < 2**63
