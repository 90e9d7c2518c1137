"""PlainLog: the expected content of one partition's log, computed in the slow and obvious way.

    0          log_start         synced_end        log_end
    |--may go----|---kept---------|---may be lost----|     flush=os, power loss
                                  |---kept-----------|     kill -9: the page cache survives

It records every appended batch, every flush round that ended and every response to a client.
After a restart it determines what may be missing, and forgets exactly that.
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
    """The four bounds of a log, and the end of its synced part."""

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
    """Highest watermark that any reader received."""
    has_lost: bool = False
    """True if a power failure took batches in favor of which compaction had removed others."""
    is_settled: bool = True
    """False after a restart, until a flush round reports the synced end."""
    epochs_seen: dict[int, int] = field(default_factory=dict)
    """Highest epoch of each producer in any batch, lost ones included."""

    def appended(self, batch: bytes, *, is_promised: bool) -> Written:
        """Record a batch that the node wrote."""
        written = Written(read_header(batch), batch, is_promised)
        self.batches.append(written)
        self.by_first[written.first] = written
        self.log_end = written.last + 1
        producer_id, epoch = written.header.producer_id, written.header.producer_epoch
        self.epochs_seen[producer_id] = max(epoch, self.epochs_seen.get(producer_id, epoch))
        return written

    def became_os(self) -> None:
        """Note flush=os from now on: unsynced batches lose their promise."""
        for written in reversed(self.batches):
            if written.last < self.synced_end:
                return
            written.is_promised = False

    def cut_to(self, end: int) -> None:
        """Forget records from ``end`` on, which may be lost."""
        while self.batches and self.batches[-1].last >= end:
            del self.by_first[self.batches.pop().first]
            self.has_lost = True
        self.log_end = end
        self.synced_end = min(self.synced_end, end)
        self.watermark_seen = min(self.watermark_seen, end)

    def readable(self, start: int, end: int) -> Iterator[Written]:
        """Return batches with an offset in [start, end)."""
        return (one for one in self.batches if one.last >= start and one.first < end)

    def acknowledged_end(self, *, promised: bool) -> int:
        """Return the end of the last acknowledged batch; ``promised``: of the last that survives
        power loss.
        """
        for one in reversed(self.batches):
            if one.is_acknowledged and (one.is_promised or not promised):
                return one.last + 1
        return 0

    def producers(self) -> ProducerState:
        """Return the batches of each producer in its epoch, from all batches ever written, in
        order.
        """
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
