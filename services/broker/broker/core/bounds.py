"""The four bounds of a log, and where the high watermark stands."""

from collections.abc import Mapping, Set
from dataclasses import dataclass

from tidemark.model.ids import BrokerId, Offset


@dataclass(slots=True)
class LogBounds:
    """Invariant: log_start <= last_stable <= high_watermark <= log_end."""

    log_start: Offset
    """First offset a reader may ask for; only retention and DeleteRecords move it."""
    last_stable: Offset
    """First offset of an open transaction, else the high watermark."""
    high_watermark: Offset
    """Exclusive: every offset below it is on every in-sync replica."""
    log_end: Offset
    """Exclusive: the offset the next record will get."""

    def check(self) -> None:
        """Assert the invariant."""
        assert self.log_start <= self.last_stable, str(self)
        assert self.last_stable <= self.high_watermark, str(self)
        assert self.high_watermark <= self.log_end, str(self)

    def __str__(self) -> str:
        """``0/_40/_42/_45``; an underscore before what is exclusive."""
        return f"{self.log_start}/_{self.last_stable}/_{self.high_watermark}/_{self.log_end}"


def high_watermark(log_ends: Mapping[BrokerId, Offset], isr: Set[BrokerId]) -> Offset:
    """The first offset that some in-sync replica lacks: the minimum of the log ends over the ISR.

    ``log_ends`` names every member of ``isr``; under ``flush=group`` they are the synced ends.
    """
    assert isr, "a partition with a leader has an in-sync replica"
    return min(log_ends[broker] for broker in isr)
