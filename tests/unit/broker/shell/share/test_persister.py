import asyncio
from typing import Any, cast

from broker.shell.share.persister import Persister
from tidemark.runtime.clock import Clock
from waiting import PATIENCE_S, patience


class SlowState:
    """State whose writes never end by themselves, and take a moment to be cancelled."""

    def __init__(self) -> None:
        self.began, self.ending, self.may_end = (asyncio.Event() for _ in range(3))

    async def write(self, *_: object) -> None:
        self.began.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.ending.set()
            await self.may_end.wait()


def test_no_call_begins_while_the_calls_of_a_stopped_persister_end() -> None:
    async def main() -> None:
        state = SlowState()
        persister = Persister(
            cast("Any", state),
            cast("Any", None),
            Clock(),
            timeout_s=PATIENCE_S,
            on_changed=lambda _: None,
            on_written=lambda _: None,
            on_failed=lambda _: None,
        )
        async with patience(), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(persister.run())
            await asyncio.sleep(0)
            persister.write("group", [])
            await state.began.wait()
            running.cancel()
            await state.ending.wait()
            was_running = persister.is_running
            state.may_end.set()
        assert not was_running

    asyncio.run(main())
