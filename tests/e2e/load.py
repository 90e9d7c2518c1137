"""Load while something is changed: one step again and again, and its first failure."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from waiting import wait_for

STEPS = 5


class Load:
    """A step that a thread repeats."""

    def __init__(self, step: Callable[[], object]) -> None:
        self._step = step
        self._stop = threading.Event()
        self.done = 0
        self.failure: Exception | None = None

    def run(self) -> None:
        """Repeat the step until it fails or is stopped."""
        while not self._stop.is_set():
            try:
                self._step()
            except Exception as problem:  # noqa: BLE001 - of the step; goes_on raises it
                self.failure = problem
                return
            self.done += 1

    def stop(self) -> None:
        self._stop.set()

    def goes_on(self) -> None:
        """Wait for some more steps. Raises what a step raised."""
        seen = self.done
        wait_for(lambda: self.done >= seen + STEPS or self.failure, "more steps of the load")
        if self.failure is not None:
            raise self.failure


@contextmanager
def under_load(step: Callable[[], object]) -> Iterator[Load]:
    """Repeat a step in a thread until the end of the block, before and after which it works."""
    load = Load(step)
    thread = threading.Thread(target=load.run)
    thread.start()
    try:
        load.goes_on()
        yield load
        load.goes_on()
    finally:
        load.stop()
        thread.join()
