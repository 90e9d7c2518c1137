"""Partition: one replica's decisions. Pure: parsed header fields in, plans out; the shell owns
bytes, disk and clock.

The life of a batch is three calls, all in the connection's callback (DESIGN: the hot path):

    plan = partition.admit(header, size_bytes, ...)   may it, and which offsets? changes nothing
    log.append(buffers, plan, now)                    storage
    partition.appended(plan)                          moves log_end; says what became readable

A leader judges what its followers fetch (``judge_fetch``, ``follower_fetched``), moves the high
watermark to the minimum over the maximal ISR, and proposes ISRs. A follower takes batches as the
leader has them (``admit_replicated``), and truncates where the leader's log parts from its own: by
leader epoch, never by high watermark (KIP-101, KIP-279).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

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
from tidemark.model.ids import (
    NO_OFFSET,
    NO_PRODUCER,
    BrokerEpoch,
    BrokerId,
    InstantMs,
)
from tidemark.model.metadata import PartitionImage

from broker.core.batch_rules import (
    COMPRESSION_LAST,
    NO_TIMESTAMP,
    PLAIN_MASK,
    RECORD_BYTES_MIN,
    structure_refused,
    timestamps_refused,
)
from broker.core.batch_rules import AppendPlan as AppendPlan
from broker.core.batch_rules import PartitionLimits as PartitionLimits
from broker.core.batch_rules import Refusal as Refusal
from broker.core.batch_rules import Repeated as Repeated
from broker.core.isr import IsrProposal as IsrProposal
from broker.core.producers import Accepted, Duplicate, Ended, Refused
from broker.core.replica import ACKS_ALL as ACKS_ALL
from broker.core.replica import FAILED, FENCED, NOT_LEADER, UNKNOWN_EPOCH, Replica
from broker.core.replica import LogState as LogState
from broker.core.replica import Role as Role
from broker.core.replica_progress import FollowerFetch as FollowerFetch

NO_LAST_EPOCH: Final = -1


class FollowerRead(NamedTuple):
    """What a follower's fetch hears. Without error and divergence: all from its end to ours."""

    error_code: ErrorCode
    diverging: tuple[int, int] | None
    """(leader epoch, end): where the logs last agree, as far as the leader can tell."""


_BAD_SEQUENCE: Final = Refusal(ErrorCode.INVALID_RECORD, "a producer id needs a sequence from 0 on")
_STORAGE: Final = Refusal(
    ErrorCode.KAFKA_STORAGE_ERROR, "the batch could not be written to the disk"
)
_NOT_FOLLOWER: Final = Refusal(
    ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not follow the partition"
)
_NOT_A_BATCH: Final = Refusal(
    ErrorCode.CORRUPT_MESSAGE, "the leader sent something other than a record batch"
)
_OUT_OF_PLACE: Final = Refusal(
    ErrorCode.CORRUPT_MESSAGE, "a batch from the leader does not continue the log"
)
_NEVER_AGREED: Final = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST)
"""The controller judges these last, behind the epochs."""
_NOT_VERIFIED: Final = Refusal(
    ErrorCode.INVALID_TXN_STATE,
    "the transaction coordinator has not said that the partition is part of this transaction",
)
_BAD_ACKS: Final = Refusal(ErrorCode.INVALID_REQUIRED_ACKS, "acks must be -1 (all), 0 or 1")
_NOT_ENOUGH: Final = Refusal(
    ErrorCode.NOT_ENOUGH_REPLICAS, "fewer in-sync replicas than min.insync.replicas"
)


