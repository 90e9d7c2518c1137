"""A controller that disagrees with its cluster about lease.ms, on a simulated ZooKeeper."""

import asyncio
from collections.abc import Iterator

import pytest
from controller.config import ControllerConfig
from controller.shell.node import ControllerNode
from sim.loop import SimLoop
from sim.test_zookeeper import World
from sim.zk_adapter import SimZkSession
from tidemark.runtime import zk_paths
from tidemark.runtime.clock import Clock
from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.service import ServiceError


class Cluster:
    """One ZooKeeper, for one controller after the other."""

    def __init__(self) -> None:
        self.world = World()
        self.loop = SimLoop(self.world.queue)  # type: ignore[abstract]  # I/O is left out on purpose

    def live(self, lease_ms: int, before: int = 0) -> BaseException | None:
        """A controller's whole life, stopped in order; why it ended by itself."""
        session = self.world.zookeeper.connect("c")
        config = ControllerConfig(controller_id=1, lease_ms=lease_ms, lease_ms_before=before)
        node = ControllerNode(config, SimZkSession(session), Clock())
        node.election.grpc_endpoint = "c:1"
        stop = asyncio.Event()
        task = self.loop.create_task(node.run(stop))
        self.world.queue.run(1_000)
        self.loop.call_soon(stop.set)
        self.world.queue.run(1_000)
        session.stop()
        self.world.queue.run(1_000)
        assert task.done(), "it does not end"
        return task.exception()

    @property
    def stored(self) -> dict[str, int]:
        data = self.world.zookeeper.tree.znodes[zk_paths.CONSTANTS].data
        found = zk_paths.decode(zk_paths.CONSTANTS, data)
        return {name: value for name, value in found.items() if name.startswith("lease")}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    assert made.live(3_000) is None
    yield made
    made.loop.shut()


def reason(failure: BaseException | None) -> ServiceError:
    """The one cause, out of the groups that tasks put it in."""
    while isinstance(failure, BaseExceptionGroup):
        (failure,) = failure.exceptions
    assert isinstance(failure, ServiceError)
    return failure


def test_the_first_controller_writes_the_lease(cluster: Cluster) -> None:
    assert cluster.stored == {"lease_ms": 3_000}
    assert cluster.live(3_000) is None


@pytest.mark.feature("Y03")
def test_a_controller_with_another_lease_ends_at_its_start(cluster: Cluster) -> None:
    failure = reason(cluster.live(5_000))
    assert failure.exit_code is ExitCode.CONFIG
    assert "lease.ms=5000" in str(failure)
    assert "lease.ms=3000" in str(failure)
    assert cluster.stored == {"lease_ms": 3_000}


def test_the_lease_is_changed_in_two_steps(cluster: Cluster) -> None:
    assert cluster.live(5_000, before=3_000) is None
    assert cluster.stored == {"lease_ms": 5_000, "lease_ms_before": 3_000}
    assert cluster.live(3_000) is None, "one that was not restarted yet"
    assert cluster.live(5_000) is None
    assert cluster.stored == {"lease_ms": 5_000}
    assert reason(cluster.live(3_000)).exit_code is ExitCode.CONFIG
