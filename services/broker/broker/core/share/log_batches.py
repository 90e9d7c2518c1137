"""Records of a share group in a read of the log, from the headers of its batches."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from tidemark.codec.record_batch import BatchHeader
from tidemark.model.ids import Offset

from broker.core.open_txns import AbortedTxn
from broker.core.share.acquisition import AcquiredRecords, LogBatch, LogRead, ReadPlan
from broker.core.share.fetch_plan import PartitionTurn


class ReadLimits(NamedTuple):
    """End of the headers that are worth reading, for one partition's turn."""

    end: Offset
    """Exclusive: batches from here on are not needed."""
    records_max: int
    bytes_max: int
    may_exceed: bool
    """A first batch that is larger than ``bytes_max`` is taken all the same."""

    @classmethod
    def of(cls, plan: ReadPlan, turn: PartitionTurn, readable_end: int) -> "ReadLimits":
        """Return the limits of a planned read."""
        end = readable_end if plan.end is None else min(plan.end, readable_end)
        return cls(Offset(end), turn.records_max, turn.bytes_max, turn.may_exceed)


class HeaderWalk:
    """Headers of one read, in order, as far as they are needed: ``take`` until ``is_over``.

    Invariant: but for the first batch, ``headers`` are within the limits.
    """

    def __init__(self, plan: ReadPlan, limits: ReadLimits) -> None:
        self.headers: list[BatchHeader] = []
        self.is_over = False
        """True if no header after these can be part of the read."""
        self._plan = plan
        self._limits = limits
        self._bytes = 0
        self._has_passed_end = False

    def take(self, header: BatchHeader) -> bool:
        """Take the next header. False: it is not part of the read, nor are those after it."""
        if self.is_over:
            return False
        limits, size_bytes = self._limits, header.size_bytes
        self._has_passed_end = header.base_offset >= limits.end
        is_long = self._bytes + size_bytes > limits.bytes_max
        if self._has_passed_end or (is_long and (self.headers or not limits.may_exceed)):
            self.is_over = True
            return False
        self.headers.append(header)
        self._bytes += size_bytes
        end = header.base_offset + header.last_offset_delta + 1
        first = self._plan.first_offset
        self.is_over = end >= limits.end or end - first >= limits.records_max
        return True

    def exhausted(self) -> None:
        """Note that the log has no further batch below the end."""
        self._has_passed_end = True

    def read(self, aborted: Collection[AbortedTxn] = ()) -> LogRead | None:
        """Return the read; None if it shows nothing. ``aborted``: transactions whose records the
        group may not read.
        """
        plan, limits = self._plan, self._limits
        end = Offset(self.headers[-1].last_offset + 1) if self.headers else plan.first_offset
        if self._has_passed_end and plan.end is not None and plan.end <= limits.end:
            end = max(end, plan.end)
        if end <= plan.first_offset:
            return None
        batches: list[LogBatch] = []
        for one in self.headers:
            has_records = not one.is_control and not (aborted and is_aborted(one, aborted))
            batches.append(LogBatch(Offset(one.base_offset), Offset(one.last_offset), has_records))
        return LogRead(plan.first_offset, end, batches)


def is_aborted(header: BatchHeader, aborted: Collection[AbortedTxn]) -> bool:
    """Return True if a batch belongs to one of these transactions."""
    return header.is_transactional and any(
        txn.producer_id == header.producer_id
        and txn.first_offset <= header.base_offset <= txn.last_offset
        for txn in aborted
    )


def span_of(headers: Sequence[BatchHeader], acquired: Sequence[AcquiredRecords]) -> slice:
    """Return the indexes of the batches that an answer sends whole: from the one with the first
    acquired record to the one with the last.
    """
    first, last = acquired[0].first_offset, acquired[-1].last_offset
    begin = next(at for at, one in enumerate(headers) if one.last_offset >= first)
    end = next((at for at, one in enumerate(headers) if one.base_offset > last), len(headers))
    return slice(begin, end)
