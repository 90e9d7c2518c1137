"""Heartbeats: a stream whose heartbeats are unanswered counts as lost, though it is connected."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from controller.shell.metadata_feed import FeedLimits, MetadataFeed, Subscription
from tidemark.model.ids import BrokerEpoch, InstantMs
from tidemark.model.metadata import FeedPosition
from unit.controller.worlds import a_cluster

SILENT_MS = 100
EPOCHS = tuple(one.broker_epoch for one in a_cluster().image.brokers.values())


class Heard:
    """Epochs of lost streams, in the order of the calls."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def acknowledged(self, broker_epoch: BrokerEpoch, position: FeedPosition) -> None:
        """Ignore it."""

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


@pytest.fixture
def streams(feed: MetadataFeed, heard: Heard) -> Iterator[list[Subscription]]:
    """Subscribe every broker."""
    with ExitStack() as ending:
        yield [
            ending.enter_context(feed.subscribe("broker", epoch, answers_heartbeats=True))
            for epoch in EPOCHS
        ]


def beat(feed: MetadataFeed, *instants: int) -> None:
    for now in instants:
        feed.beat(InstantMs(now), SILENT_MS)


def answer(feed: MetadataFeed, stream: Subscription) -> None:
    feed.acknowledge(stream, FeedPosition(feed.image.position.controller_epoch, 0))


def test_a_stream_that_answers_is_not_lost(
    feed: MetadataFeed, heard: Heard, streams: list[Subscription]
) -> None:
    heard.words.clear()
    for now in (0, 60, 120, 180):
        beat(feed, now)
        for stream in streams:
            answer(feed, stream)
    assert heard.words == []


def test_a_silent_stream_is_lost_and_regained_by_an_answer(
    feed: MetadataFeed, heard: Heard, streams: list[Subscription]
) -> None:
    heard.words.clear()
    beat(feed, 0)
    for stream in streams[1:]:
        answer(feed, stream)
    beat(feed, 99, 100, 160)
    assert heard.words == [f"{EPOCHS[0]} lost"]
    answer(feed, streams[0])
    assert heard.words == [f"{EPOCHS[0]} lost", f"{EPOCHS[0]} regained"]


def test_all_silent_streams_are_lost_in_one_beat(
    feed: MetadataFeed, heard: Heard, streams: list[Subscription]
) -> None:
    heard.words.clear()
    beat(feed, 0, 50, 99)
    assert heard.words == []
    beat(feed, 100)
    assert heard.words == [f"{epoch} lost" for epoch in EPOCHS]


def test_the_end_of_a_silent_stream_is_no_further_news(feed: MetadataFeed, heard: Heard) -> None:
    with feed.subscribe("broker", EPOCHS[0], answers_heartbeats=True):
        beat(feed, 0, 100)
        assert heard.words[-1] == f"{EPOCHS[0]} lost"
        heard.words.clear()
    assert heard.words == []


def test_a_new_stream_makes_up_for_a_silent_one(
    feed: MetadataFeed, heard: Heard, streams: list[Subscription]
) -> None:
    beat(feed, 0, 100)
    heard.words.clear()
    with feed.subscribe("broker", EPOCHS[0], answers_heartbeats=True):
        assert heard.words == [f"{EPOCHS[0]} regained"]


def test_a_pause_of_the_controller_loses_no_stream(
    feed: MetadataFeed, heard: Heard, streams: list[Subscription]
) -> None:
    beat(feed, 0)
    heard.words.clear()
    feed.restart_heartbeats()
    beat(feed, 500)
    assert heard.words == []


def test_an_older_subscriber_gets_no_heartbeat(feed: MetadataFeed, heard: Heard) -> None:
    with feed.subscribe("broker", EPOCHS[0]):
        beat(feed, 0, 100, 200)
        assert heard.words == [f"{EPOCHS[0]} regained"]


def test_a_heartbeat_is_sent_after_what_is_queued(feed: MetadataFeed) -> None:
    async def use() -> None:
        with feed.subscribe("broker", EPOCHS[0], answers_heartbeats=True) as stream:
            beat(feed, 0)
            first, second = [await stream.next_update(feed) for _ in range(2)]
            assert first is not None
            assert first.HasField("snapshot")
            assert second is not None
            assert second.heartbeat

    asyncio.run(use())
