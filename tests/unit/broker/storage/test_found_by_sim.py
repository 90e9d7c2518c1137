"""What the simulator found, small: each was a loss of records or of what is known about them."""

import pytest
from tidemark.storage.disk import DiskFullError
from unit.broker.storage.log_worlds import ORDERS, append, flush, new_log, opened

LOG = "orders-0/00000000000000000000.log"
LAST_OFFSET_DELTA = 23


@pytest.mark.feature("B05")
@pytest.mark.parametrize("byte", range(LAST_OFFSET_DELTA, LAST_OFFSET_DELTA + 4))
def test_a_flipped_synced_header_does_not_move_the_end_of_the_log(byte: int) -> None:
    disk, manager, log = new_log()
    append(log)
    append(log)
    flush(manager)
    size_bytes = disk.size_of(LOG)
    disk.flip_bit(LOG, byte, 6)
    disk.kill()
    recovered = opened(disk).logs[ORDERS]
    assert recovered.log_end == 2
    assert recovered.damage is not None
    assert disk.size_of(LOG) == size_bytes


def test_deleted_records_that_power_loss_brings_back_have_their_epoch() -> None:
    for kept in range(4):
        disk, manager, log = new_log()
        append(log)
        append(log, epoch=1)
        flush(manager)
        disk.sync_directory("")
        log.advance_log_start(2)
        disk.crash([kept])
        recovered = opened(disk).logs[ORDERS]
        assert recovered.log_start == 2 or recovered.epochs.epoch_of(0) == 0


def test_a_log_start_that_could_not_be_kept_has_not_moved() -> None:
    disk, _, log = new_log()
    append(log)
    disk.capacity_bytes = 1
    with pytest.raises(DiskFullError):
        log.advance_log_start(1)
    assert log.log_start == 0
