"""Hosting: images in, hosted partitions out."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from broker.core.partition import Role
from broker.shell.metrics.collector import BrokerCollector
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.partitions.hosting import HOSTED_AT_ONCE, Hosting
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import ControllerEpoch, ControllerId, LeaderEpoch
from tidemark.model.metadata import ClusterDelta, ClusterImage, FeedPosition
from tidemark.storage.disk import DiskError
from tidemark.storage.mem_disk import MemDisk
from unit.broker.shell.broker_worlds import OTHER, World, topic


def test_partitions_spread_over_the_directories() -> None:
    one = World(MemDisk(), MemDisk())
    one.show(topic(partitions=4))
    assert [len(manager.logs) for manager in one.parts.partitions.disks.log_managers] == [2, 2]
    assert all(hosted.partition.role is Role.LEADER for hosted in one.table.by_name.values())


def test_a_topic_led_elsewhere_is_not_hosted() -> None:
    one = World()
    one.show(topic(leader=OTHER))
    assert one.table.by_name == {}


def test_a_deleted_topic_goes_and_its_successor_starts_empty() -> None:
    one = World()
    one.show(topic())
    one.append()
    old = one.hosted()
    one.change(topics_changed=(topic(number=2),), topics_deleted=(topic().topic_id,))
    assert one.hosted() is not old
    assert one.hosted().partition.log_end == 0
    assert old.partition.role is Role.OFFLINE
    assert one.table.find("", topic().topic_id, 0) is ErrorCode.UNKNOWN_TOPIC_ID


def test_a_snapshot_deletes_what_it_does_not_name() -> None:
    one = World()
    one.show(topic(), topic("gone", number=2))
    one.show(topic())
    assert set(one.table.by_name) == {("orders", 0)}


def test_metrics_of_a_topic_go_with_its_last_partition_and_the_sum_over_all_topics_stays() -> None:
    def bytes_in() -> dict[str, float]:
        families = BrokerCollector(one.parts.measured()).collect()
        name = "kafka_server_brokertopicmetrics_bytesin"
        (found,) = (family for family in families if family.name == name)
        return {sample.labels["topic"]: sample.value for sample in found.samples}

    async def run() -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
        one.show(topic(partitions=2), topic("kept", number=2))
        for partition in (0, 1):
            one.append(partition=partition)
        before = bytes_in()
        elsewhere = replace(topic(partitions=2).partitions[1], replicas=(OTHER,), leader=OTHER)
        moved = replace(topic(), partitions=(topic().partitions[0], elsewhere))
        one.change(topics_changed=(moved,))
        while_moved = bytes_in()
        one.change(topics_deleted=(topic().topic_id,))
        return before, while_moved, bytes_in()

    one = World()
    before, while_moved, after = asyncio.run(run())
    assert before["orders"] == before[""] > 0
    assert while_moved == before, "a partition of it is hosted"
    assert after == {"kept": 0, "": before[""]}


def test_at_start_a_log_is_found_again_and_strays_are_set_aside() -> None:
    disk = MemDisk()
    first = World(disk)
    first.show(topic(), topic("stray", number=2), topic("reborn", number=3))
    first.append()
    first.parts.partitions.disks.log_managers[0].close()
    again = World(disk)
    again.show(topic(), topic("reborn", number=4))
    assert again.hosted().partition.log_end == 1
    assert again.hosted("reborn").partition.log_end == 0
    assert set(again.parts.partitions.disks.log_managers[0].logs) == {("orders", 0), ("reborn", 0)}
    assert len(again.parts.partitions.disks.log_managers[0].strays) == 2


def test_configuration_reaches_the_log_and_the_partition() -> None:
    one = World(log_retention_ms="5000")
    one.show(topic())
    assert one.hosted().log.config.retention_ms == 5_000
    one.change(topics_changed=(topic(configs={"max.message.bytes": "65", "flush": "group"}),))
    assert one.append().error_code is ErrorCode.MESSAGE_TOO_LARGE
    assert one.hosted().partition.limits.flush_group
    one.change(broker_configs_changed={"": {"log.retention.ms": "7000"}})
    assert one.hosted().log.config.retention_ms == 7_000
    one.change(broker_configs_changed={"1": {"log.retention.ms": "9000"}})
    assert one.hosted().log.config.retention_ms == 9_000


def test_compaction_and_recompression_need_a_worker() -> None:
    one = World()
    one.show(topic())
    assert one.hosted().rule is None
    one.change(topics_changed=(topic(configs={"cleanup.policy": "compact"}),))
    assert one.hosted().rule is not None


def test_a_new_leader_epoch_is_taken_over() -> None:
    one = World()
    one.show(topic())
    one.change(topics_changed=(topic(epoch=4),))
    assert one.hosted().partition.leader_epoch == 4
    one.append()
    assert one.hosted().log.epochs.latest == 4


def test_what_no_directory_takes_is_tried_again_once_one_has_healed() -> None:
    disk = MemDisk()
    one = World(disk)
    disk.capacity_bytes = 1
    one.show(topic())
    assert one.table.find("orders", bytes(16), 0) is ErrorCode.KAFKA_STORAGE_ERROR
    disk.capacity_bytes = 1 << 30
    assert one.parts.partitions.disks.log_managers[0].try_heal()
    asyncio.run(one.hosting.retry())
    assert one.append().error_code is ErrorCode.NONE


@pytest.mark.feature("KU13")
def test_partitions_that_are_led_here_and_not_served_are_counted() -> None:
    disk = MemDisk()
    one = World(disk)
    one.show(topic("served", number=2, partitions=2))
    assert one.hosting.unserved() == 0
    disk.capacity_bytes = 1
    full = topic("full", partitions=3)
    one.change(topics_changed=(full,))
    assert one.hosting.unserved() == 3
    one.change(topics_changed=(replace(full, partitions=topic("full", leader=OTHER).partitions),))
    assert one.hosting.unserved() == 0, "what another broker leads is that broker's"
    disks = one.parts.partitions.disks
    disks.fence_directory(disks.log_managers[0], DiskError("x", "EIO"))
    assert one.hosting.unserved() == 0, "a failed directory is reported, and not waited for"


def test_what_is_tried_again_takes_bounded_steps_and_leaves_the_others_alone() -> None:
    disk, count = MemDisk(), HOSTED_AT_ONCE * 3
    one = World(disk)
    one.show(topic("there", number=2, partitions=50))
    disk.capacity_bytes = 1
    one.show(topic("there", number=2, partitions=50), topic(partitions=count))
    disk.capacity_bytes = 1 << 30
    assert one.parts.partitions.disks.log_managers[0].try_heal()

    async def scenario() -> None:
        retrying = asyncio.get_running_loop().create_task(one.hosting.retry())
        before = len(one.table.by_name)
        while not retrying.done():
            await asyncio.sleep(0)
            assert len(one.table.by_name) - before <= HOSTED_AT_ONCE
            before = len(one.table.by_name)

    asyncio.run(scenario())
    assert len(one.table.by_name) == 50 + count


def test_what_is_tried_again_waits_for_an_image_that_is_being_taken() -> None:
    async def scenario() -> None:
        disk = MemDisk()
        one = World(disk)
        disk.capacity_bytes = 1
        one.show(topic())
        disk.capacity_bytes = 1 << 30
        one.parts.partitions.disks.log_managers[0].try_heal()
        large = ClusterDelta(topics_changed=(topic("l", number=2, partitions=2 * HOSTED_AT_ONCE),))
        position = FeedPosition(ControllerEpoch(1), 9)
        more = one.parts.metadata.image.apply(large, position, ControllerId(1))
        taking = asyncio.get_running_loop().create_task(
            one.parts.metadata.take_in_steps(more, large)
        )
        await asyncio.sleep(0)
        await one.hosting.retry()
        assert not taking.done()
        assert ("orders", 0) not in one.table.by_name
        await taking
        await one.hosting.retry_due()
        assert one.append().error_code is ErrorCode.NONE

    asyncio.run(scenario())


def test_a_change_of_one_partition_leaves_the_others_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = World()
    one.show(topic(partitions=50))
    followed: list[int] = []
    follow = Hosting._follow

    def counted(hosting: Hosting, hosted: HostedPartition, *state: Any) -> None:
        followed.append(hosted.topic_partition.partition)
        follow(hosting, hosted, *state)

    monkeypatch.setattr(Hosting, "_follow", counted)
    moved = replace(topic(partitions=50).partitions[7], leader_epoch=LeaderEpoch(3))
    one.change(partitions_changed={topic().topic_id: (moved,)})
    one.change(topics_changed=(topic("other", number=9, leader=OTHER),))
    assert followed == [7]
    assert one.hosted(partition=7).partition.leader_epoch == 3


def test_a_large_image_is_hosted_in_steps_and_shown_after_the_last() -> None:
    async def scenario() -> None:
        one, whole = World(), topic(partitions=HOSTED_AT_ONCE * 3)
        image = ClusterImage(
            position=FeedPosition(ControllerEpoch(1), 1),
            topics={whole.name: whole},
            topics_by_id={whole.topic_id: whole},
        )
        taking = asyncio.get_running_loop().create_task(one.parts.metadata.take_in_steps(image))
        seen: list[int] = []
        while not taking.done():
            await asyncio.sleep(0)
            seen.append(len(one.table.by_name))
            assert (one.parts.metadata.image is image) is taking.done()
        assert seen[:2] == [HOSTED_AT_ONCE, 2 * HOSTED_AT_ONCE]
        assert seen[-1] == 3 * HOSTED_AT_ONCE

    asyncio.run(scenario())
