"""Parts of a broker that leads one partition of a topic ``orders`` in a temporary directory."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from pathlib import Path

import pytest
from broker.config import BrokerConfig
from broker.core.login_gate import LoginGate
from broker.listener_address import Listener
from broker.shell.listener.listener import KafkaListener
from broker.shell.listener.login_turns import LoginTurns
from broker.shell.listener.request_router import RequestRouter
from broker.shell.listener.sasl_router import SaslRouter
from broker.storage.log_manager import LogManager
from tidemark.model.ids import BrokerId, ControllerEpoch, LeaderEpoch, PartitionEpoch, TopicId
from tidemark.model.metadata import ClusterImage, FeedPosition, PartitionImage, TopicImage
from tidemark.runtime.clock import Clock
from tidemark.runtime.os_disk import OsDisk
from tidemark.runtime.tls import ServerTls
from unit.broker.shell.broker_parts import BrokerParts, absent
from unit.broker.shell.broker_worlds import hosting_of

LOGINS_BURST, LOGINS_RATE_S = 20, 2.0
MakeNode = Callable[[Mapping[str, str]], BrokerParts]


def make_listener(
    parts: BrokerParts,
    router: RequestRouter | SaslRouter,
    where: Listener | None = None,
    threads: Executor | None = None,
    tls: ServerTls | None = None,
) -> KafkaListener:
    """A listener of ``parts``, as the broker makes it."""
    return KafkaListener(
        where or Listener("CLIENT", "127.0.0.1", 0),
        router,
        threads or absent(Executor),
        config=parts.facts.config,
        limits=parts.limits,
        counters=parts.counters,
        parked=parts.partitions.parked.requests,
        on_unreadable=parts.partitions.disks.read_failed,
        on_gone=parts.shares.partitions.connection_lost,
        quotas=parts.facts.quotas,
        turns=LoginTurns(LoginGate(burst=LOGINS_BURST, rate_s=LOGINS_RATE_S), parts.facts.clock),
        tls=tls,
    )


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[MakeNode]:
    """Makes the parts; the topic's configuration is the test's."""
    clock = Clock()
    manager = LogManager.open(
        OsDisk(tmp_path),
        cluster_id="c",
        broker_id=1,
        directory_id="d",
        boot_id="",
        now_ms=clock.wall_ms(),
    )

    def make(configs: Mapping[str, str]) -> BrokerParts:
        parts = BrokerParts(
            BrokerConfig(broker_id=1, log_dirs=(str(tmp_path),)),
            (manager,),
            clock=clock,
        )
        one = BrokerId(1)
        partition = PartitionImage(0, (one,), (one,), one, LeaderEpoch(3), PartitionEpoch(0))
        topic = TopicImage("orders", TopicId(bytes(range(16))), configs, (partition,))
        image = ClusterImage(
            position=FeedPosition(ControllerEpoch(1), 1),
            topics={topic.name: topic},
            topics_by_id={topic.topic_id: topic},
        )
        hosting_of(parts)
        parts.metadata.take(image)
        return parts

    yield make
    manager.close()
