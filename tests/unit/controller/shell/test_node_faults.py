"""Two controllers on a simulated ZooKeeper, and an error of their own code in one of them."""

import asyncio
import logging
from collections.abc import Iterator

import pytest
from controller.config import ControllerConfig
from controller.core import term
from controller.core.cluster import Cluster
from controller.core.effects import ConfigResult, Reply
from controller.core.inputs import AlterConfigs, ConfigChange, ConfigOperation, ConfigResource
from controller.shell.metadata_feed import MetadataFeed
from controller.shell.node import ControllerNode
from controller.shell.zk_store import ZkStore
from sim.loop import SimLoop
from sim.test_zookeeper import World
from sim.zk_adapter import SimZkSession
from tidemark.model.errors import ErrorCode
from tidemark.runtime.clock import Clock

BROKER = 4
MINIMUM = ConfigChange("min.insync.replicas", ConfigOperation.SET, "2")
DEFAULTS = (ConfigResource(BROKER, "", (MINIMUM,)),)


class Controllers:
    """Two of them; the first one is active."""

    def __init__(self) -> None:
        self.world = World()
        self.loop = SimLoop(self.world.queue)  # type: ignore[abstract]  # I/O is left out on purpose
        self._stop = asyncio.Event()
        self.nodes = [self._start(number) for number in (1, 2)]
        self.lives = [self.loop.create_task(one.run(self._stop)) for one in self.nodes]
        self.pass_ms(2_000)

    def _start(self, number: int) -> ControllerNode:
        config = ControllerConfig(controller_id=number)
        session = SimZkSession(self.world.zookeeper.connect(f"c{number}"))
        node = ControllerNode(config, session, Clock())
        node.election.grpc_endpoint = f"c{number}:1"
        return node

    def pass_ms(self, length_ms: int) -> None:
        self.world.queue.run(length_ms)
        assert not any(life.done() for life in self.lives), "a process has ended"

    @property
    def active(self) -> ControllerNode:
        (active,) = (one for one in self.nodes if one.is_active)
        return active

    def ask(self) -> ErrorCode:
        """Change the defaults of all brokers; return the outcome."""
        asked = self.active.ask(lambda header: AlterConfigs(header, DEFAULTS), 60_000)
        task: asyncio.Task[Reply] = self.loop.create_task(asked)
        self.pass_ms(1_000)
        reply = task.result()
        assert reply.error or reply.result == (ConfigResult(BROKER, ""),)
        return reply.error

    def configured(self) -> bool:
        """True if the active controller has the change."""
        image = self.active.image
        return image is not None and "" in image.broker_configs


@pytest.fixture
def controllers() -> Iterator[Controllers]:
    made = Controllers()
    yield made
    made._stop.set()
    made.world.queue.run(10_000)
    made.loop.shut()


def fail(*_: object, **__: object) -> None:
    raise KeyError("a bug")


def test_a_poisonous_request_is_refused_again_and_again_by_the_same_controller(
    controllers: Controllers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = controllers.active
    monkeypatch.setattr(term, "decide_configs", fail)
    with caplog.at_level(logging.ERROR):
        assert [controllers.ask() for _ in range(3)] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 3
    assert controllers.active is first
    assert first.stats.faults.value == 3
    stacks = [one.exc_info for one in caplog.records if one.message == "internal error"]
    assert [stack is not None and stack[0] for stack in stacks] == [KeyError] * 3
    monkeypatch.undo()
    assert controllers.ask() is ErrorCode.NONE


@pytest.mark.parametrize(
    ("owner", "name"),
    [(Cluster, "apply"), (MetadataFeed, "publish"), (ZkStore, "write")],
)
def test_a_change_that_fails_half_way_is_answered_and_another_controller_takes_over(
    controllers: Controllers, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    first = controllers.active
    with monkeypatch.context() as broken:
        broken.setattr(owner, name, fail)
        assert controllers.ask() is ErrorCode.UNKNOWN_SERVER_ERROR
    assert first.stats.faults.value == 1
    assert not first.feed.is_open
    controllers.pass_ms(1_000)
    assert controllers.active is not first
    assert controllers.configured() == (name != "write")
    assert controllers.ask() is ErrorCode.NONE


def test_a_timer_that_fails_ends_the_term_and_no_process(
    controllers: Controllers, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = controllers.active
    with monkeypatch.context() as broken:
        broken.setattr(term.ActiveTerm, "next_deadline", fail)
        controllers.ask()
    assert first.stats.faults.value == 1
    controllers.pass_ms(5_000)
    assert controllers.ask() is ErrorCode.NONE
