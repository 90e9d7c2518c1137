"""DirectorySpaces: size and free space of the devices of log directories."""

import asyncio
import os
from collections.abc import Callable
from typing import Final, NamedTuple


class Space(NamedTuple):
    """Bytes of a device, and those that may still be written."""

    total_bytes: int
    usable_bytes: int


UNKNOWN: Final = Space(-1, -1)


def measure(path: str) -> Space:
    """Return the space of the device of a directory. Blocks for as long as the device hangs."""
    try:
        found = os.statvfs(path)
    except OSError:  # the directory is gone: the next write fails
        return UNKNOWN
    return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


class DirectorySpaces:
    """Measures in threads: a device that hangs holds up the requests about it, and nothing else.

    Requests about the same directory share a measurement, so that a device that hangs keeps one
    thread and not one for each request.
    """

    def __init__(self, measure: Callable[[str], Space] = measure) -> None:
        self._measure = measure
        self._under_way: dict[str, asyncio.Future[Space]] = {}

    async def of(self, path: str) -> Space:
        """Return the space of the device of a directory."""
        measured = self._under_way.get(path)
        if measured is None:
            loop = asyncio.get_running_loop()
            measured = loop.run_in_executor(None, self._measure, path)
            self._under_way[path] = measured
            measured.add_done_callback(lambda _: self._under_way.pop(path))
        return await asyncio.shield(measured)  # others may wait for it
