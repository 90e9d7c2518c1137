"""The state topic stays short, whatever is written to it, and nothing that is needed is deleted."""

import pytest
from share_coordinator.core.settings import ShareSettings
from share_coordinator.core.upkeep import LOG_RECORDS_MIN, REWRITTEN_PER_WAKE, Upkeep
from tidemark.codec.share_group_records import ShareGroupMetadataRecord, ShareGroupMetadataValue
from tidemark.model.ids import InstantMs, Offset, WallMs
from tidemark.model.share_state import DeliveryState
from tidemark.protocol.shard import Moment
from unit.share_coordinator.worlds import World, batch

INTERVAL_MS = 300_000
ACKNOWLEDGED = DeliveryState.ACKNOWLEDGED
SETTINGS = ShareSettings(
    share_coordinator_snapshot_update_records_per_snapshot=10,
    share_coordinator_cold_partition_snapshot_interval_ms=INTERVAL_MS,
    share_coordinator_state_topic_prune_interval_ms=INTERVAL_MS,
)


def a_busy_world(partitions: int = 2) -> World:
    """Of a topic only the first share-partition is written, again and again."""
    world = World(SETTINGS, t=partitions)
    world.join("a", "t")
    world.beat("a", -1)
    world.checks = False  # of thousands of states, after each of thousands of writes
    for offset in range(LOG_RECORDS_MIN + 4 * partitions + 100):
        world.write(world.key("t", 0), batch(offset, offset, ACKNOWLEDGED), start=0)
    world.checks = True
    return world


def test_a_share_partition_without_writes_does_not_keep_the_log() -> None:
    world = a_busy_world()
    world.sleep(INTERVAL_MS)
    assert world.log_start > 1_000
    before = world.shard
    world.reload()
    assert world.shard == before


@pytest.mark.parametrize("partitions", [REWRITTEN_PER_WAKE * 2 + 7])
def test_old_records_are_written_again_part_by_part(partitions: int) -> None:
    world = a_busy_world(partitions)
    before = len(world.log)
    world.sleep(INTERVAL_MS)
    assert len(world.log) - before == partitions - 1 + len({"epoch", "target", "topics"})
    world.sleep(INTERVAL_MS)
    assert world.log_start >= 1_000


def test_a_record_that_is_not_committed_yet_is_not_written_again_twice() -> None:
    upkeep = Upkeep(SETTINGS)
    upkeep.start(Moment(InstantMs(0), WallMs(0)))
    late = Moment(InstantMs(INTERVAL_MS), WallMs(0))
    for offset in range(LOG_RECORDS_MIN * 3):
        name = f"g{offset}" if offset < REWRITTEN_PER_WAKE + 1 else "busy"
        record = ShareGroupMetadataRecord(name, ShareGroupMetadataValue(1))
        upkeep.located(record, Offset(offset))
    first, second, third = (upkeep.cold_keys(late) for _ in range(3))
    assert (len(first), len(second), third) == (REWRITTEN_PER_WAKE, 1, ())
    assert not set(first) & set(second)


def test_a_quiet_shard_writes_nothing() -> None:
    world = a_busy_world()
    world.sleep(INTERVAL_MS * 2)
    before = len(world.log)
    world.sleep(INTERVAL_MS * 10)
    assert len(world.log) == before


def test_nothing_is_pruned_twice() -> None:
    world = a_busy_world()
    world.sleep(INTERVAL_MS * 2)
    world.log_start = -1
    world.sleep(INTERVAL_MS * 5)
    assert world.log_start == -1
