import pytest
from tidemark.model.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    ControllerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidemark.model.metadata import (
    BrokerImage,
    ClusterDelta,
    ClusterImage,
    CoordinatorImage,
    Endpoint,
    FeedPosition,
    PartitionImage,
    ShardOwner,
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


def test_a_group_that_sets_nothing_any_more_is_forgotten() -> None:
    image = ClusterImage().apply(ClusterDelta(group_configs_changed={"g": {"a": "1"}}), at(1), ONE)
    assert image.group_configs == {"g": {"a": "1"}}
    image = image.apply(ClusterDelta(group_configs_changed={"g": {}}), at(2), ONE)
    assert image.group_configs == {}


def test_a_subscription_to_client_metrics_without_settings_is_gone() -> None:
    made = ClusterDelta(client_metrics_changed={"s": {"metrics": "*"}, "t": {"metrics": "*"}})
    image = ClusterImage().apply(made, at(1), ONE)
    image = image.apply(ClusterDelta(client_metrics_changed={"s": {}}), at(2), ONE)
    assert image.client_metrics == {"t": {"metrics": "*"}}


def test_the_feed_never_goes_back() -> None:
    image = ClusterImage().apply(ClusterDelta(), at(5), ONE)
    with pytest.raises(AssertionError, match="feed went back"):
        image.apply(ClusterDelta(), at(5), ONE)


def test_a_new_controllers_first_version_is_later_than_any_of_the_old_one() -> None:
    assert FeedPosition(ControllerEpoch(2), 0) > FeedPosition(ControllerEpoch(1), 10**9)


# Coordinators and shards.


def coordinator(number: int, epoch: int = 5) -> CoordinatorImage:
    return CoordinatorImage("txn", number, bytes([number]), f"host:{number}", epoch)


def changed(*owners: ShardOwner) -> ClusterDelta:
    return ClusterDelta(shards_changed={"txn": owners})


def test_coordinators_come_change_and_go() -> None:
    delta = ClusterDelta(coordinators_changed=(coordinator(1), coordinator(2)))
    image = ClusterImage().apply(delta, at(1), ONE)
    again = ClusterDelta(
        coordinators_changed=(coordinator(2, epoch=6),), coordinators_gone=(("txn", 1),)
    )
    after = image.apply(again, at(2), ONE)
    assert after.coordinators == {("txn", 2): coordinator(2, epoch=6)}
    assert len(image.coordinators) == 2


def test_only_the_shards_that_changed_change() -> None:
    image = ClusterImage().apply(changed(ShardOwner(0, 1, 1), ShardOwner(1, 2, 1)), at(1), ONE)
    image = image.apply(changed(ShardOwner(1, 1, 2), ShardOwner(2)), at(2), ONE)
    assert image.shards == {"txn": (ShardOwner(0, 1, 1), ShardOwner(1, 1, 2), ShardOwner(2, -1, 0))}


def test_whom_to_ask_about_a_shard() -> None:
    delta = ClusterDelta(
        coordinators_changed=(coordinator(1),),
        shards_changed={"txn": (ShardOwner(0, 1, 1), ShardOwner(1))},
    )
    image = ClusterImage().apply(delta, at(1), ONE)
    assert image.shard_owner("txn", 0) == coordinator(1)
    assert [image.shard_owner("txn", shard) for shard in (-1, 1, 2)] == [None] * 3
    assert image.shard_owner("share", 0) is None


def test_a_delta_without_coordinators_leaves_them_as_they_are() -> None:
    image = ClusterImage().apply(changed(ShardOwner(0)), at(1), ONE)
    after = image.apply(ClusterDelta(topics_changed=(topic("orders", 1),)), at(2), ONE)
    assert after.shards is image.shards


@pytest.mark.parametrize(
    ("listeners", "chosen"),
    [
        ("CLIENT:PLAINTEXT INTERNAL:PLAINTEXT", "INTERNAL"),
        ("SECURE:SSL CLIENT:PLAINTEXT OTHER:PLAINTEXT", "CLIENT"),
        ("CLIENT:PLAINTEXT INTERNAL:SSL", "INTERNAL"),
        ("CLIENT:PLAINTEXT INTERNAL:SASL_SSL", "CLIENT"),
        ("SECURE:SSL", None),
        ("", None),
    ],
)
def test_followers_fetch_at_the_internal_listener_or_at_one_without_tls(
    listeners: str, chosen: str | None
) -> None:
    pairs = [one.split(":") for one in listeners.split()]
    points = tuple(Endpoint(name, "host", 1, protocol) for name, protocol in pairs)
    broker = BrokerImage(BrokerId(1), BrokerEpoch(1), b"", points, "", None, "node", fenced=False)
    found = broker.replication_endpoint()
    assert (None if found is None else found.listener) == chosen
