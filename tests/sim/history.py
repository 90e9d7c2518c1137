"""PlainLog: what must be in one partition's log, kept the slow and obvious way.

    0          log_start         synced_end        log_end
    |--may go----|---kept---------|---may be lost----|     flush=os, power loss
                                  |---kept-----------|     kill -9: the page cache survives

It hears of every batch that the node appended, of every flush round that ended, of every answer a
client got; after a restart it says what may be missing, and forgets exactly that.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from broker.core.producers import ProducedBatch
from tidemark.codec.record_batch import BatchHeader, read_header
from tidemark.codec.records import Record, read_records
from tidemark.model.ids import TopicId
from tidemark.model.topics import TopicPartition

ProducerState = dict[int, tuple[int, list[ProducedBatch]]]
"""Producer id to its epoch and all its batches in that epoch."""


@dataclass
class Written:
    """One appended batch, as it was given to the log."""

    header: BatchHeader
    batch: bytes
    is_promised: bool
    """Appended under flush=group: once acknowledged it survives a power failure too."""
    is_acknowledged: bool = False
    is_damaged: bool = False
    """A fault flipped a bit of it on disk."""

    @property
    def first(self) -> int:
        return self.header.base_offset

    @property
    def last(self) -> int:
        return self.header.last_offset

    @cached_property
    def records(self) -> list[Record]:
        return read_records(memoryview(self.batch), self.header)


class Bounds(NamedTuple):
    """The four bounds, and how far the log is synced."""

    log_start: int
    last_stable: int
    high_watermark: int
    log_end: int
    synced_end: int

    def __str__(self) -> str:
        return (
            f"{self.log_start}/_{self.last_stable}/_{self.high_watermark}/_{self.log_end}"
            f" s{self.synced_end}"
        )


@dataclass
class PlainLog:
    """One incarnation of one partition."""

    topic_partition: TopicPartition
    topic_id: TopicId
    batches: list[Written] = field(default_factory=list)
    by_first: dict[int, Written] = field(default_factory=dict)
    log_start: int = 0
    log_end: int = 0
    synced_end: int = 0
    cleaned_end: int = 0
    """Compaction may have removed records below it."""
    watermark_seen: int = 0
    """The highest one any reader was told."""
    has_lost: bool = False
    """A power failure took batches: others may have been compacted away for their sake."""
    is_settled: bool = True
    """False after a restart, until a flush round told where the synced end is."""

    def appended(self, batch: bytes, *, is_promised: bool) -> Written:
        """The node wrote this batch."""
        written = Written(read_header(batch), batch, is_promised)
        self.batches.append(written)
        self.by_first[written.first] = written
        self.log_end = written.last + 1
        return written

    def became_os(self) -> None:
        """flush=os from now on: what is not synced yet has lost its promise."""
        for written in reversed(self.batches):
            if written.last < self.synced_end:
                return
            written.is_promised = False

    def cut_to(self, end: int) -> None:
        """Records from ``end`` on are lost, and may be."""
        while self.batches and self.batches[-1].last >= end:
            del self.by_first[self.batches.pop().first]
            self.has_lost = True
        self.log_end = end
        self.synced_end = min(self.synced_end, end)
        self.watermark_seen = min(self.watermark_seen, end)

    def readable(self, start: int, end: int) -> Iterator[Written]:
        """Batches with an offset in [start, end)."""
        return (one for one in self.batches if one.last >= start and one.first < end)

    def acknowledged_end(self, *, promised: bool) -> int:
        """Behind the last acknowledged batch; ``promised``: one that power loss may not take."""
        for one in reversed(self.batches):
            if one.is_acknowledged and (one.is_promised or not promised):
                return one.last + 1
        return 0

    def producers(self) -> ProducerState:
        """What every producer wrote in its epoch, by reading all there ever was, in order."""
        found: ProducerState = {}
        for one in self.batches:
            header = one.header
            if header.producer_id < 0:
                continue
            epoch, batches = found.get(header.producer_id, (header.producer_epoch, []))
            if epoch != header.producer_epoch:
                batches = []
            batches.append(
                ProducedBatch(
                    header.base_sequence,
                    (header.base_sequence + header.last_offset_delta) % 2**31,
                    one.first,
                    one.last,
                    header.max_timestamp,
                )
            )
            found[header.producer_id] = header.producer_epoch, batches
        return found
