"""BatchKeys: keys of batches from worker processes, for groups that order records by key."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from tidemark.codec.records import RecordsError
from tidemark.model.errors import ErrorCode
from tidemark.runtime.clock import Clock
from tidemark.runtime.task_parent import TaskParent
from tidemark.runtime.telemetry import fields
from tidemark.runtime.worker_pool import (
    JobTooLargeError,
    JobTooLongError,
    WorkerDiedError,
    WorkerPool,
    WorkerPoolBusyError,
)
from tidemark.storage.disk import DiskError

from broker.core.share.acquisition import LogBatch, LogRead
from broker.core.share.batch_keys import key_hashes
from broker.shell.share.held import HeldShare
from broker.storage.log import LogSlice

log = logging.getLogger(__name__)

AHEAD_MAX: Final = 4
"""Batches of one read that are walked at a time."""
_FAILURES = (
    DiskError,
    JobTooLargeError,
    JobTooLongError,
    RecordsError,
    WorkerDiedError,
    WorkerPoolBusyError,
)


class PlacedBatch(NamedTuple):
    """A batch and its place in a file."""

    batch: LogBatch
    place: LogSlice


class BatchKeys:
    """Walks batches in workers. ``run`` is the parent of all jobs."""

    def __init__(self, workers: WorkerPool, clock: Clock) -> None:
        self.on_known: Callable[[HeldShare], None] = lambda _: None
        """Called when more keys of a share-partition are known, or a batch could not be walked."""
        self._workers = workers
        self._clock = clock
        self._jobs = TaskParent()

    async def run(self) -> None:
        """Hold the tasks of jobs until cancelled."""
        await self._jobs.run()

    def cut(
        self, held: HeldShare, read: LogRead, places: list[LogSlice]
    ) -> LogRead | ErrorCode | None:
        """Return a read with keys, as far as they are known; None if they are known soon. Batches
        without keys go to a worker.
        """
        keys, now = held.keys, self._clock.now_ms()
        keys.drop_below(held.share.window.start)
        pairs = map(PlacedBatch, read.batches, places)
        missing = [one for one in pairs if one.batch.has_records and keys.known(one.batch) is None]
        for one in missing[:AHEAD_MAX]:
            if self._jobs.is_running and keys.begin(one.batch, now):
                self._jobs.start(self._learn(held, one))
        found = keys.cut(read)
        if found is None and missing and keys.has_failed(missing[0].batch):
            return ErrorCode.KAFKA_STORAGE_ERROR
        return found

    async def _learn(self, held: HeldShare, one: PlacedBatch) -> None:
        batch, (file, position, length) = one
        try:
            stored = await asyncio.to_thread(file.read_at, position, length)
            held.keys.learn(batch, await self._workers.run_for(held, key_hashes, stored))
        except _FAILURES as failure:
            held.keys.fail(batch, self._clock.now_ms())
            log.warning(
                "keys of a batch not read",
                extra=fields(
                    share_partition=str(held.share.key),
                    offset=batch.first_offset,
                    reason=str(failure),
                ),
            )
        self.on_known(held)
