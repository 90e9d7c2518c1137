import pytest
from tidemark.client.config import Address
from tidemark.client.wire.metadata_cache import (
    BrokerView,
    ClusterView,
    MetadataCache,
    PartitionView,
    TopicView,
)
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition

BROKERS = {number: BrokerView(number, Address("h", number)) for number in (1, 2)}


def answer(leader: int, epoch: int, *, topic_id: bytes = b"a" * 16, error: int = 0) -> ClusterView:
    topic = TopicView("t", topic_id, error, (PartitionView(0, leader, epoch),))
    return ClusterView(BROKERS, {"t": topic})


def cache_after(*answers: ClusterView) -> MetadataCache:
    cache = MetadataCache(age_ms_max=100)
    for each in answers:
        cache.on_answer(each, 0)
    return cache


@pytest.mark.feature("A13", "A15")
def test_the_leader_of_a_partition_is_known_with_its_epoch_and_topic_id() -> None:
    leader = cache_after(answer(2, 5)).leader(TopicPartition("t", 0))
    assert leader == (2, 5, b"a" * 16)


@pytest.mark.feature("A16")
def test_a_newer_leader_replaces_the_old_and_a_lagging_broker_does_not_bring_it_back() -> None:
    cache = cache_after(answer(1, 5), answer(2, 6), answer(1, 5))
    leader = cache.leader(TopicPartition("t", 0))
    assert leader is not None
    assert leader.broker_id == 2


def test_a_recreated_topic_starts_its_epochs_anew() -> None:
    leader = cache_after(answer(1, 5), answer(2, 0, topic_id=b"b" * 16)).leader(
        TopicPartition("t", 0)
    )
    assert leader == (2, 0, b"b" * 16)


@pytest.mark.parametrize("partition", [-1, 1])
def test_a_partition_that_does_not_exist_has_no_leader(partition: int) -> None:
    assert cache_after(answer(1, 0)).leader(TopicPartition("t", partition)) is None


@pytest.mark.parametrize("leader", [-1, 9])
def test_a_leader_that_is_not_alive_is_none(leader: int) -> None:
    assert cache_after(answer(leader, 0)).leader(TopicPartition("t", 0)) is None


def test_what_stands_against_a_topic() -> None:
    cache = cache_after(answer(1, 0, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert cache.topic("t") is None
    assert cache.topic_error("t") is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert cache.topic_error("u") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_it_is_stale_at_first_when_contradicted_and_when_old() -> None:
    cache = MetadataCache(age_ms_max=100)
    assert cache.is_stale(0)
    cache.on_answer(answer(1, 0), 0)
    assert not cache.is_stale(99)
    assert cache.is_stale(100)
    cache.on_answer(answer(1, 0), 100)
    cache.mark_stale()
    assert cache.is_stale(100)


def test_only_topics_in_use_are_asked_for() -> None:
    cache = MetadataCache(age_ms_max=100)
    assert cache.want(["a", "b"])
    assert not cache.want(["a"])
    cache.unwant("a")
    assert cache.wanted == ("b",)


def test_a_lagging_broker_does_not_make_a_known_topic_vanish_but_a_deleted_one_goes() -> None:
    cache = MetadataCache(age_ms_max=1_000, unknown_grace_ms=50)
    cache.on_answer(answer(1, 0), 0)
    unknown = ClusterView(
        BROKERS, {"t": TopicView("t", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
    )
    cache.on_answer(unknown, 10)
    assert cache.topic("t") is not None
    assert cache.is_stale(10)
    cache.on_answer(unknown, 60)
    assert cache.topic("t") is None
