"""The two forms of a transaction: of Kafka's API, with one producer, and of several writers.

A form is a view of one transactional id in the state of a shard. Both have the same methods, so
that timeouts, markers and expiry are handled without regard to the form.
"""

from dataclasses import dataclass
from typing import TypeAlias

from tidemark.codec.txn_records import (
    EndKind,
    HandleRecord,
    HandleTombstone,
    TransactionRecord,
    TransactionTombstone,
    WriterTombstone,
)
from tidemark.model.topics import TopicPartition

from txn_coordinator.core import endings, multi_writer_rules, transaction
from txn_coordinator.core.effects import SendMarkers
from txn_coordinator.core.multi_writer_transaction import MultiWriterTransaction
from txn_coordinator.core.requests import MarkersWritten


@dataclass(frozen=True, slots=True)
class SingleWriter:
    """Transaction of Kafka's API. ``record`` is in force, or about to be."""

    record: TransactionRecord
    outstanding: set[TopicPartition]
    """Partitions without a marker, while prepared. Changed by ``markers_written``."""

    def markers(self) -> list[SendMarkers]:
        """Return the markers that the prepared record requires."""
        record = self.record
        if not record.partitions:
            return []
        return [
            SendMarkers(
                record.transactional_id,
                record.producer_id,
                record.producer_epoch,
                record.updated_at,
                record.state is transaction.PREPARE_COMMIT,
                tuple(sorted(record.partitions)),
                2 if record.client_version >= 2 else 1,
            )
        ]

    def completed(self, wall_ms: int) -> TransactionRecord:
        """Return the record of the transaction once all markers are written."""
        return transaction.completed(self.record, wall_ms)

    def timed_out(self, wall_ms: int) -> TransactionRecord:
        """Return the record that aborts the transaction because of its timeout."""
        return endings.abort_forced(self.record, wall_ms)

    def is_reported(self, report: MarkersWritten) -> bool:
        """True if the report is about markers of this transaction."""
        record = self.record
        return (
            record.state in transaction.PREPARED
            and record.producer_id == report.producer_id
            and record.producer_epoch == report.producer_epoch
            and record.updated_at == report.prepared_at
        )

    def markers_written(self, report: MarkersWritten) -> bool:
        """Note written markers. True if no marker is outstanding."""
        self.outstanding.difference_update(report.partitions)
        return not self.outstanding

    def tombstones(self, unused_since: int) -> tuple[TransactionTombstone, ...]:
        """Return the tombstone of an id that is unused since then, in wall ms."""
        record = self.record
        if record.updated_at > unused_since:
            return ()
        if not transaction.may_move(record.state, transaction.DEAD):
            return ()
        return (TransactionTombstone(record.transactional_id),)


@dataclass(frozen=True, slots=True)
class MultiWriter:
    """Transaction of several writers. ``record`` is in force, or about to be."""

    record: HandleRecord
    txn: MultiWriterTransaction | None
    """State of the transactional id; None: ``record`` is its first."""

    def markers(self) -> list[SendMarkers]:
        """Return the markers that the prepared record requires, of each writer."""
        return [] if self.txn is None else self.txn.markers(self.record)

    def completed(self, wall_ms: int) -> HandleRecord:
        """Return the record of the transaction once all markers are written."""
        return multi_writer_rules.completed(self.record, wall_ms)

    def timed_out(self, wall_ms: int) -> HandleRecord:
        """Return the record that aborts the transaction because of its timeout."""
        return multi_writer_rules.ended(self.record, EndKind.TIMED_OUT, wall_ms)

    def is_reported(self, report: MarkersWritten) -> bool:
        """True if the report is about markers of this transaction that are outstanding."""
        return (
            self.txn is not None
            and self.record.state in transaction.PREPARED
            and self.record.updated_at == report.prepared_at
            and report.producer_id in self.txn.outstanding
        )

    def markers_written(self, report: MarkersWritten) -> bool:
        """Note written markers. True if no marker of any writer is outstanding."""
        assert self.txn is not None, "markers of an id without state"
        return self.txn.markers_written(report.producer_id, report.partitions)

    def tombstones(self, unused_since: int) -> tuple[HandleTombstone | WriterTombstone, ...]:
        """Return the tombstones of an id that is unused since then, in wall ms. The state of a
        sink's batches never expires, unless the sink was begun as one that does.
        """
        record = self.record
        if self.txn is None or record.updated_at > unused_since:
            return ()
        if record.sink is not None and not record.sink.expires:
            return ()
        if not transaction.may_move(record.state, transaction.DEAD):
            return ()
        return self.txn.tombstones()


Transaction: TypeAlias = SingleWriter | MultiWriter
