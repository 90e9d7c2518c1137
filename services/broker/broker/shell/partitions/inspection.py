"""Appends whose records must be inspected first: keys on compacted topics, ``compression.type``
other than producer, and headers with an untrue timestamp.

Worker processes walk the records; the loop appends the result. Appends of one connection to one
partition keep their order: each gets its turn when it is made, is inspected in parallel, and is
appended after the one before it. Connections do not wait for one another.
"""

import asyncio
import logging
from collections.abc import Hashable
from dataclasses import dataclass

from tidemark.codec.record_batch import HEADER_BYTES, read_header
from tidemark.model.errors import ErrorCode
from tidemark.runtime.clock import Clock
from tidemark.runtime.telemetry import fields
from tidemark.runtime.worker_pool import (
    JobTooLargeError,
    JobTooLongError,
    WorkerDiedError,
    WorkerPool,
    WorkerPoolBusyError,
)

from broker.core.batch_rules import count_refused
from broker.core.partition import Refusal
from broker.shell.counters import BrokerCounters
from broker.shell.partitions.appender import PartitionAppender
from broker.shell.partitions.hosted import AppendOutcome, HostedPartition
from broker.storage.recompression import AS_RECEIVED, BatchRule, apply_rule
from broker.storage.recompression import Refusal as RuleRefusal

log = logging.getLogger(__name__)

_BUSY_RETRY_S = 0.02
_WORKER_DIED = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "the worker that checks records died; retry")
_TOO_LONG = Refusal(
    ErrorCode.REQUEST_TIMED_OUT,
    "the batch's records were not checked within batch.inspection.deadline.ms; send smaller ones",
)
_TOO_LARGE = Refusal(
    ErrorCode.INVALID_RECORD,
    "the batch's records take more memory to check than a worker may have; send smaller batches",
)


def must_inspect(hosted: HostedPartition, batch: memoryview | bytes, lane: Hashable) -> bool:
    """True if this batch may not be appended inline: a worker must inspect it, or one before it in
    its lane is at a worker.
    """
    if lane in hosted.turns:
        return True
    rule = hosted.rule
    return rule is not None and (len(batch) < HEADER_BYTES or rule.concerns(read_header(batch)))


@dataclass(frozen=True, slots=True)
class Inspection:
    """Parts of the broker that every inspected append uses."""

    appender: PartitionAppender
    workers: WorkerPool
    clock: Clock
    counters: BrokerCounters


class InspectedAppend:
    """One append through a worker. Make it in the order of requests; ``run`` it exactly once."""

    def __init__(
        self,
        inspection: Inspection,
        hosted: HostedPartition,
        batch: bytes,
        *,
        acks: int,
        lane: Hashable,
        leader_epoch_expected: int = -1,
    ) -> None:
        """``lane``: the connection of the request."""
        self._inspection = inspection
        self._hosted = hosted
        self._batch = batch
        self._acks = acks
        self._leader_epoch_expected = leader_epoch_expected
        self._lane = lane
        self._before = hosted.turns.get(lane)
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        hosted.turns[lane] = self._over

    async def run(self) -> AppendOutcome:
        """Return the outcome of the append."""
        hosted = self._hosted
        try:
            stored = await self._inspect(hosted.rule or AS_RECEIVED)
            if self._before is not None:
                await asyncio.shield(self._before)  # it is resolved by the append before
            if isinstance(stored, Refusal):
                return self._inspection.appender.refused(hosted, stored)
            # Exactly one batch: nobody has looked at another one behind it.
            return self._inspection.appender.append_batch(
                hosted,
                memoryview(bytearray(stored)),
                self._acks,
                self._inspection.clock.wall_ms(),
                leader_epoch_expected=self._leader_epoch_expected,
            )
        finally:
            self._over.set_result(None)
            if hosted.turns.get(self._lane) is self._over:
                del hosted.turns[self._lane]

    async def _inspect(self, rule: BatchRule) -> bytes | Refusal:
        if not must_be_walked(rule, self._batch):
            return self._batch
        refused = count_refused(
            read_header(self._batch), len(self._batch), self._hosted.partition.limits
        )
        if refused is not None:
            return refused
        while True:
            try:
                result = await self._inspection.workers.run_for(
                    self._lane, apply_rule, self._batch, rule
                )
            except WorkerPoolBusyError:
                await asyncio.sleep(_BUSY_RETRY_S)  # in-flight requests bound how many wait here
            except WorkerDiedError as died:
                return self._given_up(_WORKER_DIED, died)
            except JobTooLongError as late:
                return self._given_up(_TOO_LONG, late)
            except JobTooLargeError as large:
                return self._given_up(_TOO_LARGE, large)
            else:
                if isinstance(result, RuleRefusal):
                    return Refusal(result.error, result.message, result.records)
                return result

    def _given_up(self, refusal: Refusal, reason: Exception) -> Refusal:
        self._inspection.counters.inspections_given_up += 1
        log.warning(
            "batch not checked",
            extra=fields(partition=str(self._hosted.topic_partition), reason=str(reason)),
        )
        return refusal


def must_be_walked(rule: BatchRule, batch: bytes) -> bool:
    """True if the rule concerns this batch; one too short for a header is refused by the append."""
    return len(batch) >= HEADER_BYTES and rule.concerns(read_header(batch))
