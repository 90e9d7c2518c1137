"""Admission: which batches a leader takes, by the topic's limits and the producers' sequences and
transactions.

Only the rules that need neither the replica's role nor its offsets are here. Nothing changes
before ``appended``.
"""

from typing import Final

from tidemark.codec.control_record import ControlRecord, EndTxnMarker, OwnerRecord
from tidemark.codec.record_batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_V2,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_PRODUCER

from broker.core.batch_rules import (
    COMPRESSION_LAST,
    NO_TIMESTAMP,
    PLAIN_MASK,
    RECORD_BYTES_MIN,
    AppendPlan,
    PartitionLimits,
    Refusal,
    Repeated,
    structure_refused,
    timestamps_refused,
)
from broker.core.producers import ACCEPTED, Duplicate, Ended, ProducerTable, Refused, Verdict
from broker.core.txn_verification import TxnVerifications

_BAD_SEQUENCE: Final = Refusal(ErrorCode.INVALID_RECORD, "a producer id needs a sequence from 0 on")
_NO_PRODUCER: Final = Refusal(
    ErrorCode.INVALID_REQUEST, "a marker ends the transaction of a producer, with its epoch"
)
_NOT_VERIFIED: Final = Refusal(
    ErrorCode.INVALID_TXN_STATE,
    "the transaction coordinator has not said that the partition is part of this transaction",
)


class Admission:
    """Producers of one partition, and the limits of its topic."""

    __slots__ = ("limits", "producers", "verifications")

    def __init__(self, limits: PartitionLimits, producers: ProducerTable) -> None:
        self.limits = limits
        self.producers = producers
        self.verifications = TxnVerifications()

    def judge(self, header: BatchHeader, size_bytes: int, now_ms: int) -> Repeated | Refusal | None:
        """Decide about a batch of a producer, of ``size_bytes``, whose CRC is known to match.
        Return None if it may be appended. ``now_ms`` is wall time.
        """
        limits = self.limits
        # One unpacking costs less than a dozen attribute reads: this runs for every batch.
        (
            base_offset, batch_length, _, magic, _, attributes, delta,
            base_ms, max_ms, producer_id, producer_epoch, base_sequence, count,
        ) = header  # fmt: skip
        if (
            magic != MAGIC_V2
            or base_offset
            or size_bytes > limits.batch_bytes_max
            or batch_length + LENGTH_PREFIX_BYTES != size_bytes
            or size_bytes < HEADER_BYTES
            or count <= 0
            or delta != count - 1
            or attributes & PLAIN_MASK != attributes
            or attributes & COMPRESSION_MASK > COMPRESSION_LAST
            or (attributes and producer_id < 0 and attributes & TRANSACTIONAL_BIT)
            or count * RECORD_BYTES_MIN > size_bytes - HEADER_BYTES
            or count > limits.records_max
        ):
            refused = structure_refused(header, size_bytes, limits)
            if refused is not None:
                return refused
        if not limits.log_append_time and not (
            now_ms - limits.timestamp_before_ms_max
            <= base_ms
            <= max_ms
            <= now_ms + limits.timestamp_after_ms_max
        ):
            refused = timestamps_refused(header, now_ms, limits)
            if refused is not None:
                return refused
        if producer_id == NO_PRODUCER:
            return None
        if producer_id < 0 or base_sequence < 0 or producer_epoch < 0:
            return _BAD_SEQUENCE
        verdict = self.producers.check(header)
        if verdict is not ACCEPTED:
            return self._not_accepted(verdict)
        if attributes & TRANSACTIONAL_BIT or self.producers.txns:
            return self._transaction_refused(header)
        return None

    def _not_accepted(self, verdict: Verdict) -> Repeated | Refusal:
        if isinstance(verdict, Duplicate):
            stamped = verdict.timestamp if self.limits.log_append_time else NO_TIMESTAMP
            return Repeated(verdict.base_offset, verdict.last_offset, stamped)
        assert isinstance(verdict, Refused), verdict
        return Refusal(verdict.error_code, verdict.message)

    def _transaction_refused(self, header: BatchHeader) -> Refusal | None:
        if self.needs_verification(header):
            return _NOT_VERIFIED
        if header.is_transactional and header.producer_id not in self.producers:
            first = self.verifications.first_sequence(header.producer_id)
            if header.base_sequence > first:
                return Refusal(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {header.producer_id} began with sequence {header.base_sequence}"
                    f" where {first} was expected",
                )
        refused = self.producers.check_transaction(header)
        return None if refused is None else Refusal(refused.error_code, refused.message)

    def needs_verification(self, header: BatchHeader) -> bool:
        """Return True if the batch would begin a transaction here, and the coordinator has not
        confirmed yet that it may (KIP-890).
        """
        return (
            header.is_transactional
            and not self.producers.is_open(header.producer_id, header.producer_epoch)
            and not self.verifications.is_verified(header.producer_id, header.producer_epoch)
        )

    def judge_internal(
        self, header: BatchHeader, control: ControlRecord | None, *, bumped: bool
    ) -> Ended | Refusal | None:
        """Decide about a batch that a coordinator or this broker has written: a marker, a change of
        owner, or records of a group, transactional or not, without sequences.

        Return None if it may be appended, and Ended if it is a marker that is in the log already.
        ``bumped``: as for ``ProducerTable.check_marker``.
        """
        producer = (header.producer_id, header.producer_epoch)
        if isinstance(control, OwnerRecord):
            return self.owner_refused(control.owner_epoch)
        if isinstance(control, EndTxnMarker):
            if header.producer_id < 0 or header.producer_epoch < 0:
                return _NO_PRODUCER
            verdict = self.producers.check_marker(*producer, control, bumped=bumped)
            if isinstance(verdict, Ended):
                return verdict
            refused = verdict if isinstance(verdict, Refused) else None
        else:
            refused = self.producers.check_epoch(*producer)
        return None if refused is None else Refusal(refused.error_code, refused.message)

    def owner_refused(self, owner_epoch: int) -> Refusal | None:
        """Return the refusal of an append to a coordinator's shard by a former owner, else None."""
        if owner_epoch >= self.producers.owner_epoch:
            return None
        return Refusal(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"an owner of epoch {self.producers.owner_epoch} has taken the shard over; this one has"
            f" epoch {owner_epoch}",
        )

    def appended(self, plan: AppendPlan, now_ms: int) -> None:
        """Note that the batch of a producer, or a control batch, is in the log."""
        header = plan.header
        if plan.control is not None or header.base_sequence < 0:
            self.producers.replay(header, now_ms, plan.control)
            self.verifications.forget(header.producer_id)
            return
        if header.attributes & TRANSACTIONAL_BIT:
            self.verifications.forget(header.producer_id)
        if plan.log_append_time_ms >= 0:
            header = header._replace(max_timestamp=plan.log_append_time_ms)
        self.producers.appended(header, plan.first, now_ms)
