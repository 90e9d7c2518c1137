"""What followers' fetches do at their leader."""

from dataclasses import replace

import pytest
from broker.core.partition import Role
from broker.shell.partitions.hosted import HostedPartition
from tidemark.model.errors import ErrorCode
from tidemark.storage.disk import DiskError
from unit.broker.shell.replicated_worlds import LeaderWorld, partition, replica_reader, replicated


def bytes_of(outcome: object) -> int:
    read = getattr(outcome, "read", None)
    return 0 if read is None else int(read.length_bytes)


@pytest.mark.feature("G11", "G12")
def test_a_follower_reads_what_is_not_committed_and_its_progress_commits_it() -> None:
    world = LeaderWorld()
    assert world.append(acks=-1).must_wait
    assert bytes_of(world.read()) == 0
    assert bytes_of(world.fetch(2, 0)) > 0
    assert bytes_of(world.fetch(2, 1)) == 0
    assert world.high_watermark == 0
    assert world.fetch(3, 1).high_watermark == 1
    assert bytes_of(world.read()) > 0


@pytest.mark.feature("C08")
def test_progress_wakes_a_parked_produce_and_a_consumer() -> None:
    world = LeaderWorld()
    woken: list[bool] = []
    world.append(acks=-1)
    hosted, parked = world.hosted(), world.parked
    now = world.clock.now_ms()
    parked.requests.park_produce([(hosted, 1)], now=now, wait_ms=100, wake=woken.append)
    parked.requests.park_fetch([hosted], bytes_missing=1, now=now, wait_ms=100, wake=woken.append)
    world.fetch(2, 1)
    assert woken == []
    world.fetch(3, 1)
    assert woken == [True, True]


def test_a_fetch_whose_progress_fails_the_directory_is_refused() -> None:
    """What waits for the follower writes as soon as it is woken, and that write may fail."""
    world = LeaderWorld()
    world.append(acks=-1)
    world.append(acks=-1)
    hosted, now = world.hosted(), world.clock.now_ms()

    def fail(_: bool) -> None:
        world.parts.partitions.disks.fence_directory(
            hosted.manager, DiskError("orders-0/0.log", "full")
        )

    world.parked.requests.park_produce([(hosted, 1)], now=now, wait_ms=100, wake=fail)
    world.fetch(2, 1)
    assert world.fetch(3, 1).error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert hosted.partition.role is Role.FAILED


def test_a_diverged_follower_is_told_where_and_reads_nothing() -> None:
    world = LeaderWorld(partition(epoch=3))
    world.append()
    world.change(topics_changed=(replicated(partition(epoch=7, version=1)),))
    outcome = world.fetch(2, 5, leader_epoch=7, last_fetched_epoch=5)
    assert (outcome.error_code, outcome.diverging) == (ErrorCode.NONE, (3, 1))
    assert bytes_of(outcome) == 0
    assert world.hosted().partition.replica_set.progress[2].log_end == -1  # type: ignore[index]


def test_an_epoch_begins_without_a_record_and_is_forgotten_without_one() -> None:
    world = LeaderWorld(partition(epoch=3))
    world.append()
    world.change(topics_changed=(replicated(partition(epoch=7, version=1)),))
    assert world.hosted().log.epochs.latest == 7
    world.change(topics_changed=(replicated(partition(leader=2, epoch=8, version=2)),))
    assert world.hosted().log.epochs.latest == 3


def test_refusals_name_what_is_wrong() -> None:
    world = LeaderWorld(partition(epoch=3))
    assert world.fetch(2, 0, leader_epoch=2).error_code is ErrorCode.FENCED_LEADER_EPOCH
    assert world.fetch(2, 0, leader_epoch=4).error_code is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert world.fetch(9, 0, leader_epoch=3).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    outcome = world.fetch(2, 5, leader_epoch=3)
    assert (outcome.error_code, outcome.log_start) == (ErrorCode.OFFSET_OUT_OF_RANGE, 0)


def test_a_follower_outside_the_isr_is_noticed() -> None:
    world = LeaderWorld(partition(isr=(1, 2)))
    noticed: list[HostedPartition] = []
    world.parts.replication = replace(
        world.parts.replication, replica_reader=replica_reader(world.parts, noticed.append)
    )
    world.fetch(3, 0)
    world.change(topics_changed=(replicated(partition(version=1)),))
    world.fetch(3, 0)
    assert noticed == [world.hosted()]


@pytest.mark.feature("C07", "Y03")
def test_without_a_lease_acks_1_waits_for_the_isr() -> None:
    lease = [True]
    world = LeaderWorld(has_lease=lambda: lease[0])
    assert not world.append(acks=1).must_wait
    lease[0] = False
    assert world.append(acks=1).must_wait
    assert not world.append(acks=0).must_wait


def test_a_throttled_follower_waits_once_the_allowance_is_spent() -> None:
    world = LeaderWorld(partition(isr=(1, 2)), leader_replication_throttled_replicas="0:1")
    world.change(broker_configs_changed={"": {"leader.replication.throttled.rate": "10"}})
    world.append()
    assert bytes_of(world.fetch(3, 0)) > 10
    assert bytes_of(world.fetch(3, 0)) == 0
    assert bytes_of(world.fetch(2, 0)) > 10
    world.clock.advance(60_000)
    assert bytes_of(world.fetch(3, 0)) > 10


def test_the_throttles_list_names_who_sends_not_who_is_sent_to() -> None:
    world = LeaderWorld(partition(isr=(1,)), leader_replication_throttled_replicas="0:3,1:1")
    world.change(broker_configs_changed={"": {"leader.replication.throttled.rate": "10"}})
    world.append()
    assert bytes_of(world.fetch(3, 0)) > 10
    assert bytes_of(world.fetch(3, 0)) > 10
