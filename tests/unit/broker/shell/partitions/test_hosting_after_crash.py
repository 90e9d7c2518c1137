"""A partition of flush=group after a crash: what was acknowledged is shown again soon."""

from tidemark.storage.mem_disk import MemDisk
from unit.broker.shell.broker_worlds import World, topic


def test_what_recovery_found_asks_for_a_group_round() -> None:
    disk = MemDisk()
    before = World(disk)
    before.show(topic(configs={"flush": "group"}))
    before.append()
    disk.kill()
    after = World(disk)
    after.show(topic(configs={"flush": "group"}))
    assert after.parts.partitions.group_commits.is_requested(
        after.parts.partitions.disks.log_managers[0]
    )
    assert after.hosted().partition.high_watermark == 0
