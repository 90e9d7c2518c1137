"""A broker's node that leads one partition of a topic ``orders`` in a temporary directory."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import TypeVar, cast

import pytest
from broker.config import BrokerConfig, Listener
from broker.shell.listener import KafkaListener
from broker.shell.node import BrokerNode
from broker.shell.request_router import RequestRouter
from broker.storage.log_manager import LogManager
from tidemark.model.ids import BrokerId, ControllerEpoch, LeaderEpoch, PartitionEpoch, TopicId
from tidemark.model.metadata import ClusterImage, FeedPosition, PartitionImage, TopicImage
from tidemark.runtime.clock import Clock
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.os_disk import OsDisk
from tidemark.runtime.producer_ids import ProducerIdBlock, ProducerIds
from tidemark.runtime.tls import ServerTls
from tidemark.runtime.worker_pool import WorkerPool
from unit.broker.shell.node_worlds import hosting_of

MakeNode = Callable[[Mapping[str, str]], BrokerNode]
Kind = TypeVar("Kind")


def absent(kind: type[Kind]) -> Kind:
    """Where a node wants something that the tests never reach: None, so that a use of it fails."""
    return cast("Kind", None)


async def no_producer_ids() -> ProducerIdBlock:
    raise AssertionError("nobody asks for producer ids here")


def make_listener(
    node: BrokerNode,
    router: RequestRouter,
    where: Listener | None = None,
    threads: Executor | None = None,
    tls: ServerTls | None = None,
) -> KafkaListener:
    """A listener of ``node``, as the broker makes it."""
    return KafkaListener(
        where or Listener("CLIENT", "127.0.0.1", 0),
        router,
        threads or absent(Executor),
        config=node.config,
        limits=node.limits,
        counters=node.counters,
        parked=node.parked,
        on_unreadable=node.disks.read_failed,
        tls=tls,
    )


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[MakeNode]:
    """Makes the node; the topic's configuration is the test's."""
    clock = Clock()
    manager = LogManager.open(
        OsDisk(tmp_path),
        cluster_id="c",
        broker_id=1,
        directory_id="d",
        boot_id="",
        now_ms=clock.wall_ms(),
    )

    def make(configs: Mapping[str, str]) -> BrokerNode:
        node = BrokerNode(
            BrokerConfig(broker_id=1, log_dirs=(str(tmp_path),)),
            (manager,),
            clock=clock,
            controller=absent(ControllerClient),
            producer_ids=ProducerIds(no_producer_ids),
            workers=absent(WorkerPool),
            draw_session_id=lambda: 1,
        )
        one = BrokerId(1)
        partition = PartitionImage(0, (one,), (one,), one, LeaderEpoch(3), PartitionEpoch(0))
        topic = TopicImage("orders", TopicId(bytes(range(16))), configs, (partition,))
        image = ClusterImage(
            position=FeedPosition(ControllerEpoch(1), 1),
            topics={topic.name: topic},
            topics_by_id={topic.topic_id: topic},
        )
        hosting_of(node)
        node.metadata.take(image)
        return node

    yield make
    manager.close()
