"""TaskParent: parent of tasks that begin at any time while their owner runs."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class TaskParent:
    """Tasks of one owner, which end with its ``run``.

    None begins once ``run`` is cancelled. The tasks that are there need turns of the loop to end,
    and a callback of such a turn must not get the RuntimeError of a TaskGroup that is closing.
    """

    def __init__(self) -> None:
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def is_running(self) -> bool:
        """True while tasks may begin."""
        return self._tasks is not None

    async def run(self) -> None:
        """Hold the tasks until cancelled, or until one of them fails."""
        async with asyncio.TaskGroup() as self._tasks:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self._tasks = None

    def start(
        self, work: Coroutine[Any, Any, None], name: str | None = None
    ) -> asyncio.Task[None] | None:
        """Start a task. Return None, without the work, if ``run`` does not run."""
        if self._tasks is None:
            work.close()
            return None
        return self._tasks.create_task(work, name=name)
