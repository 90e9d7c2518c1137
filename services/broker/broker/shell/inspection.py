"""Appends whose records must be looked at first: keys on compacted topics, ``compression.type``
other than producer.

A worker process walks the records; the loop appends the result. Appends of one partition keep the
order in which they asked: each takes its turn when it is made, works beside the others, and appends
after the one before it.
"""

import asyncio
import logging

from tidemark.codec.record_batch import HEADER_BYTES, read_header
from tidemark.model.errors import ErrorCode
from tidemark.runtime.worker_pool import WorkerDiedError, WorkerPoolBusyError

from broker.core.partition import Refusal
from broker.shell.node import AppendOutcome, BrokerNode, HostedPartition
from broker.storage.recompression import BatchRule, apply_rule
from broker.storage.recompression import Refusal as RuleRefusal

log = logging.getLogger(__name__)

_BUSY_RETRY_S = 0.02
_WORKER_DIED = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "the worker that checks records died; retry")


def must_inspect(hosted: HostedPartition, batch: memoryview | bytes) -> bool:
    """Whether this batch may not be appended inline: a worker must see it, or one before it is at a
    worker.
    """
    if hosted.turn is not None:
        return True
    rule = hosted.rule
    return rule is not None and (len(batch) < HEADER_BYTES or rule.concerns(read_header(batch)))


class InspectedAppend:
    """One append by way of a worker. Make it in the order of requests; ``run`` it exactly once."""

    def __init__(
        self,
        node: BrokerNode,
        hosted: HostedPartition,
        batch: bytes,
        *,
        acks: int,
        leader_epoch_expected: int = -1,
    ) -> None:
        self._node = node
        self._hosted = hosted
        self._batch = batch
        self._acks = acks
        self._leader_epoch_expected = leader_epoch_expected
        self._before = hosted.turn
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        hosted.turn = self._over

    async def run(self) -> AppendOutcome:
        """The append's outcome."""
        hosted = self._hosted
        try:
            stored = await self._inspect(hosted.rule)
            if self._before is not None:
                await self._before
            if isinstance(stored, Refusal):
                return self._node.refused(hosted, stored)
            return self._node.append(
                hosted,
                memoryview(bytearray(stored)),
                acks=self._acks,
                leader_epoch_expected=self._leader_epoch_expected,
                now_ms=self._node.clock.wall_ms(),
            )
        finally:
            self._over.set_result(None)
            if hosted.turn is self._over:
                hosted.turn = None

    async def _inspect(self, rule: BatchRule | None) -> bytes | Refusal:
        if rule is None or not must_be_walked(rule, self._batch):
            return self._batch
        while True:
            try:
                result = await self._node.workers.run(apply_rule, self._batch, rule)
            except WorkerPoolBusyError:
                await asyncio.sleep(_BUSY_RETRY_S)  # in-flight requests bound how many wait here
            except WorkerDiedError:
                log.warning("worker died under a batch")
                return _WORKER_DIED
            else:
                if isinstance(result, RuleRefusal):
                    return Refusal(result.error, result.message)
                return result


def must_be_walked(rule: BatchRule, batch: bytes) -> bool:
    """Whether the rule says anything about this batch; one too short for a header is refused by the
    append.
    """
    return len(batch) >= HEADER_BYTES and rule.concerns(read_header(batch))
