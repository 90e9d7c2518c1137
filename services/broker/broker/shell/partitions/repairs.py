"""Repairs: damaged logs that are about to be cut, and whose producers are known only after a long
walk. A thread makes it: only the latest snapshots of producers are kept, so that a cut of an old
segment walks most of the log.
"""

import asyncio
from contextlib import AbstractContextManager

from tidemark.model.ids import TopicId

from broker.shell.partitions.hosted import HostedPartition
from broker.storage.directory import LogDamagedError
from broker.storage.log import Log
from broker.storage.producer_replay import ProducerReplay

Key = tuple[TopicId, int]


class Repairs:
    """Walks that are to be made before a repair, and those that were made for one."""

    def __init__(self) -> None:
        self._walking: dict[Key, ProducerReplay] = {}
        self._walked: dict[Key, ProducerReplay] = {}
        self._are_wanted = asyncio.Event()

    def prepared(self, hosted: HostedPartition) -> AbstractContextManager[None] | None:
        """Return what to hold while a log is repaired; None if it has to be walked first. Raises
        DiskError.
        """
        log, key = hosted.log, (hosted.topic_id, hosted.topic_partition.partition)
        if key in self._walking:
            return None
        replay = self._walked.pop(key, None)
        if replay is None or (replay.end, replay.log_end) != (log.health.damage_at, log.log_end):
            replay = _long_walk(log)
            if replay is not None:
                self._walking[key] = replay
                self._are_wanted.set()
                return None
        return log.history.replayed(replay, log.log_end)

    async def walk(self) -> Key:
        """Wait until a walk is wanted, and make it; return the partition to be repaired then."""
        while not self._walking:
            self._are_wanted.clear()
            await self._are_wanted.wait()
        key, replay = next(iter(self._walking.items()))
        await asyncio.to_thread(replay.run)
        self._walked[key] = self._walking.pop(key)
        return key

    def forget(self, key: Key) -> None:
        """Forget a walk that was not used."""
        self._walked.pop(key, None)


def _long_walk(log: Log) -> ProducerReplay | None:
    """Return the walk that the cut of a log before its damage needs; None if it is short, or
    nothing is kept.
    """
    at = log.health.damage_at
    if not log.log_start < at < log.log_end:
        return None
    try:
        replay = log.history.begin_replay(at, log.log_end)
    except LogDamagedError:
        return None  # the repair meets it too, and handles it
    return replay if replay.is_long else None
