"""The watchdog against a loop that stands still until it has been noticed."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable

import pytest
from tidemark.machine.stall_rule import StallBegan, StallEnded
from tidemark.runtime.metrics import Metrics
from tidemark.runtime.watchdog import Watchdog

NEVER_S = 60


class Stage:
    """A loop, its watchdog, and a callback of the loop that does not end before it is noticed."""

    def __init__(self) -> None:
        self.metrics = Metrics("broker")
        self.noticed = threading.Event()
        self.ended = threading.Event()

    def changed(self, found: StallBegan | StallEnded) -> None:
        (self.noticed if isinstance(found, StallBegan) else self.ended).set()

    @property
    def stalls(self) -> float | None:
        return self.metrics.registry.get_sample_value("tidemark_event_loop_stalls_total")

    def play(self, scene: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            async with Watchdog(self.metrics, limit_ms=200, on_change=self.changed):
                await scene()

        asyncio.run(main())

    async def stand_still(self) -> None:
        """Hold the loop."""
        self.hold_the_loop()

    def hold_the_loop(self) -> None:
        assert self.noticed.wait(NEVER_S), "nobody noticed"
        self.noticed.clear()


def test_a_loop_that_stands_still_is_logged_with_its_stack_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    with caplog.at_level(logging.WARNING):
        stage.play(stage.stand_still)
    assert stage.stalls == 1
    assert "hold_the_loop" in caplog.text


def test_each_stall_is_told_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()

    async def twice() -> None:
        for _ in range(2):
            stage.hold_the_loop()
            assert await asyncio.to_thread(stage.ended.wait, NEVER_S)
            stage.ended.clear()

    with caplog.at_level(logging.WARNING):
        stage.play(twice)
    assert stage.stalls == 2
    assert caplog.text.count("turns again") == 2


def test_nobody_is_blamed_while_the_loop_turns(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()

    async def turn() -> None:
        await asyncio.sleep(0)

    stage.play(turn)
    assert stage.stalls == 0
    assert not caplog.records
    assert not any(thread.name == "watchdog" for thread in threading.enumerate())
