"""GroupCommits: log directories whose partitions of flush=group wait for a flush round."""

import asyncio
from collections.abc import Iterable

from broker.storage.log_manager import LogManager


class GroupCommits:
    """``request`` is called after an append, once a batch; the flush loops wait."""

    def __init__(self, managers: Iterable[LogManager]) -> None:
        self._requested = {manager: asyncio.Event() for manager in managers}

    def request(self) -> None:
        """Ask for a round of every directory: a round that finds nothing to flush is cheap."""
        for requested in self._requested.values():
            requested.set()

    def is_requested(self, manager: LogManager) -> bool:
        """Whether a round of this directory is asked for and has not begun."""
        return self._requested[manager].is_set()

    async def wait(self, manager: LogManager) -> None:
        """Return when a round is asked for, which begins with that."""
        requested = self._requested[manager]
        await requested.wait()
        requested.clear()
