"""A controller whose store has a znode that it cannot read, on a simulated ZooKeeper."""

from collections.abc import Iterator

import pytest
from controller.shell.znodes import DamagedStoreError
from sim.zk_adapter import SimZkSession
from tidemark.runtime import zk_paths
from unit.controller.shell.test_node_constants import Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    assert made.live(3_000) is None
    yield made
    made.loop.shut()


def write(cluster: Cluster, path: str, data: bytes) -> None:
    session = cluster.world.zookeeper.connect("operator")
    written = cluster.loop.create_task(SimZkSession(session).set(path, data))
    cluster.world.queue.run(1_000)
    assert written.done()
    session.stop()
    cluster.world.queue.run(1_000)


def test_a_controller_ends_until_the_znode_is_mended(cluster: Cluster) -> None:
    znodes = cluster.world.zookeeper.tree.znodes
    sound = znodes[zk_paths.CLUSTER].data
    write(cluster, zk_paths.CLUSTER, zk_paths.encode({}))
    for _ in range(2):
        failure = cluster.live(3_000)
        while isinstance(failure, BaseExceptionGroup):
            (failure,) = failure.exceptions
        assert isinstance(failure, DamagedStoreError)
        assert zk_paths.CLUSTER in str(failure)
        assert zk_paths.CONTROLLER not in znodes, "another may try"
    write(cluster, zk_paths.CLUSTER, sound)
    assert cluster.live(3_000) is None
