"""Which role an image gives a partition, and who hears of it."""

from broker.core.commit_wait import CommitWait
from broker.core.partition import Role
from broker.shell.partitions.hosted import HostedPartition
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerId
from tidemark.model.metadata import ClusterImage
from unit.broker.shell.broker_worlds import OTHER, World, topic
from unit.broker.shell.replicated_worlds import LeaderWorld, broker, partition, replicated


class Followed:
    """Who hears what is to be followed."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, int]] = []

    def apply(self, hosted: HostedPartition) -> None:
        self.heard.append((hosted.partition.role.name, hosted.partition.leader))

    def remove(self, hosted: HostedPartition) -> None:
        self.heard.append(("removed", hosted.partition.leader))

    def brokers_changed(self, image: ClusterImage) -> None:
        self.heard.append(("brokers", len(image.brokers)))


def test_every_change_of_leadership_is_told_once() -> None:
    followed = Followed()
    world = World(following=followed)
    world.show(replicated(partition(leader=2, epoch=1)))
    world.change(topics_changed=(replicated(partition(leader=2, epoch=1, version=1)),))
    world.change(topics_changed=(replicated(partition(leader=-1, epoch=2, version=2)),))
    world.change(topics_changed=(replicated(partition(leader=1, epoch=3, version=3)),))
    world.change(topics_changed=(replicated(partition(leader=1, epoch=4, version=4)),))
    assert followed.heard == [("FOLLOWER", 2), ("OFFLINE", -1), ("LEADER", 1), ("LEADER", 1)]
    world.change(brokers_changed=(broker(1),))
    assert followed.heard[-1] == ("brokers", 1)


def test_a_change_of_flush_is_told_for_it_has_a_connection_of_its_own() -> None:
    followed = Followed()
    world = World(following=followed)
    world.show(replicated(partition(leader=2)))
    for flush in ("group", "group", "os"):
        world.change(topics_changed=(replicated(partition(leader=2), flush=flush),))
    assert followed.heard == [("FOLLOWER", 2)] * 3


def test_a_replica_that_was_moved_away_is_deleted() -> None:
    followed = Followed()
    world = World(following=followed)
    world.show(replicated(partition(leader=2)))
    moved = partition(leader=2, isr=(2,), replicas=(BrokerId(2),), version=1)
    world.change(topics_changed=(replicated(moved),))
    assert world.table.by_name == {}
    assert followed.heard[-1] == ("removed", 2)
    assert world.parts.partitions.disks.log_managers[0].logs == {}


def test_a_shrunk_isr_commits_and_wakes() -> None:
    world = LeaderWorld()
    woken: list[bool] = []
    world.append(acks=-1)
    world.parked.requests.park_produce(
        [(world.hosted(), 1)], now=world.clock.now_ms(), wait_ms=9, wake=woken.append
    )
    world.change(topics_changed=(replicated(partition(isr=(1,), version=1)),))
    assert (world.high_watermark, woken) == (1, [True])


def test_lost_leadership_wakes_producers_and_followers_to_hear_it() -> None:
    world = LeaderWorld()
    woken: list[bool] = []
    end = world.append(acks=-1).end
    commit = CommitWait.of(world.hosted(), end)
    parked, now = world.parked, world.clock.now_ms()
    parked.requests.park_produce([(world.hosted(), end)], now=now, wait_ms=9, wake=woken.append)
    parked.requests.park_fetch(
        [world.hosted().tail], bytes_missing=1, now=now, wait_ms=9, wake=woken.append
    )
    assert commit.failure() is ErrorCode.REQUEST_TIMED_OUT
    world.change(topics_changed=(replicated(partition(leader=2, epoch=1, version=1)),))
    assert woken == [False, False]
    assert commit.is_lost
    assert commit.failure() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.hosted().partition.role is Role.FOLLOWER


def test_who_is_fenced_or_stopping_may_not_join() -> None:
    world = World()
    world.show(topic(leader=OTHER))
    world.change(brokers_changed=(broker(1), broker(2, fenced=True), broker(3, shutting_down=True)))
    assert world.parts.cluster.live.epochs == {1: 10}
