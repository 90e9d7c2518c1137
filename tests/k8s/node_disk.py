"""A disk of a node that fails on demand: an ext4 on a loop device, mounted where a volume is."""

import sys
from pathlib import Path
from typing import Final

from e2e.disk_fixtures import EXT4_IOC_SHUTDOWN, GOING_FLAGS_NOLOGFLUSH
from lab import node
from lab.settings import node_directory

SIZE: Final = 256 * 2**20
_SHUT_DOWN: Final = f"""\
import fcntl, os, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), {EXT4_IOC_SHUTDOWN}, {GOING_FLAGS_NOLOGFLUSH!r})
"""


class NodeDisk:
    """Disk at a path that only the node sees."""

    def __init__(self, number: int, path: Path) -> None:
        self._number = number
        self._path = str(path)
        self._made = 0

    def mount_empty(self) -> None:
        """Mount an empty disk."""
        self._made += 1
        image = node_directory(self._number) / f"disk-{self._made}.img"
        with image.open("wb") as file:
            file.truncate(SIZE)
        node.inside(self._number, "mkfs.ext4", "-q", "-F", str(image))
        node.inside(self._number, "mount", "-o", "loop", str(image), self._path)

    def fail(self) -> None:
        """From now on every write and sync fails with an I/O error."""
        node.inside(self._number, sys.executable, "-c", _SHUT_DOWN, self._path)

    def unmount(self) -> None:
        """Take the disk away. Pods that have it keep it."""
        node.inside(self._number, "umount", "--lazy", self._path)
