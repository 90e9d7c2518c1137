"""Membership of a broker: earlier processes of the same broker, and the beginning of its lease."""

import random
from typing import Any

import pytest
from broker.config import BrokerConfig
from broker.shell.cluster.membership import Announcement, Membership
from broker.shell.cluster.registration import Registration
from broker.shell.facts import BrokerFacts
from broker.shell.subscribers import MEMBERSHIP
from manual_clock import ManualClock
from tidemark.model.ids import BrokerEpoch, BrokerId, ControllerEpoch
from tidemark.model.metadata import BrokerImage, ClusterImage, FeedPosition
from tidemark.runtime import zk_paths
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.zk_session import ZkSession
from unit.broker.shell.broker_parts import absent

OURS, THEIRS = b"a" * 16, b"b" * 16


def shown(version: int, epoch: int) -> ClusterImage:
    """An image that shows broker 1, registered under ``epoch``."""
    broker = BrokerImage(
        BrokerId(1), BrokerEpoch(epoch), OURS, (), "", rack="", node="n", fenced=False
    )
    position = FeedPosition(ControllerEpoch(1), version)
    return ClusterImage(position=position, brokers={broker.broker_id: broker})


class World:
    """Membership of broker 1, registered under epoch 7; ``live`` has the calls of ``on_live``."""

    def __init__(self) -> None:
        self.live: list[tuple[Any, ...]] = []
        self.metadata = MetadataCache(then=(MEMBERSHIP,))
        registration = Registration(BrokerId(1))
        registration.broker_epoch = 7
        self.membership = Membership(
            BrokerFacts.of(BrokerConfig(broker_id=1), ManualClock(), random.random),
            registration,
            absent(ZkSession),
            absent(ControllerClient),
            metadata=self.metadata,
            log_managers=(),
            incarnation_id=OURS,
            cluster_id="",
            on_joined=lambda _: None,
            on_live=lambda *call: self.live.append(call),
        )
        self.membership._announcement = Announcement(
            endpoints=(),
            grpc_endpoint="",
            rack="",
            machine="",
            boot_id="",
            log_dir_ids=(b"d",),
            clean_stop=True,
            previous_broker_epoch=-1,
        )


@pytest.mark.parametrize(
    ("broker_id", "incarnation", "is_earlier"),
    [(1, THEIRS, True), (1, OURS, False), (2, THEIRS, False)],
)
def test_another_incarnation_of_the_same_broker_is_an_earlier_one(
    broker_id: int, incarnation: bytes, is_earlier: bool
) -> None:
    path = zk_paths.LiveBroker(BrokerId(broker_id), incarnation).path
    name = path.rpartition("/")[2]
    assert World().membership.earlier(name) == (path if is_earlier else None)


@pytest.mark.parametrize(("held", "is_dead"), [(b"d", True), (b"other", False)])
def test_a_process_is_dead_if_it_held_a_log_directory_of_this_one(
    held: bytes, is_dead: bool
) -> None:
    content = zk_paths.encode({"log_dirs": [held.hex()]})
    assert World().membership.is_dead("/live", content) is is_dead


def test_the_lease_begins_when_the_feed_shows_the_registration() -> None:
    world = World()
    world.membership.announced(3)
    world.membership._membership.is_registered = True
    world.metadata.take(shown(1, epoch=6))
    assert world.live == []
    for version in (2, 3):
        world.metadata.take(shown(version, epoch=7))
    assert [version for _, _, version in world.live] == [3]


def test_the_lease_does_not_begin_before_the_registration_is_answered() -> None:
    world = World()
    world.membership.announced(0)
    world.metadata.take(shown(1, epoch=7))
    assert world.live == []
