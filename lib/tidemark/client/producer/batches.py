"""A producer's batch of one partition, and the delivery of each of its records."""

import asyncio
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from tidemark.client.errors import ClientError
from tidemark.codec.record_batch import MAGIC_V2, TRANSACTIONAL_BIT, BatchHeader, Buffer
from tidemark.codec.records import assemble_batch, build_batch, sequence_after
from tidemark.model.topics import TopicPartition

Header = tuple[str, bytes | None]
PlainRecord = tuple[int, bytes | None, bytes | None, Sequence[Header]]
"""Timestamp in ms, key, value and headers, as ``build_batch`` takes them."""

NO_SEQUENCE: Final = -1


class RecordMetadata(NamedTuple):
    """Place of an acknowledged record. ``offset`` is -1 with acks=0."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class EncodedRecords:
    """Encoded records of one partition, which are sent as one batch.

    ``records`` are uncompressed, with timestamp deltas from ``first_timestamp`` (ms) and offset
    deltas 0 to ``count`` - 1. The buffer must stay unchanged until the delivery is done.
    """

    partition: TopicPartition
    records: Buffer
    count: int
    first_timestamp: int
    max_timestamp: int


class Place(Enum):
    """State of a batch."""

    WAITING = auto()
    IN_FLIGHT = auto()
    RETRYING = auto()
    DONE = auto()


class PendingBatch:
    """Records of one partition that are sent, retried and acknowledged together.

    A batch that is too large for its topic is replaced by ``parts``, and is resolved with the last
    of them.

    Invariant: ``epoch``, ``producer_id`` and ``sequence`` are set together, at the first attempt. A
    retry carries the same three; otherwise the broker could not detect the duplicate.
    """

    __slots__ = (
        "_encoded",
        "base_offset",
        "created_at",
        "encoded_records",
        "error",
        "failures",
        "first_index",
        "log_append_time_ms",
        "number",
        "observed",
        "partition",
        "parts",
        "place",
        "problem",
        "producer_epoch",
        "producer_id",
        "records",
        "refused",
        "resolved",
        "retried",
        "sequence",
        "size_bytes",
        "transactional",
        "waiters",
        "whole",
    )

    def __init__(
        self,
        partition: TopicPartition,
        number: int,
        created_at: float,
        *,
        transactional: bool = False,
    ) -> None:
        self.partition = partition
        self.number = number
        self.created_at = created_at
        self.transactional = transactional
        self.records: list[PlainRecord] = []
        self.encoded_records: EncodedRecords | None = None
        """Used instead of ``records``."""
        self.size_bytes = 0
        self.failures = 0
        self.problem = ""
        self.place = Place.WAITING
        self.producer_id = -1
        self.producer_epoch = -1
        self.sequence = NO_SEQUENCE
        self.refused = False  # certainly not written: it may get another sequence number
        self.retried = False
        self.resolved = False
        self.observed = False
        self.error: ClientError | None = None
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.waiters: list[asyncio.Future[None]] = []
        self.first_index = 0
        """Number of records before this part in the batch that was split."""
        self.parts: tuple[PendingBatch, ...] = ()
        self.whole: PendingBatch | None = None
        """Batch that this is a part of."""
        self._encoded: bytes | None = None

    @property
    def rank(self) -> tuple[int, int]:
        """Order of batches of one partition."""
        return self.number, self.first_index

    @property
    def count(self) -> int:
        """Number of records."""
        return self.encoded_records.count if self.encoded_records else len(self.records)

    def split_into(self, *contents: list[PlainRecord] | EncodedRecords) -> None:
        """Replace the batch by parts with these records, in order. They keep its sequence numbers:
        how many records a batch has does not matter, only that no number is missing.
        """
        index, size_left, sequence = self.first_index, self.size_bytes, self.sequence
        for content in contents:
            part = PendingBatch(
                self.partition, self.number, self.created_at, transactional=self.transactional
            )
            if isinstance(content, EncodedRecords):
                part.encoded_records = content
            else:
                part.records = content
            part.whole, part.first_index, part.observed = self, index, self.observed
            is_last = content is contents[-1]
            part.size_bytes = size_left if is_last else self.size_bytes * part.count // self.count
            if sequence != NO_SEQUENCE:
                part.sequence_as(self.producer_id, self.producer_epoch, sequence)
                sequence = sequence_after(sequence, part.count)
            index += part.count
            size_left -= part.size_bytes
            self.parts += (part,)
        self.place = Place.DONE
        self.records, self._encoded = [], None

    def see(self) -> None:
        """Note that a caller has looked at the outcome, or will."""
        self.observed = True
        for part in self.parts:
            part.see()

    def timestamp_of(self, index: int) -> int:
        """Return the producer's timestamp of a record in ms; of encoded records, the first one."""
        if self.encoded_records is not None:
            return self.encoded_records.first_timestamp
        return self.records[index][0]

    def sequence_as(self, producer_id: int, producer_epoch: int, sequence: int) -> None:
        """Assign the producer's sequence number and drop an earlier encoding."""
        self.producer_id, self.producer_epoch, self.sequence = producer_id, producer_epoch, sequence
        self.refused = self.retried = False
        self._encoded = None

    def encode(self, compression: int, level: int | None) -> bytes:
        """Return the RecordBatch v2; the same bytes for each retry."""
        if self._encoded is None:
            extra = TRANSACTIONAL_BIT if self.transactional else 0
            if self.encoded_records is not None:
                header = self._header(self.encoded_records, compression | extra)
                self._encoded = assemble_batch(header, self.encoded_records.records, level=level)
            else:
                self._encoded = build_batch(
                    self.records,
                    compression=compression,
                    level=level,
                    producer_id=self.producer_id,
                    producer_epoch=self.producer_epoch,
                    base_sequence=self.sequence,
                    attributes_extra=extra,
                )
        return self._encoded

    def _header(self, encoded: EncodedRecords, attributes: int) -> BatchHeader:
        return BatchHeader(
            base_offset=0,
            batch_length=0,
            partition_leader_epoch=-1,
            magic=MAGIC_V2,
            crc=0,
            attributes=attributes,
            last_offset_delta=encoded.count - 1,
            base_timestamp=encoded.first_timestamp,
            max_timestamp=encoded.max_timestamp,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.sequence,
            record_count=encoded.count,
        )

    def acknowledge(self, base_offset: int, log_append_time_ms: int) -> None:
        """Resolve the batch. ``base_offset`` is -1 if the broker does not answer (acks=0)."""
        self.base_offset, self.log_append_time_ms = base_offset, log_append_time_ms
        self._resolve()

    def fail(self, error: ClientError) -> None:
        """Resolve the batch with a failure."""
        self.error = error
        self._resolve()

    def _resolve(self) -> None:
        assert not self.resolved, f"batch {self.number} of {self.partition} resolved twice"
        self.resolved = True
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        if self.whole is not None:
            self.whole.on_part_resolved()

    def on_part_resolved(self) -> None:
        """Resolve the batch once all its parts are."""
        if all(part.resolved for part in self.parts):
            first = self.parts[0]
            self.error = next((part.error for part in self.parts if part.error), None)
            self.base_offset = first.base_offset
            self.log_append_time_ms = first.log_append_time_ms
            self._resolve()


