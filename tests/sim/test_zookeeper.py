import heapq
from collections.abc import Callable
from itertools import count

import pytest
from tidemark.runtime.zk_session import (
    BadVersionError,
    Check,
    Create,
    NodeExistsError,
    SessionState,
    SetData,
    UnknownOutcomeError,
)

from sim.dice import Dice
from sim.zk_requests import Answer, Children, Exists, Get, Multi, Request
from sim.zookeeper import SimSession, SimZooKeeper


class Queue:
    def __init__(self) -> None:
        self.now = 0
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = count()

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._waiting, (self.now + delay_ms, next(self._serial), action))

    def run(self, length_ms: int) -> None:
        end = self.now + length_ms
        while self._waiting and self._waiting[0][0] <= end:
            self.now, _, action = heapq.heappop(self._waiting)
            action()
        self.now = end


class World:
    def __init__(self, seed: int = 1) -> None:
        self.queue = Queue()
        self.cut: set[str] = set()
        self.zookeeper = SimZooKeeper(self.queue, Dice(seed), link=self._link)
        self.one, self.two = self.zookeeper.connect("one"), self.zookeeper.connect("two")
        self.queue.run(500)

    def _link(self, source: str, target: str) -> int | None:
        return None if source in self.cut or target in self.cut else 1

    def ask(self, session: SimSession, request: Request) -> Answer:
        heard: list[Answer] = []
        session.submit(request, heard.append)
        self.queue.run(50)
        assert len(heard) == 1
        return heard[0]


def test_a_multi_is_all_or_nothing() -> None:
    world = World()
    assert world.ask(world.one, Create("/a", b"")).error is None
    failed = world.ask(world.one, Multi((Create("/b", b""), Check("/a", 7))))
    assert isinstance(failed.error, BadVersionError)
    assert world.ask(world.two, Exists("/b")).value is None
    assert isinstance(world.ask(world.one, Create("/a", b"")).error, NodeExistsError)


def test_a_watch_fires_once() -> None:
    world = World()
    heard: list[object] = []
    world.ask(world.one, Create("/a", b""))
    world.ask(world.two, Get("/a", heard.append))
    for content in (b"1", b"2"):
        world.ask(world.one, SetData("/a", content))
    assert heard == [("CHANGED", "/a")]


def test_an_expired_session_takes_its_ephemerals_along_and_the_watches_fire() -> None:
    world = World()
    heard: list[object] = []
    world.ask(world.one, Create("/live", b"", ephemeral=True))
    world.ask(world.two, Children("/", heard.append))
    world.cut.add("one")
    world.queue.run(9_000 - 4_000)
    assert not heard
    world.queue.run(7_000)
    assert heard == [("CHILD", "/")]
    world.cut.clear()
    states: list[SessionState] = []
    world.one.add_listener(states.append)
    world.queue.run(1_000)
    assert states == [SessionState.LOST, SessionState.CONNECTED]


def test_a_quiet_connected_session_lives_on() -> None:
    world = World()
    world.ask(world.one, Create("/live", b"", ephemeral=True))
    world.queue.run(100_000)
    assert world.ask(world.two, Exists("/live")).value is not None


def test_a_write_under_way_when_the_connection_breaks_lands_or_not() -> None:
    outcomes = set()
    for seed in range(12):
        world = World(seed)
        heard: list[Answer] = []
        world.one.submit(Create("/a", b""), heard.append)
        world.one.disconnect()
        assert isinstance(heard[0].error, UnknownOutcomeError)
        outcomes.add(world.ask(world.two, Exists("/a")).value is not None)
    assert outcomes == {False, True}


def test_a_follower_that_lags_answers_what_was() -> None:
    world = World()
    for number in range(3):
        world.zookeeper.lag(number, 10_000)
    server = world.one._connection.server  # type: ignore[union-attr]
    other = next(one for one in world.zookeeper.servers if one is not server)
    world.ask(world.one, Create("/a", b""))
    assert "/a" in server.tree.znodes
    assert "/a" not in other.tree.znodes


@pytest.mark.parametrize("count_down", [2, 3])
def test_without_a_quorum_nothing_is_answered_and_nobody_expires(count_down: int) -> None:
    world = World()
    world.ask(world.one, Create("/live", b"", ephemeral=True))
    for number in range(count_down):
        world.zookeeper.stop_server(number)
    world.queue.run(60_000)
    assert world.one.state is SessionState.SUSPENDED
    for number in range(count_down):
        world.zookeeper.start_server(number)
    world.queue.run(1_000)
    assert world.ask(world.two, Exists("/live")).value is not None
