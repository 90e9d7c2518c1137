"""EpochCheckpoint: the file has each epoch before the log has its records."""

from broker.core.leader_epochs import LeaderEpochs
from broker.storage import checkpoint
from broker.storage.epoch_checkpoint import EpochCheckpoint
from tidemark.storage.mem_disk import MemDisk
from unit.broker.storage.log_worlds import new_log


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