class Delivery:
    """Outcome of one record: await it for its RecordMetadata, or use ``done`` and ``result``.

    Cheap: it holds no future.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: PendingBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def partition(self) -> TopicPartition:
        """Partition of the record."""
        return self._batch.partition

    def done(self) -> bool:
        """True once the record was acknowledged or has failed."""
        batch = self._batch
        return batch.resolved or (bool(batch.parts) and self._placed().resolved)

    def result(self) -> RecordMetadata:
        """Return the record's place, or raise its failure. Requires ``done``."""
        batch = self._placed()
        assert batch.resolved, "not done: await the delivery instead"
        batch.see()
        if batch.error is not None:
            raise batch.error.with_traceback(None)
        index = self._index - batch.first_index
        offset = batch.base_offset + index if batch.base_offset >= 0 else -1
        own_time = batch.log_append_time_ms < 0
        timestamp = batch.timestamp_of(index) if own_time else batch.log_append_time_ms
        return RecordMetadata(*batch.partition, offset, timestamp)

    def exception(self) -> ClientError | None:
        """Return the record's failure; None if it was acknowledged. Requires ``done``."""
        batch = self._placed()
        assert batch.resolved, "not done: await the delivery instead"
        batch.see()
        return batch.error

    def when_done(self, call: Callable[[int, ClientError | None], None]) -> None:
        """Call a function with the record's offset (-1: not known) and failure once it is done. It
        does not count as a look at the failure.
        """
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._placed().waiters.append(waiter)

        def tell(_: asyncio.Future[None]) -> None:
            batch = self._placed()
            is_known = batch.base_offset >= 0
            index = self._index - batch.first_index
            call(batch.base_offset + index if is_known else -1, batch.error)

        waiter.add_done_callback(tell)

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        """Wait for the acknowledgement. Raises the record's failure."""
        batch = self._placed()
        batch.see()
        if not batch.resolved:
            # A future for each caller: cancelling one must not cancel the others.
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            batch.waiters.append(waiter)
            yield from waiter
        return self.result()

    def _placed(self) -> PendingBatch:
        """Return the batch that has the record now; encoded records are delivered together."""
        batch = self._batch
        while batch.parts and batch.encoded_records is None:
            batch = next(part for part in reversed(batch.parts) if part.first_index <= self._index)
        return batch
