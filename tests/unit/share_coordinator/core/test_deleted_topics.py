from share_coordinator.core.deleted_topics import MissingTopics
from unit.broker.core.groups.consumer.worlds import FakeTopics, topic_id


def test_a_topic_is_gone_when_it_is_missing_twice_in_a_row() -> None:
    topics, missing = FakeTopics(t=1), MissingTopics()
    held = [topic_id(1), topic_id(2)]
    assert missing.look(held, topics) == frozenset()
    assert missing.look(held, topics) == {topic_id(2)}


def test_a_topic_that_the_metadata_did_not_have_yet_stays() -> None:
    topics, missing = FakeTopics(), MissingTopics()
    assert missing.look([topic_id(1)], topics) == frozenset()
    topics.put("t", 1)
    assert missing.look([topic_id(1)], topics) == frozenset()
    topics.delete("t")
    assert missing.look([topic_id(1)], topics) == frozenset()
