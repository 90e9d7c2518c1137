import pytest
from tidemark.model.ids import (
    BrokerId,
    ControllerEpoch,
    ControllerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidemark.model.metadata import (
    ClusterDelta,
    ClusterImage,
    FeedPosition,
    PartitionImage,
    TopicImage,
)

ONE = ControllerId(1)


def topic(name: str, number: int) -> TopicImage:
    brokers = (BrokerId(1),)
    state = PartitionImage(0, brokers, brokers, BrokerId(1), LeaderEpoch(0), PartitionEpoch(0))
    return TopicImage(name, TopicId(bytes([number]) * 16), {}, (state,))


def at(version: int) -> FeedPosition:
    return FeedPosition(ControllerEpoch(1), version)


def test_a_delta_makes_a_new_image_and_leaves_the_old_one() -> None:
    old = ClusterImage()
    new = old.apply(ClusterDelta(topics_changed=(topic("orders", 1),)), at(1), ONE)
    assert (set(old.topics), set(new.topics)) == (set(), {"orders"})


def test_a_recreated_topic_replaces_the_old_one_whatever_the_order_of_naming() -> None:
    first, second = topic("orders", 1), topic("orders", 2)
    image = ClusterImage().apply(ClusterDelta(topics_changed=(first,)), at(1), ONE)
    delta = ClusterDelta(topics_changed=(second,), topics_deleted=(first.topic_id,))
    image = image.apply(delta, at(2), ONE)
    assert image.topics == {"orders": second}
    assert image.topics_by_id == {second.topic_id: second}


def test_deleting_the_old_id_spares_the_new_topic_of_that_name() -> None:
    first, second = topic("orders", 1), topic("orders", 2)
    image = ClusterImage().apply(ClusterDelta(topics_changed=(first,)), at(1), ONE)
    image = image.apply(ClusterDelta(topics_changed=(second,)), at(2), ONE)
    image = image.apply(ClusterDelta(topics_deleted=(first.topic_id,)), at(3), ONE)
    assert image.topics == {"orders": second}


def test_the_feed_never_goes_back() -> None:
    image = ClusterImage().apply(ClusterDelta(), at(5), ONE)
    with pytest.raises(AssertionError, match="feed went back"):
        image.apply(ClusterDelta(), at(5), ONE)


def test_a_new_controllers_first_version_is_later_than_any_of_the_old_one() -> None:
    assert FeedPosition(ControllerEpoch(2), 0) > FeedPosition(ControllerEpoch(1), 10**9)
