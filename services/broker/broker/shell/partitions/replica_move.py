"""ReplicaMove: one replica on its way to another log directory."""

from broker.core.directory_move import DirectoryMove
from broker.storage.log import Log
from broker.storage.log_manager import LogManager


class ReplicaMove:
    """The future log of one replica, and the decisions about it."""

    __slots__ = ("future", "lacks_space", "manager", "plan")

    def __init__(self, manager: LogManager, future: Log) -> None:
        self.manager = manager
        """Directory that the replica moves to."""
        self.future = future
        self.plan = DirectoryMove()
        self.lacks_space = False
        """True while it waits for space in that directory."""