class Partition(Replica):
    """One replica of one partition: what it admits, hears and proposes."""

    __slots__ = ()

    # -- the three calls

    def admit(
        self,
        header: BatchHeader,
        size_bytes: int,
        *,
        acks: int,
        leader_epoch_expected: int = -1,
        now_ms: int,
    ) -> AppendPlan | Repeated | Refusal:
        """Decide about one batch of ``size_bytes`` whose CRC is known to match. Changes nothing.

        ``leader_epoch_expected`` -1: whatever it is. ``now_ms`` is wall time.
        """
        if self.role is not Role.LEADER:
            return FAILED if self.role is Role.FAILED else NOT_LEADER
        if leader_epoch_expected != -1 and leader_epoch_expected != self.leader_epoch:
            return FENCED if leader_epoch_expected < self.leader_epoch else UNKNOWN_EPOCH
        limits = self.limits
        if acks != 1 and (refused := self._acks_refused(acks)) is not None:
            return refused
        # One unpacking costs less than a dozen attribute reads: this runs for every batch.
        (_, batch_length, _, magic, _, attributes, delta, base_ms, max_ms, _, _, _, count) = header
        if (
            magic != MAGIC_V2
            or size_bytes > limits.batch_bytes_max
            or batch_length + LENGTH_PREFIX_BYTES != size_bytes
            or size_bytes < HEADER_BYTES
            or count <= 0
            or delta != count - 1
            or attributes & PLAIN_MASK != attributes
            or attributes & COMPRESSION_MASK > COMPRESSION_LAST
            or (attributes and header.producer_id < 0 and attributes & TRANSACTIONAL_BIT)
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
        return self._sequenced(header, size_bytes, now_ms)

    def _sequenced(
        self, header: BatchHeader, size_bytes: int, now_ms: int
    ) -> AppendPlan | Repeated | Refusal:
        """The last question, the producer's sequence; then the offsets."""
        if header.producer_id != NO_PRODUCER:
            if header.producer_id < 0 or header.base_sequence < 0 or header.producer_epoch < 0:
                return _BAD_SEQUENCE
            verdict = self.producers.check(header, now_ms)
            if isinstance(verdict, Duplicate):
                stamped = verdict.timestamp if self.limits.log_append_time else NO_TIMESTAMP
                return Repeated(verdict.base_offset, verdict.last_offset, stamped)
            if isinstance(verdict, Refused):
                return Refusal(verdict.error_code, verdict.message)
            if header.attributes & TRANSACTIONAL_BIT or self.producers.txns:
                refused = self._transaction_refused(header)
                if refused is not None:
                    return refused
        first = self.log_end
        by_broker = self.limits.log_append_time
        return AppendPlan(
            first,
            first + header.last_offset_delta,
            now_ms if by_broker else header.max_timestamp,
            self.leader_epoch,
            size_bytes,
            header,
            now_ms if by_broker else NO_TIMESTAMP,
        )

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
        """Whether the coordinator must be asked before this batch is admitted (KIP-890): it would
        begin a transaction here, and nobody has said that it may.
        """
        return (
            header.is_transactional
            and self.role is Role.LEADER
            and not self.producers.is_open(header.producer_id, header.producer_epoch)
            and not self.verifications.is_verified(header.producer_id, header.producer_epoch)
        )

    def admit_own(
        self,
        header: BatchHeader,
        size_bytes: int,
        *,
        control: ControlRecord | None = None,
        bumped: bool = False,
        leader_epoch_expected: int = -1,
    ) -> AppendPlan | Repeated | Refusal:
        """Decide about a batch that a coordinator or this broker wrote, for acks=all: a marker, a
        change of owner, or records of a group, transactional or not, without sequences. Changes
        nothing. ``bumped``: as for ``ProducerTable.check_marker``.
        """
        refused = self.epoch_refused(leader_epoch_expected) or self._acks_refused(ACKS_ALL)
        if refused is not None:
            return refused
        ids = (header.producer_id, header.producer_epoch)
        verdict: Accepted | Ended | Refused | None
        if isinstance(control, EndTxnMarker):
            verdict = self.producers.check_marker(*ids, control, bumped=bumped)
            if isinstance(verdict, Ended):
                return Repeated(self.log_end - 1, self.log_end - 1, NO_TIMESTAMP)
        elif isinstance(control, OwnerRecord):
            return self.owner_refused(control.owner_epoch) or self._own_plan(
                header, size_bytes, control
            )
        else:
            verdict = self.producers.check_epoch(*ids)
        if isinstance(verdict, Refused):
            return Refusal(verdict.error_code, verdict.message)
        return self._own_plan(header, size_bytes, control)

    def _own_plan(
        self, header: BatchHeader, size_bytes: int, control: ControlRecord | None
    ) -> AppendPlan:
        first = self.log_end
        return AppendPlan(
            first,
            first + header.last_offset_delta,
            header.max_timestamp,
            self.leader_epoch,
            size_bytes,
            header._replace(base_offset=first),
            NO_TIMESTAMP,
            control,
        )

    def owner_refused(self, owner_epoch: int) -> Refusal | None:
        """An append of a coordinator's shard by who does not own it any more."""
        if owner_epoch >= self.producers.owner_epoch:
            return None
        return Refusal(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"an owner of epoch {self.producers.owner_epoch} has taken the shard over; this one has"
            f" epoch {owner_epoch}",
        )

    def appended(self, plan: AppendPlan, now_ms: int) -> int:
        """The batch is in the log. Returns how many bytes became readable by it: 0 while the
        watermark stays.
        """
        header = plan.header
        if self.role is not Role.LEADER:
            return self._replicated(plan, now_ms)
        assert plan.first == self.log_end, (plan.first, self.log_end)
        self.log_end = plan.last + 1
        if plan.control is not None or (header.base_sequence < 0 <= header.producer_id):
            self.producers.replay(header, now_ms, plan.control)
            self.verifications.forget(header.producer_id)
        elif header.producer_id != NO_PRODUCER:
            if header.attributes & TRANSACTIONAL_BIT:
                self.verifications.forget(header.producer_id)
            if plan.log_append_time_ms >= 0:
                header = header._replace(max_timestamp=plan.log_append_time_ms)
            self.producers.appended(header, plan.first, now_ms)
        if self._at_once:
            self.high_watermark = plan.last + 1
            return plan.size_bytes
        self._unread.add(self.log_end, plan.size_bytes)
        return self._move_high_watermark() if self._alone else 0

    def append_failed(self, plan: AppendPlan, *, fenced: bool) -> Refusal:
        """The disk did not take it and nothing of it is in the log; ``fenced``: its directory
        serves no more.
        """
        assert plan.first >= self.log_end, (plan.first, self.log_end)
        if fenced:
            self.become_failed()
        return _STORAGE

    # -- a leader's followers

    def judge_fetch(self, fetch: FollowerFetch, leader_epoch_expected: int) -> FollowerRead:
        """What a follower's fetch is to hear; changes nothing."""
        refused = self.epoch_refused(leader_epoch_expected)
        if refused is not None:
            return FollowerRead(refused.error_code, None)
        known = self._progress.get(fetch.broker_id)
        if known is None or -1 < fetch.broker_epoch < known.broker_epoch:
            return FollowerRead(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
        if fetch.last_fetched_epoch != NO_LAST_EPOCH:
            epoch, end = self.epochs.end_offset_for(fetch.last_fetched_epoch, self.log_end)
            if end == NO_OFFSET:
                return FollowerRead(ErrorCode.UNKNOWN_LEADER_EPOCH, None)
            if epoch < fetch.last_fetched_epoch or end < fetch.log_end:
                return FollowerRead(ErrorCode.NONE, (epoch, end))
        if not self.log_start <= fetch.log_end <= self.log_end:
            return FollowerRead(ErrorCode.OFFSET_OUT_OF_RANGE, None)
        return FollowerRead(ErrorCode.NONE, None)

    def follower_fetched(self, fetch: FollowerFetch, now: InstantMs) -> int:
        """A follower that was judged well has all below its end. Returns the bytes that became
        readable by it.
        """
        assert self.role is Role.LEADER, str(self)
        self._progress[fetch.broker_id].fetched(fetch, self.log_end, now)
        if self.unheard:
            self.unheard = self._find_unheard()
        if fetch.broker_id not in self._isr.maximal:
            return 0
        return self._move_high_watermark()

    def propose(
        self, now: InstantMs, live: Mapping[BrokerId, BrokerEpoch], lag_ms: int
    ) -> IsrProposal | None:
        """The ISR that should be, if it is not the agreed one and nothing is pending; from here on
        it is pending. ``live`` has the epoch of every broker that may join one.
        """
        if self.role is not Role.LEADER:
            return None
        self._excuse_own_pause(now, lag_ms)
        if self._isr.pending is not None:
            return None
        wanted = [one for one in self._isr.agreed if not self._has_left(one, now, lag_ms)]
        wanted += [
            one
            for one in self.replicas
            if one not in self._isr.agreed and self._may_join(one, now, live, lag_ms)
        ]
        if tuple(wanted) == self._isr.agreed:
            return None
        proposal = IsrProposal(
            self.topic_id,
            self.topic_partition.partition,
            self.leader_epoch,
            self._isr.partition_epoch,
            tuple((one, live.get(one, BrokerEpoch(-1))) for one in wanted),
        )
        self._isr.propose(proposal)
        self._isr_changed()
        return proposal

    def _excuse_own_pause(self, now: InstantMs, lag_ms: int) -> None:
        """A leader that stood still for longer than a lag heard nobody: that is not their fault."""
        pause_ms = now - self._looked_at
        if self._looked_at >= 0 and pause_ms > lag_ms:
            for one in self._progress.values():
                one.excuse(pause_ms, now)
        self._looked_at = now

    def _has_left(self, broker_id: BrokerId, now: InstantMs, lag_ms: int) -> bool:
        known = self._progress.get(broker_id)
        return broker_id != self.broker_id and (known is None or known.lags(now, lag_ms))

    def _may_join(
        self,
        broker_id: BrokerId,
        now: InstantMs,
        live: Mapping[BrokerId, BrokerEpoch],
        lag_ms: int,
    ) -> bool:
        """It has all that is committed, and all that older leaders left; it lives in the
        incarnation that fetched (KIP-903).
        """
        known = self._progress.get(broker_id)
        if known is None or known.lags(now, lag_ms) or live.get(broker_id) is None:
            return False
        end = known.counted_end(synced=self.limits.flush_group)
        return (
            end >= max(self.high_watermark, self.epoch_start)
            and live[broker_id] == known.broker_epoch
        )

    def proposal_answered(
        self, proposal: IsrProposal, error_code: ErrorCode, state: PartitionImage | None
    ) -> int:
        """What the controller said, with the state as it is now, if it told. Returns the bytes that
        became readable by it.

        Only a newer state ends a proposal, or a refusal by which it was never agreed: after a
        time-out, where the state had moved on, or where we do not lead any more, it may have been;
        then whoever leads next may be one who joined by it.
        """
        if self.role is not Role.LEADER or proposal.leader_epoch != self.leader_epoch:
            return 0
        if state is not None and state.leader_epoch == self.leader_epoch:
            self._isr.take(state.isr, state.partition_epoch)
        if proposal == self._isr.pending and error_code in _NEVER_AGREED:
            self._isr.refuse()
        return self._isr_changed()

    # -- a follower

    @property
    def last_fetched_epoch(self) -> int:
        """Of the last record here; NO_LAST_EPOCH when there is none."""
        return NO_LAST_EPOCH if self.log_end == self.log_start else self._epoch_at_end()

    def _epoch_at_end(self) -> int:
        return int(self.epochs.epoch_of(self.log_end - 1))

    def admit_replicated(
        self,
        header: BatchHeader,
        size_bytes: int,
        leader_epoch: int,
        behind: AppendPlan | None = None,
        control: ControlRecord | None = None,
    ) -> AppendPlan | Refusal:
        """Decide about a batch from the leader of ``leader_epoch``, whose CRC is known to match.
        Offsets may leave gaps: the leader's log is compacted. Changes nothing. ``behind``: the
        batch before it, admitted but not appended yet; None: the log's end.
        """
        if self.role is not Role.FOLLOWER:
            return FAILED if self.role is Role.FAILED else _NOT_FOLLOWER
        if leader_epoch != self.leader_epoch:
            return FENCED if leader_epoch < self.leader_epoch else UNKNOWN_EPOCH
        if (
            header.magic != MAGIC_V2
            or header.batch_length + LENGTH_PREFIX_BYTES != size_bytes
            or size_bytes < HEADER_BYTES
            or header.last_offset_delta < 0
        ):
            return _NOT_A_BATCH
        if behind is None:
            end, epoch_min = self.log_end, self.last_fetched_epoch
        else:
            end, epoch_min = behind.last + 1, behind.leader_epoch
        if header.base_offset < end or not (
            epoch_min <= header.partition_leader_epoch <= leader_epoch
        ):
            return _OUT_OF_PLACE
        return AppendPlan(
            header.base_offset,
            header.base_offset + header.last_offset_delta,
            header.max_timestamp,
            header.partition_leader_epoch,
            size_bytes,
            header,
            NO_TIMESTAMP,
            control,
        )

    def _replicated(self, plan: AppendPlan, now_ms: int) -> int:
        """The high watermark stays: the leader tells it."""
        assert plan.first >= self.log_end, (plan.first, self.log_end)
        self.log_end = plan.last + 1
        self.producers.replay(plan.header, now_ms, plan.control)
        return 0

    def leader_told(self, high_watermark: int) -> bool:
        """The leader's high watermark, as far as we have the records; whether ours moved."""
        end = min(high_watermark, self.log_end)
        if self.role is not Role.FOLLOWER or end <= self.high_watermark:
            return False
        self.high_watermark = end
        return True

    def truncation_for(self, leader_epoch: int, end: int) -> int:
        """Where to cut when the leader says that its log agrees with ours up to ``end`` of
        ``leader_epoch`` at most.
        """
        _, known_end = self.epochs.end_offset_for(leader_epoch, self.log_end)
        own_end = int(known_end)
        if known_end == NO_OFFSET:
            own_end = self.log_end if leader_epoch >= 0 else self.log_start
        return max(self.log_start, min(own_end, end, self.log_end))

    def truncated(self, log_end: int, synced_end: int) -> None:
        """The log was cut, and its epochs and producers with it."""
        assert self.role is not Role.LEADER, str(self)
        assert log_end <= self.log_end, (log_end, str(self))
        self.log_end = log_end
        self.log_start = min(self.log_start, log_end)
        self.synced_end = min(synced_end, log_end)
        self.high_watermark = min(self.high_watermark, log_end)

    def started_at(self, offset: int) -> None:
        """The log was emptied and begins at ``offset``."""
        assert self.role is not Role.LEADER, str(self)
        self.log_start = self.log_end = self.synced_end = self.high_watermark = offset

    def _acks_refused(self, acks: int) -> Refusal | None:
        if acks == ACKS_ALL:
            return _NOT_ENOUGH if len(self._isr.agreed) < self.min_insync else None
        return None if acks in (0, 1) else _BAD_ACKS
