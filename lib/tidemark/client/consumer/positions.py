"""Position of a consumer in each partition, and the records fetched ahead of it. Pure.

                 position            fetch_position
    returned    |  fetched, buffered |  next fetch starts here

Every seek raises the partition's ``generation``, so that responses to earlier fetches are detected
and dropped.
"""

from collections import deque
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from tidemark.client.consumer.fetched_chunk import (
    ConsumerRecord,
    FetchedChunk,
    ReadOptions,
    corrupt,
    records_of,
    too_large,
    whole_batches,
)
from tidemark.client.consumer.read_ahead import ReadAhead
from tidemark.client.errors import ClientError, CorruptBatchError
from tidemark.client.wire.transport import FetchOutcome
from tidemark.codec.record_batch import BatchHeader, crc_matches
from tidemark.codec.records import RecordsError
from tidemark.model.topics import TopicPartition


class OffsetSpec(IntEnum):
    """Ends of a log, as in ListOffsets; numbers from 0 are timestamps in ms."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4


class Validation(NamedTuple):
    """A position that is compared with the log of a leader."""

    generation: int
    offset: int
    epoch: int
    """Epoch of the record before the position."""
    leader_epoch: int


class PartitionState:
    """State of one assigned partition.

    The position is validated whenever the partition has another leader epoch (KIP-320): after an
    unclean election the log may have other records below it than those that were read.

    Invariant: position <= fetch_position; both are None until the position is looked up.
    """

    __slots__ = (
        "_ahead",
        "_ahead_from",
        "_chunks",
        "_ready",
        "_ready_at",
        "_ready_end",
        "_ready_epoch",
        "buffered_bytes",
        "error",
        "failures",
        "fetch_epoch",
        "fetch_position",
        "fetching",
        "generation",
        "high_watermark",
        "last_stable",
        "log_start",
        "partition",
        "paused",
        "position",
        "position_epoch",
        "reset",
        "resume_at",
        "unknown_since",
        "validated_epoch",
        "validating",
        "waits_for_commit",
    )

    def __init__(self, partition: TopicPartition, reset: int | None) -> None:
        self.partition = partition
        self.generation = 0
        self.position: int | None = None
        self.fetch_position: int | None = None
        self.position_epoch = self.fetch_epoch = -1
        """Leader epochs of the records before the two positions; -1: not known."""
        self.validated_epoch = -1
        """Epoch of the leader whose log has what was fetched; -1: not compared yet."""
        self.validating = False
        self.reset = reset
        """Timestamp or OffsetSpec to look up; None if not needed, or without a reset policy."""
        self.paused = False
        self.fetching = False
        self.high_watermark = self.last_stable = self.log_start = -1
        self.error: ClientError | None = None
        self.failures = 0
        self.resume_at = 0.0
        self.unknown_since: float | None = None
        self.waits_for_commit = False
        """True while the group's committed offset is requested as the position."""
        self.buffered_bytes = 0
        self._ahead: ReadAhead | None = None
        self._ahead_from = 0
        self._chunks: deque[FetchedChunk] = deque()
        self._ready: list[ConsumerRecord] = []
        self._ready_at = 0
        self._ready_end = self._ready_epoch = -1

    def seek(self, offset: int, epoch: int = -1) -> None:
        """Set the position, behind a record of a leader epoch if one is known.

        Buffered records are kept if they continue there, and dropped otherwise.
        """
        self.generation += 1
        self.position = self.fetch_position = offset
        self.position_epoch = self.fetch_epoch = epoch
        self.validated_epoch = -1
        self.reset = None
        self.error = None
        self.waits_for_commit = False
        self._drop_buffered()

    def seek_by(self, reset: int) -> None:
        """Set the position to the result of a lookup, by an end of the log or a timestamp."""
        self.generation += 1
        self.position = self.fetch_position = None
        self.position_epoch = self.fetch_epoch = self.validated_epoch = -1
        self.reset = reset
        self.error = None
        self.waits_for_commit = False
        self._drop_buffered()

    def begin_at(self, committed: int | None, reset: int | None, epoch: int = -1) -> None:
        """Set the position to the committed offset and its leader epoch, or else by ``reset``
        (None: require a seek).
        """
        assert self.waits_for_commit, "not asked"
        self.waits_for_commit = False
        if committed is not None:
            self.seek(committed, epoch)
        else:
            self.reset = reset

    def on_looked_up(self, generation: int, offset: int) -> None:
        """Apply a lookup's result, unless a later seek has replaced it."""
        if generation == self.generation:
            self.position = self.fetch_position = offset
            self.reset = None
            self.failures = 0

    def wants_fetch(self, now: float, bytes_ahead_max: int) -> bool:
        """True if a fetch is due and there is room for its records."""
        return (
            self.fetch_position is not None
            and not (self.fetching or self.validating or self.paused)
            and self.error is None
            and now >= self.resume_at
            and self.buffered_bytes < bytes_ahead_max
        )

    def validation(self, leader_epoch: int) -> Validation | None:
        """Return the position to validate before a fetch from a leader; None if it need not be."""
        assert self.fetch_position is not None, "nothing to validate"
        if leader_epoch in (self.validated_epoch, -1) or self.fetch_epoch < 0:
            self.validated_epoch = leader_epoch
            return None
        return Validation(self.generation, self.fetch_position, self.fetch_epoch, leader_epoch)

    def on_validated(self, asked: Validation, epoch: int, end_offset: int) -> bool:
        """Apply the end of the position's epoch in the leader's log, unless the position has moved.
        Returns True if records that were returned have been replaced.

        If only buffered records have, they are dropped, and the position itself is next.
        """
        now = (self.generation, self.fetch_position, self.fetch_epoch)
        if now != (asked.generation, asked.offset, asked.epoch):
            return False
        self.failures = 0
        if epoch >= 0 and end_offset >= asked.offset:
            self.validated_epoch = asked.leader_epoch
            return False
        assert self.position is not None, "validated without a position"
        if asked.offset == self.position:
            return True
        self.seek(self.position, self.position_epoch)
        return False

    def wants_lookup(self, now: float) -> bool:
        """True if the position must be looked up."""
        return self.reset is not None and self.error is None and now >= self.resume_at

    def on_fetched(self, generation: int, outcome: FetchOutcome, options: ReadOptions) -> None:
        """Buffer the batches of a fetch, unless a seek has replaced it.

        Raises CorruptBatchError.
        """
        if generation != self.generation or outcome.fetch_offset != self.fetch_position:
            return
        self.failures = 0
        self.high_watermark = outcome.high_watermark
        self.last_stable, self.log_start = outcome.last_stable, outcome.log_start
        if self._ahead is not None:
            self._on_ahead(self._ahead, outcome, options)
            return
        if not outcome.records:
            self._maybe_go_ahead(options)
            return
        chunk = FetchedChunk(self.partition, outcome.records, options, outcome.aborted)
        if chunk.end < 0:
            raise too_large(outcome)
        self._chunks.append(chunk)
        self.buffered_bytes += chunk.size_bytes
        self.fetch_position = max(chunk.end, outcome.fetch_offset)
        self.fetch_epoch = chunk.epoch
        self._maybe_go_ahead(options)

    @property
    def is_ahead(self) -> bool:
        """True if the next fetch reads beyond the last stable offset, as read_uncommitted does."""
        return self._ahead is not None

    @property
    def is_held_up(self) -> bool:
        """True if buffered records wait for the end of a transaction."""
        ahead = self._ahead
        return ahead is not None and ahead.is_blocked and not self._chunks

    def stop_ahead(self) -> None:
        """Fetch up to the last stable offset only until it advances: no room to hold back more."""
        assert self._ahead is not None, "not ahead"
        self._ahead_from = self.last_stable + 1
        self._leave_ahead()

    @property
    def has_records(self) -> bool:
        """True if ``take`` may return records."""
        return not self.paused and self.holds_records

    @property
    def holds_records(self) -> bool:
        """True if there are fetched records to return, now or after ``resume``."""
        ahead = self._ahead is not None and self._ahead.is_ready
        return bool(self._chunks or self._ready_at < len(self._ready)) or ahead

    def take(self, records_max: int) -> list[ConsumerRecord]:
        """Return buffered records in order and advance the position.

        Raises CorruptBatchError; records before the damaged batch are returned first.
        """
        taken: list[ConsumerRecord] = []
        while len(taken) < records_max and (
            self._ready_at < len(self._ready) or self._decode_next(raises=not taken)
        ):
            taken += self.take_decoded(records_max - len(taken))
        return taken

    def take_decoded(self, records_max: int) -> list[ConsumerRecord]:
        """Do as ``take``, with the records of the batch that was begun."""
        start = self._ready_at
        stop = min(len(self._ready), start + records_max)
        taken = self._ready[start:stop] if start or stop < len(self._ready) else self._ready
        if stop > start:
            self._ready_at = stop
            whole = stop == len(self._ready)
            self.position = self._ready_end if whole else self._ready[stop].offset
            self.position_epoch = self._ready_epoch
        return taken

    def put_back(self, unseen: Sequence[ConsumerRecord]) -> bool:
        """Take back the last records of ``take_decoded``; False if the position has moved since."""
        start = self._ready_at - len(unseen)
        if start < 0 or self._ready[start] is not unseen[0]:
            return False
        self._ready_at = start
        self.position = unseen[0].offset
        if start == 0:
            self.position_epoch = -1  # that of the batch before
        return True

    def check(self) -> None:
        """Assert the invariants."""
        assert (self.position is None) == (self.fetch_position is None)
        if self.position is not None and self.fetch_position is not None:
            assert self.position <= self.fetch_position, (self.position, self.fetch_position)
        held = 0
        if self._ahead is not None:
            self._ahead.check()
            held = self._ahead.size_bytes
        assert self.buffered_bytes == held + sum(chunk.size_bytes for chunk in self._chunks)

    def _decode_next(self, *, raises: bool) -> bool:
        """Decode the next batch; return False if nothing is buffered, or all is held back, or for
        a damaged batch unless ``raises``: it stays buffered.
        """
        while (batch := self._next_batch(raises=raises)) is not None:
            header, records = batch
            position = self.position
            assert position is not None, "buffered without a position"
            if header.base_offset < position:
                records = [record for record in records if record.offset >= position]
            self._ready, self._ready_at = records, 0
            self._ready_end = max(position, header.last_offset + 1)
            self._ready_epoch = header.partition_leader_epoch
            if not records:
                self.position, self.position_epoch = self._ready_end, self._ready_epoch
                continue
            return True
        return False

    def _next_batch(self, *, raises: bool) -> tuple[BatchHeader, list[ConsumerRecord]] | None:
        try:
            while self._chunks:
                batch = self._chunks[0].next_batch()
                if batch is not None:
                    return batch
                self.buffered_bytes -= self._chunks.popleft().size_bytes
            return None if self._ahead is None else self._from_ahead(self._ahead)
        except CorruptBatchError:
            if raises:
                raise
            return None

    def _from_ahead(self, ahead: ReadAhead) -> tuple[BatchHeader, list[ConsumerRecord]] | None:
        ready = ahead.first()
        if ready is None:
            return None
        view, header, visible = ready
        records = records_of(self.partition, view, header) if visible else []
        ahead.take()
        self.buffered_bytes -= header.size_bytes
        return header, records

    def _maybe_go_ahead(self, options: ReadOptions) -> None:
        """Start to fetch beyond the last stable offset once everything below was fetched."""
        assert self.fetch_position is not None, "fetched without a position"
        at_last_stable = self._ahead_from <= self.last_stable <= self.fetch_position
        if options.ahead_bytes_max and at_last_stable and self.high_watermark > self.last_stable:
            self._ahead = ReadAhead()

    def _on_ahead(self, ahead: ReadAhead, outcome: FetchOutcome, options: ReadOptions) -> None:
        for view, header in whole_batches(outcome.records, self.partition):
            if options.check_crcs and not crc_matches(view, header):
                raise corrupt(self.partition, header, "its checksum does not match")
            try:
                ahead.add(view, header)
            except RecordsError as problem:
                raise corrupt(self.partition, header, str(problem)) from None
            self.buffered_bytes += header.size_bytes
            self.fetch_position = header.last_offset + 1
            self.fetch_epoch = header.partition_leader_epoch
        assert self.fetch_position is not None, "fetched without a position"
        if outcome.records and self.fetch_position == outcome.fetch_offset:
            raise too_large(outcome)
        if ahead.is_blocked and ahead.size_bytes >= options.ahead_bytes_max:
            self.stop_ahead()
        elif self.last_stable >= self.fetch_position and (ahead.is_blocked or not ahead):
            # The transaction has ended, whatever is held: a marker not seen was compacted away, and
            # the leader's index of aborted transactions has the outcome.
            self._leave_ahead()

    def _leave_ahead(self) -> None:
        """Drop records held back, to fetch them again under read_committed."""
        assert self._ahead is not None, "not ahead"
        held, self._ahead = self._ahead, None
        self.buffered_bytes -= held.size_bytes
        if held:
            self.generation += 1
            self._fetch_from_decoded()

    def _fetch_from_decoded(self) -> None:
        """Fetch on behind the chunks, or without any behind the decoded records."""
        if self._chunks:
            self.fetch_position, self.fetch_epoch = self._chunks[-1].end, self._chunks[-1].epoch
        elif self._ready_at < len(self._ready):
            self.fetch_position, self.fetch_epoch = self._ready_end, self._ready_epoch
        else:
            self.fetch_position, self.fetch_epoch = self.position, self.position_epoch

    def _drop_buffered(self) -> None:
        self._chunks.clear()
        self._ahead = None
        self._ahead_from = 0
        self.buffered_bytes = 0
        self._ready, self._ready_at = [], 0
