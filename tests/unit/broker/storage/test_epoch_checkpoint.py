"""EpochCheckpoint: the file has each epoch before the log has its records."""

import pytest
from broker.core.leader_epochs import LeaderEpochs
from broker.storage import checkpoint
from broker.storage.epoch_checkpoint import EpochCheckpoint
from tidemark.storage.mem_disk import MemDisk
from unit.broker.storage.log_worlds import ORDERS, append, flush, new_log, opened


def kept(disk: MemDisk, directory: str) -> list[tuple[int, int]]:
    """Epochs in the file."""
    read = checkpoint.read_epochs(disk, f"{directory}/{checkpoint.LEADER_EPOCHS}")
    return [(int(epoch), int(start)) for epoch, start in read or ()]


def test_every_change_is_in_the_file() -> None:
    disk, _, log = new_log()
    epochs = EpochCheckpoint(disk, log.directory, LeaderEpochs(), log.health)
    for epoch, start in ((1, 0), (2, 10), (4, 20)):
        epochs.assign(epoch, start)
        assert (kept(disk, log.directory)[-1], epochs.written) == ((epoch, start), epoch)
    epochs.cut_to(20)
    assert kept(disk, log.directory) == [(1, 0), (2, 10)]
    epochs.start_at(5)
    assert kept(disk, log.directory) == [(1, 5), (2, 10)]
    assert epochs.written == 2


def test_a_cut_that_changes_no_epoch_writes_nothing() -> None:
    disk, _, log = new_log()
    epochs = EpochCheckpoint(disk, log.directory, LeaderEpochs([(1, 0)]), log.health)
    epochs.cut_to(9)
    epochs.start_at(0)
    assert kept(disk, log.directory) == []


@pytest.mark.parametrize("restarts", [False, True])
def test_an_epoch_that_ended_without_a_record_does_not_hide_an_older_one(restarts: bool) -> None:
    """It led in epoch 6, in which it wrote nothing; its next leader has records of epoch 5."""
    disk, manager, log = new_log()
    for _ in range(8):
        append(log, epoch=4)
    log.epochs.assign(6, log.log_end)
    log.advance_log_start(3)  # puts all epochs into the file
    flush(manager)
    if restarts:
        log = opened(disk).logs[ORDERS]
    else:
        log.epochs.truncate_to(log.log_end)
    append(log, epoch=5)
    append(log, epoch=5)
    append(log, epoch=7)
    assert log.epochs.entries() == ((4, 3), (5, 8), (7, 10))
    assert kept(disk, log.directory) == [(4, 3), (5, 8), (7, 10)]
