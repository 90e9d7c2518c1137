"""SegmentChain: the segment files of one log as they change: written, begun, cut, retired,
replaced; and which of their bytes are not on disk yet.

The map of the segments, in which readers find bytes, is ``SegmentMap``. When and where a log is
cut, and what else follows from it, is decided in ``Log``.
"""

from collections.abc import Callable, Sequence

from tidemark.codec.record_batch import Buffer
from tidemark.model.topic_configs import TopicConfig
from tidemark.storage.disk import DiskError, File

from broker.storage.directory import LogDirectory
from broker.storage.flush import UnsyncedBytes
from broker.storage.recovery import Recovered
from broker.storage.retention import roll_ms
from broker.storage.segment import NOT_LOOKED_UP, Segment
from broker.storage.segment_files import new_segment, remove_cleaned, retire, swap_in
from broker.storage.segment_map import SegmentMap


class SegmentChain:
    """Segment files of one log. Every method that touches files raises DiskError."""

    __slots__ = ("_mark_dirty", "_shared", "directory", "map", "unsynced")

    def __init__(
        self,
        shared: LogDirectory,
        recovered: Recovered,
        unsynced: UnsyncedBytes,
        mark_dirty: Callable[[], None],
    ) -> None:
        """``mark_dirty``: puts the log into the next flush round."""
        self._shared = shared
        self._mark_dirty = mark_dirty
        self.map = SegmentMap(shared, recovered.segments, recovered.compacted_below)
        self.directory = self.map.active.directory
        self.unsynced = unsynced

    def settle(self, recovered: Recovered, now_ms: int, remove_delay_ms: int) -> None:
        """Finish recovery: close every segment, note what is not synced, remove old files later."""
        for segment in recovered.segments:
            if segment.file is not None:
                if segment is not self.map.active:
                    segment.seal()
                self._shared.cool(segment)
        for segment in recovered.unsynced:
            self.became_dirty(segment, now_ms)
            self.files_changed()
        for path in recovered.removed:
            self._shared.remove_later(path, now_ms + remove_delay_ms)

    @property
    def size_bytes(self) -> int:
        """Size of all segments."""
        return sum(segment.size_bytes for segment in self.map.segments)

    def moved_to(self, directory: str) -> None:
        """Note that the directory was renamed. Its name is not on disk yet."""
        self.directory = directory
        for segment in self.map.segments:
            segment.moved_to(directory)
        self.files_changed()

    # -- unsynced bytes

    def became_dirty(self, segment: Segment, now_ms: int) -> None:
        """Note that a segment without unsynced bytes got some."""
        self.unsynced.add(segment, now_ms)
        self._mark_dirty()

    def files_changed(self) -> None:
        """Note that a file was made, renamed or removed: the next round syncs the directory too."""
        self.unsynced.directory_changed = True
        self._mark_dirty()

    def begin_sync(
        self, log_end: int
    ) -> tuple[tuple[File, ...], tuple[str, ...], tuple[Segment, ...]]:
        """As ``UnsyncedBytes.begin``."""
        return self.unsynced.begin(self._shared, self.map.active, log_end)

    def put_off(self, segments: Sequence[Segment], directories: Sequence[str]) -> None:
        """Note that these were not synced, though nothing failed: the next round does it."""
        here = [segment for segment in segments if segment in self.map.segments]
        self.unsynced.put_off(here, directories)
        self._mark_dirty()

    # -- appending

    def arm(self, segment: Segment, config: TopicConfig) -> None:
        """Set the bounds at which a segment rolls."""
        segment.arm(config, roll_ms(config, self._shared.jitter))

    def write(self, segment: Segment, buffers: Sequence[Buffer], size_bytes: int) -> None:
        """Write at the end of the active segment, in one call. Raises DiskError, with nothing of it
        in the file.
        """
        file = segment.file
        assert file is not None
        try:
            written = file.write_at(segment.size_bytes, buffers)
        except DiskError as error:
            self._undo(segment, file, error)
            raise
        assert written == size_bytes, (written, size_bytes)

    def _undo(self, segment: Segment, file: File, error: DiskError) -> None:
        """Cut off the bytes of a failed write, so that the file is as it was before."""
        try:
            file.truncate(segment.size_bytes)
            if not segment.dirty:
                self.became_dirty(segment, self._shared.now_ms)
            segment.reopen(self._shared.disk)
        except DiskError as second:
            self._shared.fence(second)
        self._shared.fence(error)

    # -- changes

    def seal_active(self) -> None:
        """Write the indexes of the active segment, which will not grow any further."""
        active = self.map.active
        self._shared.warm(active)
        active.seal()
        active.write_indexes(self._shared.disk)

    def new_segment(self, base_offset: int, now_ms: int) -> Segment:
        """Make the file of a segment that is not part of the log yet."""
        return new_segment(self._shared.disk, self.directory, base_offset, now_ms)

    def roll_to(self, fresh: Segment, now_ms: int) -> None:
        """Make ``fresh`` the active segment, behind the sealed one."""
        old = self.map.active
        if not old.dirty:
            self.became_dirty(old, now_ms)
        old.is_whole = True
        self.map.add(fresh)
        self._shared.note_warm(fresh)
        self.files_changed()

    def cut(self, kept: int, position: int, end: int, config: TopicConfig) -> Segment:
        """Keep so many segments, the last of them up to ``position``, where the log ends at offset
        ``end``. Return that segment.
        """
        last = self.map.segments[kept - 1]
        self.map.cut(last, position, end, config.index_interval_bytes)
        last.txns.cut_to(self._shared.disk, end)
        last.aborted_from = NOT_LOOKED_UP
        self._retire(self.map.segments[kept:][::-1], config)
        self.map.replace(self.map.segments[:kept])
        self.files_changed()
        return last

    def empty(self, base_offset: int, config: TopicConfig) -> None:
        """Keep nothing; the log goes on with a new segment."""
        self._retire(self.map.segments[::-1], config)
        fresh = self.new_segment(base_offset, self._shared.now_ms)
        self.map.replace([fresh])
        self._shared.note_warm(fresh)
        self.files_changed()

    def remove_first(self, count: int, config: TopicConfig) -> None:
        """Remove the oldest segments, the first of them first."""
        self._retire(self.map.segments[:count], config)
        self.map.replace(self.map.segments[count:])

    def may_swap(self, old: Sequence[int], cleaned_path: str) -> bool:
        """Return True if the segments with these base offsets may be replaced. If not, because the
        log changed meanwhile or some of them are not synced yet, remove the cleaned files.
        """
        replaced = self.map.sealed(old)
        if replaced and not any(segment.dirty for segment in replaced):
            return True
        remove_cleaned(self._shared.disk, cleaned_path)
        return False

    def swap_files(self, old: Sequence[int], cleaned_path: str, config: TopicConfig) -> Segment:
        """Put a compacted segment's files in the place of those of ``old``."""
        due_ms = self._shared.now_ms + config.file_delete_delay_ms
        return swap_in(self._shared, self.map.sealed(old), cleaned_path, due_ms)

    def _retire(self, segments: Sequence[Segment], config: TopicConfig) -> None:
        """In this order: a power failure may bring back the last of them."""
        self.unsynced.forget(segments)
        retire(self._shared, segments, self._shared.now_ms + config.file_delete_delay_ms)

    def close(self, *, clean: bool) -> None:
        """Close every file; ``clean``: with its indexes written."""
        for segment in self.map.segments:
            if clean:
                segment.cool(self._shared.disk)
            self._shared.forget(segment)
