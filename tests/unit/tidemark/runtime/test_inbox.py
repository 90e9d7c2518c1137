import asyncio

import pytest
from tidemark.runtime.inbox import Inbox


def test_inputs_come_out_in_order() -> None:
    inbox: Inbox[int] = Inbox(inputs_max=3)
    assert [inbox.put_nowait(number) for number in (1, 2, 3)] == [True, True, True]
    assert inbox.drain_nowait() == [1, 2, 3]


def test_a_full_inbox_refuses_and_keeps_what_it_has() -> None:
    inbox: Inbox[int] = Inbox(inputs_max=1)
    inbox.put_nowait(1)
    assert inbox.full
    assert not inbox.put_nowait(2)
    assert inbox.drain_nowait() == [1]


async def _take_while_another_puts(inbox: Inbox[str]) -> str:
    async with asyncio.TaskGroup() as tasks:
        taken = tasks.create_task(inbox.get())
        await asyncio.sleep(0)
        inbox.put_nowait("a")
    return taken.result()


def test_get_waits_for_an_input() -> None:
    assert asyncio.run(_take_while_another_puts(Inbox(inputs_max=1))) == "a"


async def _cancel_a_get_that_was_woken(inbox: Inbox[str]) -> None:
    async with asyncio.TaskGroup() as tasks:
        taken = tasks.create_task(inbox.get())
        await asyncio.sleep(0)
        inbox.put_nowait("a")
        taken.cancel()


def test_cancelling_a_get_loses_no_input() -> None:
    inbox: Inbox[str] = Inbox(inputs_max=1)
    asyncio.run(_cancel_a_get_that_was_woken(inbox))
    assert len(inbox) == 1


async def _two_gets(inbox: Inbox[str]) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(inbox.get())
        tasks.create_task(inbox.get())


def test_a_second_consumer_is_a_bug() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(_two_gets(Inbox(inputs_max=1)))
    assert caught.group_contains(AssertionError)
