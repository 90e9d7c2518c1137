from broker.storage.log_making import LastStop, make_files, make_log, recover_log
from broker.storage.offset_checkpoints import OffsetCheckpoints
from tidemark.storage.mem_disk import MemDisk
from unit.broker.storage.log_worlds import NOW, ORDERS, ORDERS_ID, TINY, append, new_log


def test_an_empty_log_begins_at_offset_zero_in_the_directory_named() -> None:
    disk, _, other = new_log()
    recovered = make_files(disk, "elsewhere", ORDERS_ID, NOW)
    log = make_log(other._shared, ORDERS, ORDERS_ID, TINY, recovered)
    append(log)
    assert log.log_end == 1
    assert disk.exists(f"elsewhere/{0:020d}.log")


def test_what_a_crash_left_is_recovered_and_reported() -> None:
    disk, manager, log = new_log()
    append(log, records=5)
    offsets = OffsetCheckpoints(disk, manager.logs)
    stop = LastStop(is_clean=False, same_boot=True, is_trusted=True)
    again, report = recover_log(log._shared, offsets, stop, "orders-0", ORDERS, ORDERS_ID, TINY)
    assert again.log_end == 5
    assert report is not None
    assert report.damage is None


def test_nothing_is_reported_of_an_empty_log() -> None:
    disk = MemDisk()
    _, manager, log = new_log(disk=disk)
    offsets = OffsetCheckpoints(disk, manager.logs)
    stop = LastStop(is_clean=True, same_boot=True, is_trusted=True)
    _, report = recover_log(log._shared, offsets, stop, "orders-0", ORDERS, ORDERS_ID, TINY)
    assert report is None
