"""LogHealth: damage of one log as far as it is known, and the errors of its files.

A failed disk takes the whole directory out of service; a bad batch is damage of its log alone.
"""

import contextlib
from collections.abc import Iterator
from typing import NoReturn

from tidemark.storage.batch_walk import FrameError
from tidemark.storage.disk import DiskError, DiskFullError, ExhaustedError

from broker.storage.directory import LogDamagedError, LogDirectory
from broker.storage.recovery import OFFSET_MAX, Recovered
from broker.storage.segment import Segment
from broker.storage.segment_map import SegmentMap


class LogHealth:
    """Damage of one log, and how its operations report errors."""

    __slots__ = (
        "_directory",
        "_segments",
        "_shared",
        "damage",
        "damage_at",
        "end_lost",
        "tail_lost",
    )

    def __init__(
        self, shared: LogDirectory, directory: str, segments: SegmentMap, recovered: Recovered
    ) -> None:
        self._shared = shared
        self._directory = directory
        self._segments = segments
        self.damage = recovered.damage
        """Description of the damage to synced bytes; None if none is known."""
        self.damage_at = recovered.damage_at
        """No known damage begins below this offset."""
        self.tail_lost = recovered.tail_lost
        """The damage hides where the log ends: nothing may be appended."""
        self.end_lost = recovered.end_lost or recovered.tail_lost
        """The log may once have ended further: other replicas must not be cut to it."""

    def moved_to(self, directory: str) -> None:
        """Note that the directory has another name."""
        self._directory = directory

    def report(self, what: str, at: int = 0) -> None:
        """Note damage that does not begin below offset ``at``. The first description is kept."""
        if self.damage is None:
            self.damage = what
        self.damage_at = min(self.damage_at, at)

    def clear(self) -> None:
        """Note that the damaged part is no longer in the log."""
        self.damage, self.damage_at = None, OFFSET_MAX
        self.tail_lost = self.end_lost = False

    def raise_if_tail_lost(self) -> None:
        """Raise LogDamagedError if it is not known where the log ends."""
        if self.tail_lost:
            raise LogDamagedError(self._directory, -1, self.damage or "the end of the log is lost")

    @contextlib.contextmanager
    def guarded(self, offset: int = 0) -> Iterator[None]:
        """Fence the directory if the disk fails. Raise LogDamagedError for a bad batch, which was
        found while reading from ``offset`` on.
        """
        try:
            yield
        except FrameError as damage:
            self.raise_damaged(damage, offset)
        except DiskError as failure:
            self._shared.fence(failure)
            raise

    @contextlib.contextmanager
    def unless_full(self) -> Iterator[None]:
        """Guard a write that a full disk, which is fenced, may leave out."""
        with contextlib.suppress(DiskFullError), self.guarded():
            yield

    @contextlib.contextmanager
    def changing(
        self, offset: int = 0, *, begun: bool = False, opens: Segment | None = None
    ) -> Iterator[None]:
        """Guard steps that belong together. Raises ExhaustedError before the first one unless some
        are ``begun``. After it ExhaustedError counts as a failed disk, for the log is half changed.
        ``opens``: a segment that they open, whose index must not be missing then.
        """
        if opens is not None:
            with self.guarded(offset):
                self._shared.warm(opens)
        if not begun:
            self._shared.disk.expect_room()
        try:
            with self.guarded(offset):
                yield
        except ExhaustedError as error:
            failed = DiskError(error.path, error.reason)
            self._shared.fence(failed)
            raise failed from error

    def raise_damaged(self, error: FrameError, offset: int) -> NoReturn:
        """Note and raise a bad batch, which is in the segment of ``offset`` or behind it."""
        at = self._segments.segments[self._segments.index_of(offset)].base_offset
        self.report(f"{self._directory} at byte {error.position}: {error.what}", at)
        raise LogDamagedError(self._directory, error.position, error.what) from error
