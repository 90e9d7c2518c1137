"""Earlier home of the synchronous RangeReader, kept for programs that import it from here."""

from tidemark.client.sync.range_reader import RangeReader

__all__ = ["RangeReader"]
