"""DescribeFeed: what the active controller answers, and a standby."""

import asyncio
from types import SimpleNamespace
from typing import Any

from controller.shell.metadata_feed import FeedLimits, MetadataFeed
from controller.shell.rpc import describe_feed
from tidemark.model.authorization import Authorizer
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerEpoch, ControllerEpoch, ControllerId
from tidemark.model.metadata import ClusterImage, FeedPosition
from tidemark_wire.v1 import controller_pb2 as pb

POSITION = FeedPosition(ControllerEpoch(4), 9)


def describe(feed: MetadataFeed, *, active: bool) -> pb.DescribeFeedResponse:
    node: Any = SimpleNamespace(
        authorizer=Authorizer(),
        is_active=active,
        feed=feed,
        hint="host:1",
        controller_id=ControllerId(2),
    )
    context: Any = None
    return asyncio.run(describe_feed.handle(node, pb.DescribeFeedRequest(), context))


def test_the_active_controller_names_itself_and_its_subscribers() -> None:
    feed = MetadataFeed(FeedLimits())
    feed.open(ClusterImage(position=POSITION))
    with feed.subscribe("broker-1", BrokerEpoch(-1)) as one:
        feed.acknowledge(one, POSITION)
        answer = describe(feed, active=True)
    assert (answer.error_code, answer.controller_id, answer.grpc_endpoint) == (0, 2, "host:1")
    assert (answer.position.controller_epoch, answer.position.version) == POSITION
    applied = [(one.name, one.applied.version) for one in answer.subscribers]
    assert applied == [("broker-1", 9)]


def test_a_standby_names_the_active_controller() -> None:
    answer = describe(MetadataFeed(FeedLimits()), active=False)
    assert (answer.error_code, answer.controller_hint) == (ErrorCode.NOT_CONTROLLER, "host:1")
