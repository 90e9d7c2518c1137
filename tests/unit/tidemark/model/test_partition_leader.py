from dataclasses import replace

import pytest
from tidemark.model.ids import TopicId
from tidemark.model.partition_leader import find_leader, find_partition, has_topics
from tidemark.model.topics import TopicPartition
from unit.tidemark.runtime.memory_brokers import STATE, STATE_ID, MemoryBroker, MemoryPartition
from unit.tidemark.runtime.memory_brokers import image_of as image


def broker(endpoint: str = "h:1") -> MemoryBroker:
    made = MemoryBroker(1, MemoryPartition())
    made.endpoint = endpoint
    return made


def test_a_leader_is_found_with_its_endpoint_and_epoch() -> None:
    leader = find_leader(image(1, [broker()], leader=1, leader_epoch=4), STATE)
    assert leader == (1, "h:1", STATE_ID, 4)


@pytest.mark.parametrize("at", [TopicPartition("other", 0), TopicPartition(STATE.topic, 1)])
def test_an_unknown_partition_is_none(at: TopicPartition) -> None:
    known = image(1, [broker()], leader=1)
    assert (find_partition(known, at), find_leader(known, at)) == (None, None)


def test_a_topic_is_there_by_its_name_and_id() -> None:
    shown = image(1, [broker()], leader=1)
    assert has_topics(shown, [(STATE.topic, STATE_ID)])
    assert has_topics(shown, [])
    assert not has_topics(shown, [(STATE.topic, STATE_ID), (STATE.topic, TopicId(b"x" * 16))])
    assert not has_topics(shown, [("other", STATE_ID)])


def test_a_leader_that_cannot_be_called_is_none() -> None:
    assert find_leader(image(1, [broker()], leader=-1), STATE) is None
    assert find_leader(image(1, [broker(endpoint="")], leader=1), STATE) is None
    assert find_leader(replace(image(1, [broker()], leader=1), brokers={}), STATE) is None
