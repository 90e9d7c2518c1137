"""Halves of a batch that is too large for its topic. Pure."""

from collections.abc import Sequence
from itertools import accumulate

from tidemark.client.producer.batches import EncodedRecords, PendingBatch, PlainRecord
from tidemark.codec.records import RecordSpan, rebase_record, scan_records

Half = list[PlainRecord] | EncodedRecords


def halves_of(batch: PendingBatch) -> tuple[Half, Half]:
    """Return the records of a batch in two parts of about the same size, in order."""
    assert batch.count > 1, "one record cannot be split"
    if batch.encoded_records is not None:
        return _halves_of_encoded(batch.encoded_records)
    records = batch.records
    sizes = (len(key or b"") + len(value or b"") for _, key, value, _ in records)
    at = _middle(list(accumulate(sizes)))
    return records[:at], records[at:]


def _halves_of_encoded(encoded: EncodedRecords) -> tuple[EncodedRecords, EncodedRecords]:
    payload = bytes(encoded.records)
    spans = list(scan_records(payload, encoded.count))
    at = _middle([span.end for span in spans])
    shift = spans[at].timestamp_delta
    later = b"".join(rebase_record(payload, span, -shift, -at) for span in spans[at:])
    return (
        _encoded(encoded, encoded.first_timestamp, payload[: spans[at].start], spans[:at]),
        _encoded(encoded, encoded.first_timestamp + shift, later, spans[at:]),
    )


def _encoded(
    whole: EncodedRecords, first_timestamp: int, records: bytes, spans: Sequence[RecordSpan]
) -> EncodedRecords:
    newest = whole.first_timestamp + max(span.timestamp_delta for span in spans)
    return EncodedRecords(whole.partition, records, len(spans), first_timestamp, newest)


def _middle(ends: list[int]) -> int:
    """Return how many records the first part takes: those within half of the bytes, at least one
    and not all.
    """
    within = sum(end <= ends[-1] // 2 for end in ends)
    return min(max(1, within), len(ends) - 1)
