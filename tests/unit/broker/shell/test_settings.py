"""Settings that follow the metadata."""

import asyncio

from broker.core.live_settings import LiveSettings
from broker.shell.settings import BrokerSettings
from tidemark.storage.mem_disk import MemDisk
from unit.broker.shell.broker_worlds import World

BACKOFF = "log.cleaner.backoff.ms"
FOREVER_MS = 10**9


def settings_of(world: World) -> BrokerSettings:
    return BrokerSettings(world.parts.facts, world.parts.metadata)


def test_those_who_follow_are_called_at_once_and_after_each_change() -> None:
    world = World(MemDisk())
    seen: list[int] = []
    settings_of(world).follow(lambda now: seen.append(now.log_cleaner_backoff_ms))
    world.change(broker_configs_changed={"": {BACKOFF: "500"}})
    world.change(broker_configs_changed={"": {BACKOFF: "500", "log.roll.ms": "9"}})
    world.change(broker_configs_changed={"1": {BACKOFF: "600"}})
    world.change(broker_configs_changed={"1": {}, "": {}})
    assert seen == [15_000, 500, 600, 15_000]


def test_a_rest_ends_early_when_its_length_is_set_anew() -> None:
    async def story() -> None:
        world = World(MemDisk())
        settings = settings_of(world)
        async with asyncio.TaskGroup() as tasks:
            rest = tasks.create_task(settings.rest(lambda now: now.log_cleaner_backoff_ms))
            world.change(broker_configs_changed={"": {BACKOFF: str(FOREVER_MS)}})
            await asyncio.sleep(0)
            assert not rest.done()
            world.change(broker_configs_changed={"": {BACKOFF: "0"}})

    asyncio.run(story())


def test_a_pause_that_began_earlier_is_over_earlier() -> None:
    async def story() -> None:
        world = World(MemDisk())
        began = world.clock.now_ms()
        world.clock.advance(FOREVER_MS)
        await settings_of(world).rest(lambda _: FOREVER_MS, since=began)

    asyncio.run(story())


def test_an_actor_sees_what_a_reader_sees() -> None:
    world = World(MemDisk())
    settings, seen = settings_of(world), list[LiveSettings]()
    settings.follow(seen.append)
    world.change(broker_configs_changed={"": {"max.connections": "77"}})
    assert seen[-1] is settings.now
    assert settings.now.max_connections == 77
