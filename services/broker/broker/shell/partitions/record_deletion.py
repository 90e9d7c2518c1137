"""Deletion of records by offset: moves a partition's log start forward, and records below it are
never read again.
"""

import logging
from typing import Final, NamedTuple

from tidemark.codec.control_record import OwnerRecord, build_owner
from tidemark.model.authorization import CLUSTER, Operation, Requester, topic_resource
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import NO_TOPIC_ID, InstantMs, Offset, TopicId
from tidemark.model.topics import INTERNAL_TOPICS
from tidemark.runtime.telemetry import fields
from tidemark.storage.disk import DiskError

from broker.core.commit_wait import CommitWait
from broker.core.deletion_wait import DeletionWait
from broker.core.partition import Role
from broker.shell.facts import BrokerFacts
from broker.shell.partitions.appender import PartitionAppender
from broker.shell.partitions.disk_health import DiskHealth
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.partitions.log_moves import LogMoves
from broker.shell.partitions.parking_lot import ParkingLot
from broker.shell.partitions.table import PartitionTable

log = logging.getLogger(__name__)

TO_HIGH_WATERMARK: Final = -1


class DeletionTarget(NamedTuple):
    """A partition, and the offset (exclusive) up to which its records are deleted."""

    topic: str
    partition: int
    offset: int
    """-1 is the high watermark."""
    topic_id: TopicId = NO_TOPIC_ID
    owner_epoch: int = 0
    """Epoch of the coordinator that owns the partition; 0 for other callers."""


class RecordDeletion:
    """Deletes records of partitions that this broker leads."""

    def __init__(
        self,
        facts: BrokerFacts,
        table: PartitionTable,
        disks: DiskHealth,
        log_moves: LogMoves,
        parked: ParkingLot,
        appender: PartitionAppender,
    ) -> None:
        self._facts = facts
        self._table = table
        self._disks = disks
        self._log_moves = log_moves
        self._parked = parked
        self._appender = appender

    def delete(self, target: DeletionTarget, requester: Requester) -> DeletionWait[HostedPartition]:
        """Delete records at this leader, let its followers fetch the new log start at once, and
        return the wait for them. Raises TidemarkError.
        """
        hosted, wanted = self._checked(target, requester)
        if wanted > hosted.partition.log_start:
            self._advance(hosted, wanted, requester)
        deletion = DeletionWait.of(hosted, wanted)
        if not deletion.is_done:
            self._parked.followers_look_again(hosted)
        return deletion

    def _checked(
        self, target: DeletionTarget, requester: Requester
    ) -> tuple[HostedPartition, Offset]:
        """Return the partition, and the offset below which records are deleted. Raises
        TidemarkError.
        """
        resource = topic_resource(target.topic)
        if not self._facts.authorizer.authorize(requester, Operation.DELETE, resource):
            raise TidemarkError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        if target.topic in INTERNAL_TOPICS and not self._is_of_owner(target, requester):
            raise TidemarkError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                "only the coordinator that owns it deletes records of this topic",
            )
        hosted = self._led(target)
        high_watermark = hosted.partition.high_watermark
        wanted = high_watermark if target.offset == TO_HIGH_WATERMARK else target.offset
        if not 0 <= wanted <= high_watermark:
            raise TidemarkError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {target.offset} is out of range"
            )
        return hosted, Offset(wanted)

    async def keep_owner(
        self, target: DeletionTarget, requester: Requester, due: InstantMs
    ) -> DeletionTarget:
        """Write the OWNER record of a shard again before the one that is there may be deleted. A
        replica that is rebuilt from what is left would not know the owner, and would take appends
        of earlier ones. Return the target, which ends before that record. Raises TidemarkError.
        """
        hosted, wanted = self._checked(target, requester)
        target = target._replace(offset=wanted)
        if not target.owner_epoch or not hosted.is_internal or wanted <= hosted.log.log_start:
            return target
        owner = OwnerRecord(target.owner_epoch)
        batch = build_owner(owner, timestamp=self._facts.clock.wall_ms())
        outcome = self._appender.append_internal(hosted, batch, control=owner)
        if outcome.error_code is not ErrorCode.NONE:
            raise TidemarkError(outcome.error_code, outcome.message or outcome.error_code.name)
        commit = CommitWait.of(hosted, outcome.end)
        wait_ms = due - self._facts.clock.now_ms()
        if not commit.is_committed and wait_ms > 0:
            await self._parked.wait_committed(hosted, commit.end, wait_ms=wait_ms)
        if commit.is_lost or not commit.is_committed:
            raise TidemarkError(commit.failure(), "the owner of the shard was not written again")
        return target

    def due(self, timeout_ms: int) -> InstantMs:
        """Return when a request that arrives now waits no longer."""
        return InstantMs(self._facts.clock.now_ms() + max(0, timeout_ms))

    async def replicated(self, deletion: DeletionWait[HostedPartition], due: InstantMs) -> Offset:
        """Return the low watermark once no replica that may lead has the records. Raises
        TidemarkError if that is not so by ``due``.
        """
        wait_ms = due - self._facts.clock.now_ms()
        if wait_ms > 0 and not deletion.is_lost and not deletion.is_done:
            await self._parked.wait_deleted(deletion.hosted, deletion.offset, wait_ms=wait_ms)
        code = deletion.outcome()
        if code is not ErrorCode.NONE:
            raise TidemarkError(code, f"records below {deletion.offset} may be there again")
        return Offset(deletion.hosted.partition.commitment.low_watermark)

    def _is_of_owner(self, target: DeletionTarget, requester: Requester) -> bool:
        """True if the request is of a coordinator that owns the partition with its state."""
        authorize = self._facts.authorizer.authorize
        return target.owner_epoch > 0 and authorize(requester, Operation.CLUSTER_ACTION, CLUSTER)

    def _led(self, target: DeletionTarget) -> HostedPartition:
        """Return a partition whose records may be deleted. Raises TidemarkError."""
        if not target.topic:
            raise TidemarkError(ErrorCode.INVALID_REQUEST, "no topic is named")
        hosted = self._table.find(target.topic, target.topic_id, target.partition)
        if isinstance(hosted, ErrorCode):
            raise TidemarkError(hosted, hosted.name)
        if hosted.partition.role is not Role.LEADER:
            raise TidemarkError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "not the leader")
        if hosted.log.config.is_compacted and not hosted.log.config.deletes_by_retention:
            raise TidemarkError(
                ErrorCode.POLICY_VIOLATION,
                "records of a compacted topic cannot be deleted by offset",
            )
        if target.owner_epoch:
            refused = hosted.partition.admission.owner_refused(target.owner_epoch)
            if refused is not None:
                raise TidemarkError(refused.error_code, refused.message)
        return hosted

    def _advance(self, hosted: HostedPartition, log_start: Offset, requester: Requester) -> None:
        if hosted.manager.fenced is not None:
            raise TidemarkError(ErrorCode.KAFKA_STORAGE_ERROR, "the log directory is fenced")
        try:
            hosted.log.advance_log_start(log_start)
        except DiskError as failure:
            self._disks.fence_directory(hosted.manager, failure)
            raise TidemarkError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)) from failure
        self._log_moves.log_start_moved(hosted)
        words = fields(
            partition=str(hosted.topic_partition),
            log_start=log_start,
            principal=requester.principal,
        )
        log.info("records deleted", extra=words)
