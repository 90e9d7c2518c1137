"""GroupCommits: log directories whose partitions of flush=group wait for a flush round."""

import asyncio
from collections.abc import Iterable

from broker.storage.log_manager import LogManager


class GroupCommits:
    """Requests for flush rounds. Appends call ``request`` once for each batch; the flush loops
    wait.
    """

    def __init__(self, managers: Iterable[LogManager]) -> None:
        self._requested = {manager: asyncio.Event() for manager in managers}

    def request(self) -> None:
        """Request a round of every directory: a round that finds nothing to flush is cheap."""
        for requested in self._requested.values():
            requested.set()

    def is_requested(self, manager: LogManager) -> bool:
        """True if a round of this directory is requested and has not begun."""
        return self._requested[manager].is_set()

    async def wait(self, manager: LogManager) -> None:
        """Wait until a round is requested, which begins with the return."""
        requested = self._requested[manager]
        await requested.wait()
        requested.clear()
