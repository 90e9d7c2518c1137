import asyncio

from broker.shell.listener.muting import Mute
from virtual_time import run_virtual


def test_of_several_throttle_times_the_last_end_counts_once() -> None:
    ends: list[float] = []

    async def scenario() -> float:
        loop, mute, later = asyncio.get_running_loop(), Mute(), asyncio.Event()
        begun_s = loop.time()
        for throttle_ms in (300, 1_000, 200):
            mute.extend(throttle_ms, loop, lambda: ends.append(loop.time()))
        loop.call_later(5, later.set)
        await later.wait()
        return begun_s

    assert ends == [run_virtual(scenario()) + 1.0]


def test_a_mute_that_is_over_can_begin_again_and_a_cancelled_one_never_ends() -> None:
    ends: list[float] = []

    async def scenario() -> None:
        loop, mute = asyncio.get_running_loop(), Mute()
        for cancels in (False, False, True):
            later = asyncio.Event()
            mute.extend(100, loop, lambda: ends.append(loop.time()))
            if cancels:
                mute.cancel()
            loop.call_later(1, later.set)
            await later.wait()

    run_virtual(scenario())
    assert len(ends) == 2
