"""The brokers' disks: an ext4 of its own for each, on a loop device, that fails when told to."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from broker.storage.checkpoint import HIGH_WATERMARKS, RECOVERY_POINTS
from e2e.disk_fixtures import MIB, Ext4, ext4_problem
from tidemark.codec.record_batch import iterate_headers

DISK_BYTES: Final = 4_096 * MIB
"""Of a sparse file."""
_CORRECTED: Final = 1
"""e2fsck's status: errors were there, and are not any more."""
_RECORDS: Final = "*.log"


class Disks:
    """One for each broker, mounted where its data are. None where that cannot be done here."""

    def __init__(self, directory: Path, data: Mapping[str, Path]) -> None:
        """``data``: by broker; the paths do not exist yet."""
        self.problem = ext4_problem()
        """Why no disk can fail here; None when they can."""
        self._disks: dict[str, Ext4] = {}
        if self.problem is not None:
            return
        for name, path in data.items():
            disk = self._disks[name] = Ext4(directory / f"disk-{name}", DISK_BYTES)
            disk.mount()
            inside = disk.path / "data"
            inside.mkdir()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(inside)

    def fail(self, name: str) -> None:
        """Every write and sync fails, and what was not synced is gone."""
        self._disks[name].shut_down()

    def mend(self, name: str) -> None:
        """As a person would: unmount, check, mount; in the same boot. Raises OSError."""
        disk = self._disks[name]
        disk.unmount()
        check = ["e2fsck", "-p", str(disk.image)]
        done = subprocess.run(check, capture_output=True, text=True, check=False)
        if done.returncode > _CORRECTED:
            raise OSError(f"{' '.join(check)}: {done.stdout}{done.stderr}")
        disk.mount()

    def close(self) -> None:
        """Unmount all. The images stay with the run's directory: they are its evidence."""
        for disk in self._disks.values():
            disk.release()


def cut_in_half(data: Path, partition: str) -> Path | None:
    """Cut a file of a partition's records to half of what the broker has written down as synced or
    committed, in the last file that has any. Return its path; None where there is nothing.

    Bytes beyond are promised only for as long as the kernel runs: that they are gone need not be
    noticed (docs/storage.md).
    """
    known_end = _known_end(data, partition)
    for path in sorted((data / partition).glob(_RECORDS), reverse=True):
        content = path.read_bytes()
        known_bytes = sum(
            header.size_bytes
            for _, header in iterate_headers(memoryview(content))
            if header.last_offset < known_end
        )
        if known_bytes:
            with path.open("r+b") as file:
                file.truncate(known_bytes // 2)
            return path
    return None


def _known_end(data: Path, partition: str) -> int:
    """Behind the last record that a checkpoint tells of."""
    topic, _, number = partition.rpartition("-")
    entry = f"{topic} {number} "
    return max(
        (
            int(line.removeprefix(entry))
            for name in (RECOVERY_POINTS, HIGH_WATERMARKS)
            if (data / name).exists()
            for line in (data / name).read_text().splitlines()
            if line.startswith(entry)
        ),
        default=0,
    )
