"""Calls of the feed's listener about brokers' streams."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from controller.shell.metadata_feed import NOT_A_BROKER, FeedLimits, MetadataFeed, Subscription
from tidemark.model.ids import BrokerEpoch
from tidemark.model.metadata import ClusterDelta, FeedPosition
from unit.controller.worlds import a_broker, a_cluster, a_coordinator

EPOCH = BrokerEpoch(101)  # of broker 1 in a_cluster


class Heard:
    """Everything in order."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def acknowledged(self, broker_epoch: BrokerEpoch, position: FeedPosition) -> None:
        self.words.append(f"{broker_epoch} at {position.version}")

    def lost(self, broker_epoch: BrokerEpoch) -> None:
        self.words.append(f"{broker_epoch} lost")

    def regained(self, broker_epoch: BrokerEpoch) -> None:
        self.words.append(f"{broker_epoch} regained")


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def feed(heard: Heard) -> MetadataFeed:
    feed = MetadataFeed(FeedLimits(), heard)
    feed.open(a_cluster().image)
    return feed


@contextmanager
def stream(feed: MetadataFeed, epoch: BrokerEpoch = EPOCH) -> Iterator[Subscription]:
    with feed.subscribe("broker-1", epoch) as subscription:
        yield subscription


def test_the_listener_is_called_from_the_beginning_of_a_brokers_stream_to_its_end(
    feed: MetadataFeed, heard: Heard
) -> None:
    with stream(feed) as subscription:
        epoch = feed.image.position.controller_epoch
        feed.acknowledge(subscription, FeedPosition(epoch, 3))
        feed.acknowledge(subscription, FeedPosition(epoch, 2))
    assert heard.words == ["101 regained", "101 at 3", "101 lost"]


def test_a_second_stream_of_the_same_broker_hides_the_end_of_the_first(
    feed: MetadataFeed, heard: Heard
) -> None:
    first, second = stream(feed), stream(feed)
    first.__enter__()
    with second:
        first.__exit__(None, None, None)
        assert heard.words == ["101 regained"]
    assert heard.words == ["101 regained", "101 lost"]


def test_the_listener_is_not_called_for_other_subscribers(feed: MetadataFeed, heard: Heard) -> None:
    with stream(feed, NOT_A_BROKER) as subscription:
        feed.acknowledge(subscription, FeedPosition(feed.image.position.controller_epoch, 3))
    assert heard.words == []


def test_a_refused_stream_is_no_sign_of_life(feed: MetadataFeed, heard: Heard) -> None:
    with stream(feed, BrokerEpoch(7)):
        pass
    assert heard.words == []


def test_a_stream_ended_by_a_newer_registration_is_not_lost(
    feed: MetadataFeed, heard: Heard
) -> None:
    with stream(feed):
        image, delta = feed.image, ClusterDelta(brokers_changed=(a_broker(1, epoch=200),))
        epoch, version = image.position
        later = image.apply(delta, FeedPosition(epoch, version + 1), image.controller_id)
        feed.publish(delta, later)
    assert heard.words == ["101 regained"]


def test_the_end_of_a_term_loses_no_stream(feed: MetadataFeed, heard: Heard) -> None:
    with stream(feed):
        feed.close("")
    assert heard.words == ["101 regained"]


# Coordinators, whose epochs are numbers of the same sequence.


def test_the_listener_is_called_for_a_coordinators_stream_until_its_registration_ends(
    heard: Heard,
) -> None:
    one = a_coordinator(1)
    feed = MetadataFeed(FeedLimits(), heard)
    image = a_cluster(coordinators=(one,)).image
    feed.open(image)
    with stream(feed, BrokerEpoch(one.coordinator_epoch)) as subscription:
        gone = ClusterDelta(coordinators_gone=(one.key,))
        epoch, version = image.position
        after = image.apply(gone, FeedPosition(epoch, version + 1), image.controller_id)
        feed.publish(gone, after)
        assert subscription.over
    assert heard.words == [f"{one.coordinator_epoch} regained"]


def test_an_unregistered_coordinator_may_not_subscribe(heard: Heard) -> None:
    feed = MetadataFeed(FeedLimits(), heard)
    feed.open(a_cluster().image)
    with stream(feed, BrokerEpoch(a_coordinator(1).coordinator_epoch)) as subscription:
        assert subscription.over
    assert heard.words == []
