import asyncio
from dataclasses import replace

import pytest
from tidemark.model.metadata import START_OF_FEED
from tidemark.model.topics import TopicPartition
from tidemark.runtime.image_board import ImageBoard, find_leader, find_partition
from unit.tidemark.runtime.memory_brokers import STATE, STATE_ID, MemoryBroker, MemoryPartition
from unit.tidemark.runtime.memory_brokers import image_of as image


def broker(endpoint: str = "h:1") -> MemoryBroker:
    made = MemoryBroker(1, MemoryPartition())
    made.endpoint = endpoint
    return made


def test_who_waits_hears_the_first_newer_image() -> None:
    async def scenario() -> None:
        board = ImageBoard(image(1, [], leader=-1))
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(board.wait_newer(board.image.position))
            await asyncio.sleep(0)
            board.take(image(2, [], leader=-1), None)
        assert waiting.result().position.version == 2

    asyncio.run(scenario())


def test_a_newer_image_is_not_waited_for() -> None:
    async def scenario() -> None:
        board = ImageBoard(image(1, [], leader=-1))
        assert await board.wait_newer(START_OF_FEED) is board.image

    asyncio.run(scenario())


def test_a_watcher_hears_every_image_while_it_watches() -> None:
    board, heard = ImageBoard(image(1, [], leader=-1)), []
    with board.watched(lambda new: heard.append(new.position.version)):
        board.take(image(2, [], leader=-1))
        board.take(image(3, [], leader=-1))
    board.take(image(4, [], leader=-1))
    assert heard == [2, 3]


def test_the_wait_may_be_bounded() -> None:
    async def scenario() -> None:
        board = ImageBoard(image(1, [], leader=-1))
        assert await board.wait_newer_or(board.image.position, 0.001) is board.image

    asyncio.run(scenario())


def test_a_leader_is_found_with_its_endpoint_and_epoch() -> None:
    leader = find_leader(image(1, [broker()], leader=1, leader_epoch=4), STATE)
    assert leader == (1, "h:1", STATE_ID, 4)


@pytest.mark.parametrize("at", [TopicPartition("other", 0), TopicPartition(STATE.topic, 1)])
def test_an_unknown_partition_is_none(at: TopicPartition) -> None:
    known = image(1, [broker()], leader=1)
    assert (find_partition(known, at), find_leader(known, at)) == (None, None)


def test_a_leader_that_cannot_be_called_is_none() -> None:
    assert find_leader(image(1, [broker()], leader=-1), STATE) is None
    assert find_leader(image(1, [broker(endpoint="")], leader=1), STATE) is None
    assert find_leader(replace(image(1, [broker()], leader=1), brokers={}), STATE) is None
