"""Notes of failed log directories in memory that outlives the process, and not the machine.

A disk that fails may take no note of its own failure, and what a failed sync dropped is trusted
only while the machine runs. So a tmpfs is the right place for the same note: no disk can keep it
from being written, and it is gone when it is no longer needed. One file for each log directory,
with its id as the name and the reason as the content; brokers on one machine may share the place.
"""

import contextlib
import logging
from typing import Final

from tidemark.storage.disk import Disk, DiskError, ExhaustedError

_log: Final = logging.getLogger(__name__)


class FailureMemory:
    """Notes on ``disk``; None: this process has no such place, and nothing is remembered."""

    def __init__(self, disk: Disk | None) -> None:
        self._disk = disk

    def note(self, directory_id: str, reason: str) -> None:
        """Keep the reason why a directory is not to be trusted."""
        if self._disk is None:
            return
        try:
            self._disk.replace_whole(directory_id, reason.encode(), sync=False)
        except DiskError as error:
            _log.warning("failure of a disk could not be recorded in memory: %s", error)

    def reason(self, directory_id: str) -> str | None:
        """Return the recorded failure of a directory, or None. Raises ExhaustedError."""
        if self._disk is None:
            return None
        try:
            return self._disk.read_whole(directory_id).decode("utf-8", "replace")
        except FileNotFoundError:
            return None
        except ExhaustedError:
            raise
        except DiskError as error:
            return str(error)

    def forget(self, directory_id: str) -> None:
        """The directory is trusted again."""
        if self._disk is not None:
            with contextlib.suppress(DiskError):
                self._disk.remove(directory_id)
