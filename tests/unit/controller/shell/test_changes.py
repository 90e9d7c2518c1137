"""Log lines and counts of a published change."""

import logging
from dataclasses import replace

import pytest
from controller.shell.changes import PartitionChange, changes_of, report
from tidemark.model.ids import NO_BROKER, BrokerId
from tidemark.model.metadata import (
    TXN,
    ClusterDelta,
    ClusterImage,
    FeedPosition,
    PartitionImage,
    ShardOwner,
)
from unit.controller.worlds import a_coordinator, a_topic

TOPIC = a_topic("orders", (1, 2, 3), (2, 3, 1))
ONE = TOPIC.partitions[0]


def led_by(leader: int, partition: PartitionImage = ONE) -> PartitionImage:
    return replace(partition, leader=BrokerId(leader))


def image_of(partition: PartitionImage) -> ClusterImage:
    topic = replace(TOPIC, partitions=(partition, TOPIC.partitions[1]))
    return ClusterImage(topics={"orders": topic}, topics_by_id={TOPIC.topic_id: topic})


def delta_to(partition: PartitionImage) -> ClusterDelta:
    return ClusterDelta(
        topics_changed=(replace(TOPIC, partitions=(partition, TOPIC.partitions[1])),)
    )


def test_only_partitions_that_differ_are_changes() -> None:
    (change,) = changes_of(image_of(ONE), delta_to(led_by(2)))
    assert (change.name, change.elected, change.unclean) == ("orders-0", True, False)


def test_a_leader_from_outside_isr_and_elr_is_unclean() -> None:
    before = replace(led_by(-1), isr=(BrokerId(1),), elr=(BrokerId(2),))
    assert not PartitionChange("t", before, led_by(2)).unclean
    assert PartitionChange("t", before, led_by(3)).unclean


def test_a_new_partition_is_no_election() -> None:
    assert not PartitionChange("t", None, ONE).elected


def test_losing_the_leader_is_logged_and_is_no_election() -> None:
    change = PartitionChange("t", ONE, led_by(NO_BROKER))
    assert (change.went_offline, change.elected) == (True, False)


def test_a_move_of_replicas_starts_and_ends() -> None:
    moving = replace(ONE, adding=(BrokerId(3),))
    assert PartitionChange("t", ONE, moving).reassignment == "started"
    assert PartitionChange("t", moving, ONE).reassignment == "ended"
    assert PartitionChange("t", moving, moving).reassignment == ""


def test_elections_are_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    before, delta = image_of(replace(led_by(-1), isr=(BrokerId(1),))), delta_to(led_by(3))
    after = before.apply(delta, FeedPosition(before.position.controller_epoch, 9), BrokerId(1))  # type: ignore[arg-type]
    with caplog.at_level(logging.INFO):
        assert report(before, delta, after) == (1, 1)
    said = [record.message for record in caplog.records]
    assert said.count("leaders elected") == 1
    assert "unclean leaders elected, records may be lost" in said


def test_moves_of_shards_are_logged_and_mere_acquisitions_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = a_coordinator(1)
    before = replace(
        image_of(ONE), shards={TXN: (ShardOwner(0, 1, 1), ShardOwner(1, 2, 1), ShardOwner(2))}
    )
    delta = ClusterDelta(
        coordinators_changed=(one,),
        coordinators_gone=((TXN, 2),),
        shards_changed={TXN: (ShardOwner(0, 1, 2), ShardOwner(1, 1, 2), ShardOwner(2, -1, 0))},
    )
    epoch, version = before.position
    after = before.apply(delta, FeedPosition(epoch, version + 1), before.controller_id)
    with caplog.at_level(logging.INFO):
        assert report(before, delta, after) == (0, 0)
    told = [record.message for record in caplog.records]
    assert told == ["coordinator registered", "coordinator gone", "shards assigned"]
    assert "1:1" in str(caplog.records[-1].__dict__)
