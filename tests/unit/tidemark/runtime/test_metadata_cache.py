import asyncio
from collections.abc import Callable, Iterator

import pytest
from tidemark.model.metadata import START_OF_FEED
from tidemark.model.metadata_change import Kind, MetadataChange
from tidemark.runtime import metadata_cache
from tidemark.runtime.metadata_cache import MetadataCache
from unit.tidemark.runtime.memory_brokers import image_of as image
from virtual_time import run_virtual


def test_who_waits_hears_the_first_newer_image() -> None:
    async def scenario() -> None:
        metadata = MetadataCache(image(1, [], leader=-1))
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(metadata.wait_newer(metadata.image.position))
            await asyncio.sleep(0)
            metadata.take(image(2, [], leader=-1), None)
        assert waiting.result().position.version == 2

    asyncio.run(scenario())


def test_a_newer_image_is_not_waited_for() -> None:
    async def scenario() -> None:
        metadata = MetadataCache(image(1, [], leader=-1))
        assert await metadata.wait_newer(START_OF_FEED) is metadata.image

    asyncio.run(scenario())


def test_a_watcher_hears_every_image_while_it_watches() -> None:
    metadata, heard = MetadataCache(image(1, [], leader=-1)), []
    with metadata.watched(lambda new: heard.append(new.position.version)):
        metadata.take(image(2, [], leader=-1))
        metadata.take(image(3, [], leader=-1))
    metadata.take(image(4, [], leader=-1))
    assert heard == [2, 3]


def test_the_wait_may_be_bounded() -> None:
    async def scenario() -> None:
        metadata = MetadataCache(image(1, [], leader=-1))
        assert await metadata.wait_newer_or(metadata.image.position, 0.001) is metadata.image

    asyncio.run(scenario())


def test_beyond_the_bound_of_waiters_the_loop_still_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_cache, "WAITERS_MAX", 0)

    async def scenario() -> None:
        metadata, new = MetadataCache(), image(1, [], leader=-1)
        assert not await metadata.wait_for(new.position, 60)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(metadata.wait_for(new.position, 60))
            await asyncio.sleep(0)
            metadata.take(new)
        assert waiting.result()

    run_virtual(scenario())


# -- subscribers


def subscribed(metadata: MetadataCache, **kinds: Kind) -> list[str]:
    """Subscribe under these names, and note who is called while which image is shown."""
    called: list[str] = []
    for name, kind in kinds.items():

        def on_change(change: MetadataChange, name: str = name) -> None:
            shown = "new" if metadata.image is change.image else "old"
            called.append(f"{name} {shown}")

        metadata.subscribe(name, kind, on_change)
    return called


def test_subscribers_are_called_in_the_declared_order_around_the_new_image() -> None:
    metadata = MetadataCache(first=("hosts",), then=("wakes", "listens"))
    called = subscribed(
        metadata, listens=Kind.FIRST, wakes=Kind.POSITION, hosts=Kind.TOPICS_CREATED
    )
    metadata.take(image(1, [], leader=-1))
    metadata.take(image(2, [], leader=-1))
    assert called == ["hosts old", "wakes new", "listens new", "wakes new"]


def test_a_declared_subscriber_that_is_forgotten_is_noticed() -> None:
    metadata = MetadataCache(then=("groups", "live"))
    subscribed(metadata, live=Kind.BROKERS)
    with pytest.raises(AssertionError, match="groups"):
        metadata.subscribers(Kind.BROKERS)


def steps_of(done: list[int]) -> Callable[[MetadataChange], Iterator[None]]:
    def on_change(_: MetadataChange) -> Iterator[None]:
        for step in range(3):
            done.append(step)
            yield

    return on_change


def test_the_loop_runs_between_steps_and_the_image_is_not_reached_before_the_last() -> None:
    async def scenario() -> None:
        done: list[int] = []
        metadata = MetadataCache(then=("slow",))
        metadata.subscribe("slow", Kind.POSITION, steps_of(done))
        new = image(1, [], leader=-1)
        async with asyncio.TaskGroup() as tasks:
            taking = tasks.create_task(metadata.take_in_steps(new))
            await asyncio.sleep(0)
            assert (done, taking.done()) == ([0], False)
            assert not await metadata.wait_for(new.position, 0)
        assert done == [0, 1, 2]
        assert await metadata.wait_for(new.position, 0)

    asyncio.run(scenario())


def test_an_image_that_was_begun_is_taken_whole_though_its_task_is_cancelled() -> None:
    async def scenario() -> None:
        done: list[int] = []
        metadata = MetadataCache(first=("slow",))
        metadata.subscribe("slow", Kind.POSITION, steps_of(done))
        new = image(1, [], leader=-1)
        taking = asyncio.get_running_loop().create_task(metadata.take_in_steps(new))
        await asyncio.sleep(0)
        taking.cancel()
        await asyncio.wait((taking,))
        assert (done, metadata.image, taking.cancelled()) == ([0, 1, 2], new, True)

    asyncio.run(scenario())
