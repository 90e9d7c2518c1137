import asyncio

from broker.shell.rpc.byte_budget import ByteBudget


async def hold_until(budget: ByteBudget, size: int, release: asyncio.Event, log: list[int]) -> None:
    async with budget.hold(size):
        log.append(size)
        await release.wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_beyond_the_budget_one_waits_until_bytes_are_given_back() -> None:
    async def scenario() -> None:
        budget, release = ByteBudget(100), asyncio.Event()
        log: list[int] = []
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(hold_until(budget, 60, release, log))
            tasks.create_task(hold_until(budget, 50, release, log))
            await settle()
            assert (log, budget.in_flight_bytes, budget.waiting_count) == ([60], 60, 1)
            release.set()
        assert (log, budget.in_flight_bytes) == ([60, 50], 0)

    asyncio.run(scenario())


def test_small_ones_do_not_overtake_a_large_one() -> None:
    async def scenario() -> None:
        budget, release = ByteBudget(100), asyncio.Event()
        log: list[int] = []
        async with asyncio.TaskGroup() as tasks:
            for size in (60, 90, 10):
                tasks.create_task(hold_until(budget, size, release, log))
            await settle()
            assert log == [60]
            release.set()
        assert log == [60, 90, 10]

    asyncio.run(scenario())


def test_what_is_larger_than_the_budget_is_served_alone() -> None:
    async def scenario() -> None:
        budget = ByteBudget(100)
        async with budget.hold(1_000):
            assert budget.in_flight_bytes == 100
        assert budget.in_flight_bytes == 0

    asyncio.run(scenario())


def test_who_stops_waiting_lets_the_next_one_in() -> None:
    async def scenario() -> None:
        budget, release = ByteBudget(100), asyncio.Event()
        log: list[int] = []
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(hold_until(budget, 60, release, log))
            large = tasks.create_task(hold_until(budget, 90, release, log))
            tasks.create_task(hold_until(budget, 40, release, log))
            await settle()
            large.cancel()
            await settle()
            assert log == [60, 40]
            release.set()

    asyncio.run(scenario())


def test_cancelled_in_the_round_in_which_it_was_granted_gives_the_bytes_back() -> None:
    async def scenario() -> None:
        budget, release = ByteBudget(100), asyncio.Event()
        log: list[int] = []
        release.set()
        async with asyncio.TaskGroup() as tasks:
            async with budget.hold(100):
                waiting = tasks.create_task(hold_until(budget, 10, release, log))
                await settle()
            waiting.cancel()  # its turn has come, but it has not run
        assert (log, budget.in_flight_bytes) == ([], 0)

    asyncio.run(scenario())
