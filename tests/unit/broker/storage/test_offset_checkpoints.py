import pytest
from broker.storage import checkpoint
from broker.storage.log import Log
from broker.storage.offset_checkpoints import OffsetCheckpoints
from tidemark.model.ids import TopicId
from tidemark.storage.disk import DiskFullError
from tidemark.storage.mem_disk import MemDisk
from unit.broker.storage.log_worlds import (
    NOW,
    ORDERS,
    TINY,
    NearlyFull,
    append,
    flush,
    new_log,
    opened,
)


def test_what_the_checkpoints_name_has_had_a_log() -> None:
    disk, manager, log = new_log()
    append(log)
    flush(manager)
    offsets = OffsetCheckpoints(disk, manager.logs)
    offsets.load()
    assert set(offsets.named()) == {ORDERS}


def test_a_high_watermark_is_lowered_with_the_log_and_else_left_alone() -> None:
    disk, logs = MemDisk(), dict[object, Log]()
    offsets = OffsetCheckpoints(disk, logs)  # type: ignore[arg-type]
    offsets.save_high_watermarks({ORDERS: 9})
    offsets.logs_end({ORDERS: 12})
    assert offsets.high_watermarks == {ORDERS: 9}
    offsets.logs_end({ORDERS: 4})
    assert checkpoint.read_offsets(disk, checkpoint.HIGH_WATERMARKS) == {ORDERS: 4}


@pytest.mark.parametrize("name", [checkpoint.RECOVERY_POINTS, checkpoint.LOG_STARTS])
def test_a_deleted_topic_is_forgotten_by_the_second_try_if_the_disk_was_full(name: str) -> None:
    """Its log start would hide the records of a topic that has its name now."""
    disk = NearlyFull()
    _, manager, log = new_log(disk=disk)
    for _ in range(9):
        append(log)
    log.advance_log_start(3)
    flush(manager)
    manager.delete(ORDERS)
    disk.no_room_for = name
    with pytest.raises(DiskFullError):
        manager.create(ORDERS, TopicId(bytes(15) + b"\x02"), TINY, NOW)
    disk.no_room_for = "-"
    assert manager.try_heal()
    log = manager.create(ORDERS, TopicId(bytes(15) + b"\x02"), TINY, NOW)
    for _ in range(3):
        append(log)
    disk.kill()
    log = opened(disk).logs[ORDERS]
    assert (log.log_start, log.log_end, log.damage) == (0, 3, None)


LOST = {
    "no recovery points": (checkpoint.RECOVERY_POINTS, None),
    "empty": (checkpoint.RECOVERY_POINTS, b""),
    "cut": (checkpoint.HIGH_WATERMARKS, b"0\n2\norders 0 1\n"),
}


@pytest.mark.feature("Y10")
@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
@pytest.mark.parametrize("lost", LOST)
def test_a_disk_that_lost_a_checkpoint_is_not_trusted_while_the_kernel_goes_on(
    lost: str, boot: str
) -> None:
    disk, manager, log = new_log()
    append(log)
    flush(manager)
    name, content = LOST[lost]
    disk.remove(name)
    if content is not None:
        disk.replace_whole(name, content)
    disk.kill()
    assert (opened(disk, boot_id=boot).distrusted is not None) == (boot == "boot-1")
    if boot == "boot-1":
        disk.kill()
        assert opened(disk).distrusted is not None, "the controller has not been told"


def test_a_log_that_was_removed_by_hand_is_missing_and_a_deleted_one_is_not() -> None:
    disk, manager, log = new_log()
    append(log)
    flush(manager)
    disk.kill()
    disk.remove("orders-0")
    assert opened(disk).missing == {ORDERS}
    disk, manager, log = new_log()
    append(log)
    flush(manager)
    manager.delete(ORDERS)
    disk.kill()
    assert opened(disk).missing == set()
