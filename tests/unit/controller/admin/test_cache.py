"""Answers of nodes with their age: one late node makes one item late."""

import asyncio

from controller.admin.cache import Aged, AgedCache
from controller.admin.errors import try_again
from manual_clock import ManualClock


async def slow() -> str:
    await asyncio.Event().wait()
    raise AssertionError("never")


async def refused() -> str:
    raise try_again("broker 3 is fenced")


def answering(value: str, calls: list[str]):  # type: ignore[no-untyped-def]
    async def fetch() -> str:
        calls.append(value)
        return value

    return fetch


async def in_cache(use, stale_ms: int = 0) -> None:  # type: ignore[no-untyped-def]
    clock = ManualClock()
    async with asyncio.TaskGroup() as tasks:
        cache: AgedCache[str, str] = AgedCache(tasks, clock, fresh_ms=1_000, stale_ms=stale_ms)
        running = tasks.create_task(use(cache, clock))
        await running
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()


def test_an_answer_is_fetched_once_while_it_is_fresh() -> None:
    calls: list[str] = []

    async def use(cache: AgedCache[str, str], clock: ManualClock) -> None:
        assert await cache.get("b1", answering("x", calls), wait_ms=60_000) == Aged("x", 0)
        clock.advance(999)
        assert await cache.get("b1", answering("y", calls), wait_ms=60_000) == Aged("x", 999)
        clock.advance(1)
        assert await cache.get("b1", answering("y", calls), wait_ms=60_000) == Aged("y", 0)

    asyncio.run(in_cache(use))
    assert calls == ["x", "y"]


def test_a_late_node_leaves_the_last_answer_with_its_age_and_the_reason() -> None:
    async def use(cache: AgedCache[str, str], clock: ManualClock) -> None:
        await cache.get("b1", answering("x", []), wait_ms=60_000)
        clock.advance(5_000)
        late = await cache.get("b1", slow, wait_ms=1)
        assert late == Aged("x", 5_000, "no answer within 1 ms")

    asyncio.run(in_cache(use))


def test_a_usable_answer_does_not_wait_for_the_next_one() -> None:
    async def use(cache: AgedCache[str, str], clock: ManualClock) -> None:
        await cache.get("b1", answering("x", []), wait_ms=60_000)
        clock.advance(4_999)
        assert await cache.get("b1", slow, wait_ms=600_000) == Aged("x", 4_999)
        clock.advance(1)
        late = await cache.get("b1", slow, wait_ms=1)
        assert late == Aged("x", 5_000, "no answer within 1 ms")

    asyncio.run(in_cache(use, stale_ms=5_000))


def test_a_node_that_never_answered_has_a_reason_and_no_value() -> None:
    async def use(cache: AgedCache[str, str], clock: ManualClock) -> None:
        assert await cache.get("b1", slow, wait_ms=1) == Aged(None, None, "no answer within 1 ms")
        assert await cache.get("b2", refused, wait_ms=60_000) == Aged(
            None, None, "broker 3 is fenced"
        )

    asyncio.run(in_cache(use))


def test_a_failure_stands_for_a_while_so_that_a_dead_node_is_left_alone() -> None:
    calls: list[str] = []

    async def use(cache: AgedCache[str, str], clock: ManualClock) -> None:
        await cache.get("b1", refused, wait_ms=60_000)
        assert (await cache.get("b1", answering("x", calls), wait_ms=60_000)).value is None
        clock.advance(1_000)
        assert await cache.get("b1", answering("x", calls), wait_ms=60_000) == Aged("x", 0)

    asyncio.run(in_cache(use))


async def broken() -> str:
    raise ValueError("a bug")


def test_a_bug_of_one_answer_does_not_end_the_others() -> None:
    async def use(cache: AgedCache[str, str], clock: ManualClock) -> None:
        found = await cache.get("b1", broken, wait_ms=60_000)
        assert (found.value, found.problem) == (None, "internal error: ValueError")
        assert await cache.get("b2", answering("x", []), wait_ms=60_000) == Aged("x", 0)

    asyncio.run(in_cache(use))


def test_an_answer_that_was_under_way_at_a_change_is_forgotten_too() -> None:
    async def use(cache: AgedCache[str, str], _: ManualClock) -> None:
        asked, may_answer = asyncio.Event(), asyncio.Event()

        async def before_the_change() -> str:
            asked.set()
            await may_answer.wait()
            return "old"

        async with asyncio.TaskGroup() as tasks:
            early = tasks.create_task(cache.get("b1", before_the_change, wait_ms=60_000))
            await asked.wait()
            cache.forget("b1")
            may_answer.set()
        assert early.result() == Aged("old", 0)
        assert await cache.get("b1", answering("new", []), wait_ms=60_000) == Aged("new", 0)

    asyncio.run(in_cache(use))
