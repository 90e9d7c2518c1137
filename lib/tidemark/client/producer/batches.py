"""A producer's batch for one partition on its way, and the handle a sender of a record gets."""

import asyncio
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from tidemark.client.errors import ClientError
from tidemark.codec.record_batch import MAGIC_V2, TRANSACTIONAL_BIT, BatchHeader, Buffer
from tidemark.codec.records import assemble_batch, build_batch
from tidemark.model.topics import TopicPartition

Header = tuple[str, bytes | None]
PlainRecord = tuple[int, bytes | None, bytes | None, Sequence[Header]]
"""Timestamp in ms, key, value, headers: what ``build_batch`` takes."""

NO_SEQUENCE: Final = -1


class RecordMetadata(NamedTuple):
    """Where an acknowledged record is. ``offset`` is -1 with acks=0."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class EncodedRecords:
    """Records of one partition that somebody encoded already, for one batch of their own.

    ``records``: uncompressed, with timestamp deltas from ``first_timestamp`` (ms) and offset deltas
    0 to ``count`` - 1. Whoever gives a buffer leaves it unchanged until the delivery is done.
    """

    partition: TopicPartition
    records: Buffer
    count: int
    first_timestamp: int
    max_timestamp: int


class Place(Enum):
    """Where a batch is on its way."""

    WAITING = auto()
    IN_FLIGHT = auto()
    RETRYING = auto()
    DONE = auto()


class PendingBatch:
    """Records of one partition that travel, are retried and acknowledged together.

    Invariant: ``epoch``, ``producer_id`` and ``sequence`` are set together, when the batch is first
    sent; a retry carries the same three, or the broker could not tell it from new records (K06,
    K07).
    """

    __slots__ = (
        "_encoded",
        "base_offset",
        "created_at",
        "encoded_records",
        "error",
        "failures",
        "log_append_time_ms",
        "number",
        "observed",
        "partition",
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
        """In place of ``records``."""
        self.size_bytes = 0
        self.failures = 0
        self.problem = ""
        self.place = Place.WAITING
        self.producer_id = -1
        self.producer_epoch = -1
        self.sequence = NO_SEQUENCE
        self.refused = False  # the broker certainly did not write it: it may get another sequence
        self.retried = False
        self.resolved = False
        self.observed = False
        self.error: ClientError | None = None
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.waiters: list[asyncio.Future[None]] = []
        self._encoded: bytes | None = None

    @property
    def count(self) -> int:
        """Records in it."""
        return self.encoded_records.count if self.encoded_records else len(self.records)

    def timestamp_of(self, index: int) -> int:
        """What its sender gave the record, in ms; of encoded records the first one's."""
        if self.encoded_records is not None:
            return self.encoded_records.first_timestamp
        return self.records[index][0]

    def sequence_as(self, producer_id: int, producer_epoch: int, sequence: int) -> None:
        """Give the batch its place in the producer's sequence; what was encoded before no longer
        holds.
        """
        self.producer_id, self.producer_epoch, self.sequence = producer_id, producer_epoch, sequence
        self.refused = self.retried = False
        self._encoded = None

    def encode(self, compression: int, level: int | None) -> bytes:
        """The RecordBatch v2; the same bytes at every retry."""
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
        """The broker has it; ``base_offset`` is of the first record, -1 when the broker was not to
        answer.
        """
        self.base_offset, self.log_append_time_ms = base_offset, log_append_time_ms
        self._resolve()

    def fail(self, error: ClientError) -> None:
        """Nobody will try it again."""
        self.error = error
        self._resolve()

    def _resolve(self) -> None:
        assert not self.resolved, f"batch {self.number} of {self.partition} resolved twice"
        self.resolved = True
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Delivery:
    """One record's fate: await it for its RecordMetadata, or ask ``done`` and ``result``. Cheap: no
    future inside.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: PendingBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def partition(self) -> TopicPartition:
        """Chosen when the record was taken."""
        return self._batch.partition

    def done(self) -> bool:
        """Whether the record was acknowledged or failed."""
        return self._batch.resolved

    def result(self) -> RecordMetadata:
        """Where the record is; raises what it failed of. Only when ``done``."""
        batch = self._batch
        assert batch.resolved, "not done: await the delivery instead"
        batch.observed = True
        if batch.error is not None:
            raise batch.error.with_traceback(None)
        offset = batch.base_offset + self._index if batch.base_offset >= 0 else -1
        own_time = batch.log_append_time_ms < 0
        timestamp = batch.timestamp_of(self._index) if own_time else batch.log_append_time_ms
        return RecordMetadata(*batch.partition, offset, timestamp)

    def exception(self) -> ClientError | None:
        """What the record failed of, None when acknowledged. Only when ``done``."""
        assert self._batch.resolved, "not done: await the delivery instead"
        self._batch.observed = True
        return self._batch.error

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        """Wait until the record is acknowledged; raises what it failed of."""
        batch = self._batch
        batch.observed = True
        if not batch.resolved:
            # A future of its own: cancelling one waiter must not cancel the others.
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            batch.waiters.append(waiter)
            yield from waiter
        return self.result()
