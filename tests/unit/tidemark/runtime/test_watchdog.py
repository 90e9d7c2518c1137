"""The watchdog against a loop that stands still until it has been noticed."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable

import pytest
from tidemark.runtime.metrics import Metrics
from tidemark.runtime.watchdog import Watchdog
from waiting import until, wait_for


class Stage:
    """A loop, its watchdog, and a callback of the loop that does not end before it is noticed."""

    def __init__(self) -> None:
        self.metrics = Metrics("broker")

    @property
    def stalls(self) -> float:
        return self.metrics.registry.get_sample_value("tidemark_event_loop_stalls_total") or 0

    def play(self, scene: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            async with Watchdog(self.metrics, limit_ms=200):
                await scene()

        asyncio.run(main())

    def hold_the_loop(self) -> None:
        noticed = self.stalls + 1
        wait_for(lambda: self.stalls == noticed, "the stall is noticed")


def test_a_loop_that_stands_still_is_logged_with_its_stack_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()

    async def stand_still() -> None:
        stage.hold_the_loop()
        await until(lambda: "event loop resumed" in caplog.text)

    with caplog.at_level(logging.WARNING):
        stage.play(stand_still)
    assert caplog.text.count("event loop stalled") == stage.stalls
    assert "hold_the_loop" in caplog.text


def test_each_stall_is_told_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()

    async def twice() -> None:
        for _ in range(2):
            stage.hold_the_loop()
            await until(lambda: caplog.text.count("event loop resumed") == stage.stalls)

    with caplog.at_level(logging.WARNING):
        stage.play(twice)
    assert stage.stalls >= 2


def test_its_thread_ends_with_the_block() -> None:
    def watchdogs() -> list[str]:
        return [one.name for one in threading.enumerate() if one.name == "watchdog"]

    async def scene() -> None:
        assert watchdogs() == ["watchdog"]

    Stage().play(scene)
    assert watchdogs() == []
