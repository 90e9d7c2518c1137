import asyncio

import pytest
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.runtime.producer_ids import REFILL_BELOW, ProducerIdBlock, ProducerIds

BLOCK = 1_000


class Blocks:
    """Blocks one behind the other, as the controller cuts them; refuses while ``down``."""

    def __init__(self) -> None:
        self.given = 0
        self.down = False

    async def __call__(self) -> ProducerIdBlock:
        await asyncio.sleep(0)
        if self.down:
            raise TidemarkError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no controller")
        self.given += 1
        return ProducerIdBlock(5_000 + (self.given - 1) * BLOCK, BLOCK)


async def take(ids: ProducerIds, count: int) -> list[int]:
    return [await ids.next() for _ in range(count)]


@pytest.mark.feature("K01")
def test_every_id_is_given_out_once_and_in_order() -> None:
    async def scenario() -> None:
        assert await take(ProducerIds(Blocks()), 2_500) == list(range(5_000, 7_500))

    asyncio.run(scenario())


@pytest.mark.feature("K01")
def test_ids_stay_unique_when_many_ask_at_once() -> None:
    async def scenario() -> None:
        ids = ProducerIds(Blocks())
        taken = await asyncio.gather(*(ids.next() for _ in range(3_000)))
        assert len(set(taken)) == 3_000

    asyncio.run(scenario())


def test_the_next_block_is_there_before_the_first_one_ends() -> None:
    async def scenario() -> None:
        blocks = Blocks()
        ids = ProducerIds(blocks)
        await take(ids, BLOCK - REFILL_BELOW)
        assert (blocks.given, ids.left_count) == (1, REFILL_BELOW)
        await ids.next()
        assert (blocks.given, ids.left_count) == (2, BLOCK + REFILL_BELOW - 1)

    asyncio.run(scenario())


def test_without_a_controller_the_stock_is_used_up_and_then_it_is_an_error() -> None:
    async def scenario() -> None:
        blocks = Blocks()
        ids = ProducerIds(blocks)
        await ids.next()
        blocks.down = True
        await take(ids, BLOCK - 1)
        with pytest.raises(TidemarkError) as refused:
            await ids.next()
        assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        blocks.down = False
        assert await ids.next() == 6_000

    asyncio.run(scenario())


def test_an_id_that_was_not_used_is_handed_out_again() -> None:
    async def scenario() -> None:
        ids = ProducerIds(Blocks())
        unused = await ids.next()
        ids.give_back(unused)
        assert await take(ids, 2) == [unused, 5_001]

    asyncio.run(scenario())


def test_what_was_given_back_counts_as_stock() -> None:
    async def scenario() -> None:
        ids = ProducerIds(Blocks())
        unused = await ids.next()
        before = ids.left_count
        ids.give_back(unused)
        assert ids.left_count == before + 1

    asyncio.run(scenario())
