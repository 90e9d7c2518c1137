import asyncio
from dataclasses import replace

import pytest
from controller.shell.metadata_feed import NOT_A_BROKER, FeedLimits, MetadataFeed, Subscription
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerEpoch, LeaderEpoch
from tidemark.model.metadata import ClusterDelta, ClusterImage, FeedPosition
from tidemark_wire.v1 import controller_pb2 as pb
from unit.controller.worlds import a_broker, a_cluster, a_topic


class Publisher:
    """A feed, and the cluster whose changes it sends."""

    def __init__(self, *, updates_queued_max: int = 4, subscribers_max: int = 4) -> None:
        self.feed = MetadataFeed(FeedLimits(updates_queued_max, subscribers_max))
        self.image: ClusterImage = a_cluster().image

    def open(self) -> None:
        self.feed.open(self.image)

    def publish(self, delta: ClusterDelta | None = None) -> None:
        change = delta or ClusterDelta()
        epoch, version = self.image.position
        position = FeedPosition(epoch, version + 1)
        self.image = self.image.apply(change, position, self.image.controller_id)
        self.feed.publish(change, self.image)


async def take(feed: MetadataFeed, subscription: Subscription, count: int) -> list[str]:
    """Return the next updates as text: ``snapshot 3``, ``delta 4``, ``error NOT_CONTROLLER``."""
    return [told(await subscription.next_update(feed)) for _ in range(count)]


def told(update: pb.MetadataUpdate | None) -> str:
    if update is None:
        return "left"
    if update.error_code:
        return f"error {ErrorCode(update.error_code).name} {update.controller_hint}".strip()
    kind = "snapshot" if update.HasField("snapshot") else "delta"
    return f"{kind} {update.position.version}"


def test_a_subscriber_gets_a_snapshot_then_deltas() -> None:
    async def use() -> None:
        one = Publisher()
        one.open()
        with one.feed.subscribe("s", NOT_A_BROKER) as subscription:
            assert await take(one.feed, subscription, 1) == ["snapshot 0"]
            one.publish()
            one.publish()
            assert await take(one.feed, subscription, 2) == ["delta 1", "delta 2"]
        assert one.feed.subscriptions == ()

    asyncio.run(use())


def test_partitions_travel_alone_only_to_subscribers_that_take_them() -> None:
    async def use() -> None:
        one = Publisher()
        topic = a_topic("wide", (1, 2), (2, 3))
        one.image = a_cluster(topic).image
        one.open()
        moved = replace(topic.partitions[0], leader_epoch=LeaderEpoch(77))
        changed = replace(topic, partitions=(moved, *topic.partitions[1:]))
        with (
            one.feed.subscribe("old", NOT_A_BROKER) as old,
            one.feed.subscribe("new", NOT_A_BROKER, takes_partitions=True) as new,
        ):
            for subscription in (old, new):
                await subscription.next_update(one.feed)
            one.publish(ClusterDelta(topics_changed=(changed,)))
            deltas = [(await each.next_update(one.feed)) for each in (old, new)]
        assert [len(each.delta.topics_changed) for each in deltas if each] == [1, 0]
        assert [len(each.delta.partitions_changed) for each in deltas if each] == [0, 1]

    asyncio.run(use())


def test_changes_before_the_snapshot_are_in_it() -> None:
    async def use() -> None:
        one = Publisher()
        one.open()
        with one.feed.subscribe("s", NOT_A_BROKER) as subscription:
            one.publish()
            assert await take(one.feed, subscription, 1) == ["snapshot 1"]

    asyncio.run(use())


def test_a_slow_subscriber_starts_over_with_a_snapshot() -> None:
    async def use() -> None:
        one = Publisher(updates_queued_max=2)
        one.open()
        with one.feed.subscribe("s", NOT_A_BROKER) as subscription:
            await take(one.feed, subscription, 1)
            for _ in range(5):
                one.publish()
            assert await take(one.feed, subscription, 1) == ["snapshot 5"]
            one.publish()
            assert await take(one.feed, subscription, 1) == ["delta 6"]

    asyncio.run(use())


def test_the_end_of_a_term_sends_everyone_away_with_a_hint() -> None:
    async def use() -> None:
        one = Publisher()
        one.open()
        with one.feed.subscribe("s", NOT_A_BROKER) as subscription:
            one.publish()
            one.feed.close("host:1")
            assert await take(one.feed, subscription, 1) == ["error NOT_CONTROLLER host:1"]

    asyncio.run(use())


def test_a_standby_has_no_feed() -> None:
    async def use() -> None:
        one = Publisher()
        with one.feed.subscribe("s", NOT_A_BROKER) as subscription:
            assert await take(one.feed, subscription, 1) == ["error NOT_CONTROLLER"]

    asyncio.run(use())


def test_a_broker_follows_under_its_registered_epoch_only() -> None:
    async def use() -> None:
        one = Publisher()
        one.open()
        with one.feed.subscribe("broker-1", BrokerEpoch(7)) as subscription:
            assert await take(one.feed, subscription, 1) == ["error STALE_BROKER_EPOCH"]

    asyncio.run(use())


def test_a_broker_that_registers_again_loses_its_old_stream() -> None:
    async def use() -> None:
        one = Publisher()
        one.open()
        with one.feed.subscribe("broker-1", BrokerEpoch(101)) as subscription:
            await take(one.feed, subscription, 1)
            one.publish(ClusterDelta(brokers_changed=(a_broker(1, fenced=True),)))
            assert await take(one.feed, subscription, 1) == ["delta 1"]
            one.publish(ClusterDelta(brokers_changed=(a_broker(1, epoch=200),)))
            assert await take(one.feed, subscription, 1) == ["error STALE_BROKER_EPOCH"]

    asyncio.run(use())


def test_subscribers_are_bounded() -> None:
    async def use() -> None:
        one = Publisher(subscribers_max=1)
        one.open()
        with (
            one.feed.subscribe("a", NOT_A_BROKER),
            one.feed.subscribe("b", NOT_A_BROKER) as second,
        ):
            assert await take(one.feed, second, 1) == ["error THROTTLING_QUOTA_EXCEEDED"]

    asyncio.run(use())


def test_acknowledgements_only_go_forward() -> None:
    one = Publisher()
    one.open()
    with one.feed.subscribe("a", NOT_A_BROKER) as subscription:
        later = replace(one.image, position=FeedPosition(one.image.position[0], 9)).position
        one.feed.acknowledge(subscription, later)
        one.feed.acknowledge(subscription, one.image.position)
        assert subscription.acknowledged == later


def test_a_subscriber_that_left_gets_nothing() -> None:
    async def use() -> None:
        one = Publisher()
        one.open()
        with one.feed.subscribe("a", NOT_A_BROKER) as subscription:
            subscription.leave()
            assert await take(one.feed, subscription, 1) == ["left"]

    asyncio.run(use())


@pytest.mark.parametrize("field", ["updates_queued_max", "subscribers_max"])
def test_limits_are_positive(field: str) -> None:
    with pytest.raises(AssertionError, match=field):
        FeedLimits(**{field: 0})
