"""A file whose device fails, as a queue that sends from it meets it."""

import os
from pathlib import Path

from tidemark.runtime.os_disk import OsDisk, OsFile
from tidemark.storage.disk import DiskError


class FailingFile(OsFile):
    """Can be neither read nor sent from. ``is_cold``: which a thread is to find out."""

    __slots__ = ("is_cold",)

    def __init__(self, path: Path, *, is_cold: bool) -> None:
        super().__init__(os.open(path, os.O_RDONLY), path.name, OsDisk(path.parent))
        self.is_cold = is_cold

    def resident(self, position: int, length: int) -> bool:
        """As told."""
        return not self.is_cold

    def read_resident(self, position: int, length: int) -> None:
        """As pread that must not wait, or fails."""

    def read_at(self, position: int, length: int) -> bytes:
        """As pread."""
        raise DiskError(self.path, "Input/output error")

    def send_to(self, socket: int, position: int, length: int) -> int:
        """As sendfile."""
        raise DiskError(self.path, "Input/output error")
