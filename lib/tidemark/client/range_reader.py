"""Earlier home of RangeReader, kept for programs that import it from here."""

from tidemark.client.consumer.range_reader import (
    OffsetRange,
    RangeLostError,
    RangeReader,
    RangeReaderConfig,
    RawBatch,
)

__all__ = ["OffsetRange", "RangeLostError", "RangeReader", "RangeReaderConfig", "RawBatch"]
