"""Failed log directories of a broker, recorded over restarts.

After a failed read, write or sync the state of bytes that were not on disk yet is unknown: the
kernel may have dropped them, or treat them as written. A broker therefore records the directory in
``failed-disks``, a small file in each of its log directories, before it does anything else. A later
start does not trust the page cache or a clean-shutdown marker of a recorded directory: it scans,
writes the tails again, and registers without the directory's replicas. The note is removed once the
controller has answered that registration. The same note is kept in memory that outlives the process
(``failure_memory``), since a disk may fail to take the note of its own failure.
"""

import contextlib
import json
import logging
from collections.abc import Iterable, Mapping
from typing import Final

from tidemark.storage.disk import Disk, DiskError, ExhaustedError

from broker.storage.checkpoint import CheckpointError, NewerVersionError, check_version
from broker.storage.failure_memory import FailureMemory

_log: Final = logging.getLogger(__name__)
FAILED_DISKS: Final = "failed-disks"
_VERSION: Final = 0


class DiskFailures:
    """Failures of all log directories of one broker, by directory id. Shared by their managers."""

    def __init__(self, disks: Iterable[Disk], memory: Disk | None = None) -> None:
        """Read the notes of earlier processes. ``memory`` keeps files while the machine runs;
        None where there is no such place. Raises NewerVersionError, ExhaustedError.
        """
        self._disks = list(disks)
        self._memory = FailureMemory(memory)
        self._reasons: dict[str, str] = {}
        self._unreadable: str | None = None
        """Reason why a note could not be read. It may record the failure of any directory."""
        for disk in self._disks:
            try:
                self._reasons.update(_read(disk))
            except NewerVersionError:
                raise
            except CheckpointError as error:
                _log.warning("no log directory is trusted: %s", error)
                self._unreadable = str(error)

    def reason(self, directory_id: str) -> str | None:
        """Return the recorded failure of a directory, or None. Raises ExhaustedError."""
        noted = self._reasons.get(directory_id) or self._memory.reason(directory_id)
        return noted or self._unreadable

    def note(self, directory_id: str, disk: Disk, error: DiskError) -> None:
        """Record the failure of a directory. On its own disk the note is not synced, since a call
        to a failing disk may not return.
        """
        if directory_id not in self._reasons:
            self._memory.note(directory_id, str(error))
            self._reasons[directory_id] = str(error)
            if self._unreadable is None:  # otherwise the unreadable note covers more
                self._write(but_not_synced=disk)

    def is_noted(self, directory_id: str, disk: Disk) -> bool:
        """True if a note in some directory records the failure of this one, on ``disk``. If none
        does, it is written once more.
        """
        if not self._says_so(directory_id):
            self._write(but_not_synced=disk)
        return self._says_so(directory_id)

    def _says_so(self, directory_id: str) -> bool:
        for disk in self._disks:
            with contextlib.suppress(CheckpointError, DiskError):
                if directory_id in _read(disk):
                    return True
        return False

    def forget(self, directory_id: str) -> None:
        """Remove a directory's failure, once its replicas do not count and the tails of its logs
        were written again.
        """
        noted, self._unreadable = self.reason(directory_id), None
        self._reasons.pop(directory_id, None)
        self._memory.forget(directory_id)
        if noted is not None:
            _log.info("log directory in use again after a failure: %s", directory_id)
            self._write(but_not_synced=None)

    def _write(self, *, but_not_synced: Disk | None) -> None:
        """Write the notes as far as possible; of several directories one is likely to accept it.
        Threads that sync other directories may record a failure at the same time, so write again
        until the latest state is written.
        """
        written: dict[str, str] | None = None
        while written != self._reasons:
            written = dict(self._reasons)
            for disk in self._disks:
                try:
                    _write(disk, written, sync=disk is not but_not_synced)
                except DiskError as error:
                    _log.warning("failure of a disk could not be recorded: %s", error)


def _write(disk: Disk, reasons: Mapping[str, str], *, sync: bool) -> None:
    if reasons:
        note = {"version": _VERSION, "directories": reasons}
        disk.replace_whole(FAILED_DISKS, (json.dumps(note) + "\n").encode(), sync=sync)
    elif disk.exists(FAILED_DISKS):
        disk.remove(FAILED_DISKS)


def _read(disk: Disk) -> dict[str, str]:
    """Return reasons by directory id. Raises CheckpointError, NewerVersionError, ExhaustedError."""
    try:
        fields = json.loads(disk.read_whole(FAILED_DISKS))
        check_version(FAILED_DISKS, str(int(fields["version"])))
        return {str(one): str(reason) for one, reason in fields["directories"].items()}
    except FileNotFoundError:
        return {}
    except (ExhaustedError, CheckpointError):
        raise
    except (DiskError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(FAILED_DISKS, f"cannot be read: {error}") from error
