"""Suspects: batches that a follower fetches a second time. The leader's own disk may not have kept
them; their CRC decides.
"""

import asyncio
from collections import OrderedDict
from typing import Final

from broker.shell.partitions.hosted import HostedPartition
from broker.storage.segment_map import LogRead

SUSPECTS_MAX: Final = 64


class Suspects:
    """Reads that wait for their check; each holds its files open."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[HostedPartition, tuple[int, LogRead]] = OrderedDict()
        self._news = asyncio.Event()

    def add(self, hosted: HostedPartition, offset: int, found: LogRead) -> None:
        """Queue a read, unless that offset was the last one queued, or too many wait."""
        if hosted.checked_at == offset or len(self._waiting) >= SUSPECTS_MAX:
            return
        hosted.checked_at = offset
        self._waiting[hosted] = (offset, found)
        self._news.set()

    async def wait(self) -> None:
        """Wait until a read is queued."""
        while not self._waiting:
            self._news.clear()
            await self._news.wait()

    def take(self) -> tuple[HostedPartition, int, LogRead]:
        """Return the oldest read of the queue."""
        hosted, (offset, found) = self._waiting.popitem(last=False)
        return hosted, offset, found
