"""EpochCheckpoint: the leader epochs of one log, and their file."""

from tidemark.model.ids import NO_EPOCH
from tidemark.storage.disk import Disk

from broker.core.leader_epochs import LeaderEpochs
from broker.storage import checkpoint
from broker.storage.log_health import LogHealth


class EpochCheckpoint:
    """Invariant: an epoch is in the file before any record of it is in the log."""

    __slots__ = ("_disk", "_health", "_path", "epochs", "written")

    def __init__(self, disk: Disk, directory: str, epochs: LeaderEpochs, health: LogHealth) -> None:
        self._disk = disk
        self._health = health
        self.moved_to(directory)
        self.epochs = epochs
        self.written = epochs.latest
        """Latest epoch in the file; NO_EPOCH if that is not known."""

    def moved_to(self, directory: str) -> None:
        """Note that the directory has another name."""
        self._path = f"{directory}/{checkpoint.LEADER_EPOCHS}"

    def write(self) -> None:
        """Replace the file. Raises DiskError."""
        self.written = NO_EPOCH  # if it fails, the next record waits for the next try
        with self._health.guarded():
            checkpoint.write_epochs(self._disk, self._path, self.epochs.entries())
        self.written = self.epochs.latest

    def assign(self, leader_epoch: int, start_offset: int) -> None:
        """Begin a leader epoch, with a record that is about to be written. Later ones that begin
        there have none: their leader wrote nothing. Raises DiskError.
        """
        if leader_epoch < self.epochs.latest:
            self.epochs.truncate_to(start_offset)
        self.epochs.assign(leader_epoch, start_offset)
        self.write()

    def cut_to(self, end: int) -> None:
        """Forget the epochs that begin at ``end`` or later. Raises DiskError. On a full disk they
        stay in the file until the next write, or the next start, which reads the batches.
        """
        if self.epochs.truncate_to(end):
            with self._health.unless_full():
                self.write()

    def start_at(self, offset: int) -> None:
        """Forget the epochs that end at ``offset`` or before. Raises DiskError."""
        if self.epochs.truncate_from_start(offset):
            self.write()
