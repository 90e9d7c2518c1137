"""One broker with a fixed image: no ZooKeeper, no controller. In a thread of the test, or as a
process of its own.

    with running_broker(path, {"orders": 3}) as broker:
        ...  # any Kafka client at broker.bootstrap

As a process (for kill -9 and benchmarks): ``python -m e2e.broker_harness --log.dirs DIR --topic
orders:3 ...`` prints ``port=NNNN`` once it listens. The "controller" gives producer ids and creates
topics in the image, as fixed as it is.
"""

import asyncio
import hashlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from broker.config import BrokerConfig
from broker.shell.broker_server import BrokerServer
from broker.shell.seams import machine_seams
from broker.shell.start import open_directories
from e2e import passes
from tidemark.model.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    ControllerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidemark.model.metadata import (
    BrokerImage,
    ClusterDelta,
    ClusterImage,
    FeedPosition,
    PartitionImage,
    TopicImage,
)
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.event_loop import new_event_loop
from tidemark.runtime.zk_session import ZkSession
from tidemark_wire.v1 import common_pb2, controller_pb2
from waiting import PATIENCE_S

CLUSTER_ID = "harness-cluster-0000001"
BROKER = BrokerId(1)


def topic_id_of(name: str, generation: int = 0) -> TopicId:
    """A topic id that is the same in every run."""
    return TopicId(hashlib.sha256(f"{name}/{generation}".encode()).digest()[:16])


def topic_image(
    name: str, partitions: int, configs: Mapping[str, str] | None = None, generation: int = 0
) -> TopicImage:
    """A topic whose every partition the one broker leads."""
    return TopicImage(
        name,
        topic_id_of(name, generation),
        dict(configs or {}),
        tuple(
            PartitionImage(number, (BROKER,), (BROKER,), BROKER, LeaderEpoch(0), PartitionEpoch(0))
            for number in range(partitions)
        ),
    )


class FixedController:
    """Answers what a broker asks a controller, from memory: topics into the image, producer ids
    from a counter.
    """

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.on_image: Callable[[ClusterImage, ClusterDelta | None], None] | None = None
        self._producer_id = 1_000

    def show(self, image: ClusterImage, delta: ClusterDelta | None) -> None:
        """Publish an image to the broker, on its loop."""
        self.image = image
        assert self.on_image is not None
        self.on_image(image, delta)

    def publish(self, delta: ClusterDelta) -> common_pb2.FeedPosition:
        """Apply a delta and publish it; answers the feed's position."""
        position = FeedPosition(ControllerEpoch(1), self.image.position.version + 1)
        self.show(self.image.apply(delta, position, ControllerId(1)), delta)
        return common_pb2.FeedPosition(controller_epoch=1, version=position.version)

    async def call(self, method: str, request: Any, timeout_s: float) -> Any:
        """As ControllerClient.call."""
        return getattr(self, f"_{method}")(request)

    async def close(self) -> None:
        """Nothing is held."""

    def _AllocateProducerIds(self, _: Any) -> Any:  # noqa: N802
        first, self._producer_id = self._producer_id, self._producer_id + 1_000
        return controller_pb2.AllocateProducerIdsResponse(first_producer_id=first, count=1_000)

    def _CreateTopics(self, request: Any) -> Any:  # noqa: N802
        made, results = [], []
        for asked in request.topics:
            exists = asked.name in self.image.topics
            count = asked.partition_count if asked.partition_count > 0 else 1
            topic = topic_image(asked.name, count, dict(asked.configs))
            if not exists:
                made.append(topic)
            results.append(
                controller_pb2.TopicResult(
                    name=asked.name,
                    topic_id=topic.topic_id,
                    error_code=36 if exists else 0,
                    partition_count=count,
                    replication_factor=1,
                )
            )
        position = self.publish(ClusterDelta(topics_changed=tuple(made)))
        return controller_pb2.CreateTopicsResponse(position=position, topics=results)

    def _DeleteTopics(self, request: Any) -> Any:  # noqa: N802
        gone = [
            self.image.topics[one.name] for one in request.topics if one.name in self.image.topics
        ]
        position = self.publish(
            ClusterDelta(topics_deleted=tuple(topic.topic_id for topic in gone))
        )
        return controller_pb2.DeleteTopicsResponse(
            position=position,
            topics=[
                controller_pb2.TopicResult(name=one.name, topic_id=one.topic_id) for one in gone
            ],
        )


class RunningBroker:
    """A broker that serves. ``call`` runs something on its loop and waits for it."""

    def __init__(
        self, server: BrokerServer, controller: FixedController, stop: asyncio.Event
    ) -> None:
        self.server = server
        self.controller = controller
        self.port = server.listeners[0].port
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._loop = asyncio.get_running_loop()
        self._stop = stop

    def call(self, function: Callable[[], Any]) -> Any:
        """Run on the broker's loop."""

        async def run() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(PATIENCE_S)

    def publish(self, delta: ClusterDelta) -> None:
        """Change the image."""
        self.call(lambda: self.controller.publish(delta))

    def stop(self) -> None:
        """Begin to stop, as SIGTERM would."""
        self._loop.call_soon_threadsafe(self._stop.set)


def harness_config(directory: Path, **settings: Any) -> BrokerConfig:
    """A broker on a free port, over ``directory``."""
    base: dict[str, Any] = {
        "broker_id": int(BROKER),
        "log_dirs": (str(directory),),
        "listeners": ("CLIENT://127.0.0.1:0",),
        "shutdown_deadline_ms": 4_000,
        "log_scrub_bytes_per_s": 0,
    }
    often = {key.replace(".", "_"): value for key, value in passes.of_service("broker").items()}
    return BrokerConfig(**(base | often | settings))


async def serve(
    config: BrokerConfig,
    topics: tuple[TopicImage, ...],
    stop: asyncio.Event,
    started: Callable[[RunningBroker], None],
) -> None:
    """One broker's life with a fixed image."""
    directories = open_directories(config)
    directories.stamp(CLUSTER_ID)
    controller = FixedController()
    session = ZkSession(config.zookeeper_connect)  # never started: there is no ZooKeeper
    seams = machine_seams(session, cast("ControllerClient", controller))
    server = BrokerServer(config, directories.managers, seams)
    controller.on_image = server.metadata.take
    try:
        endpoints = server.config.endpoints(await server.open())
        server.cluster.registration.broker_epoch = 1
        image = ClusterImage(
            position=FeedPosition(ControllerEpoch(1), 0),
            cluster_id=CLUSTER_ID,
            controller_id=ControllerId(1),
            brokers={
                BROKER: BrokerImage(
                    BROKER, BrokerEpoch(1), bytes(16), endpoints, "127.0.0.1:1", None, "n", False
                )
            },
            topics={topic.name: topic for topic in topics},
            topics_by_id={topic.topic_id: topic for topic in topics},
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.run(stop))
            controller.show(image, None)
            await server.wait_ready()
            started(RunningBroker(server, controller, stop))
    finally:
        await server.close()
        directories.unlock()


@contextmanager
def running_broker(
    directory: Path,
    topics: Mapping[str, int | TopicImage] | None = None,
    **settings: Any,
) -> Iterator[RunningBroker]:
    """A broker in a thread; stopped cleanly on leaving. ``topics``: partition count or whole image
    by name.
    """
    images = tuple(
        topic_image(name, made) if isinstance(made, int) else made
        for name, made in (topics or {}).items()
    )
    config = harness_config(directory, **settings)
    outcome = SimpleNamespace(broker=None, error=None, stop=None, loop=None)
    ready = threading.Event()

    def started(broker: RunningBroker) -> None:
        outcome.broker = broker
        ready.set()

    def run() -> None:
        async def main() -> None:
            outcome.stop, outcome.loop = asyncio.Event(), asyncio.get_running_loop()
            await serve(config, images, outcome.stop, started)

        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(main())
        except BaseException as error:  # noqa: BLE001 - shown in the test's own thread
            outcome.error = error
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="broker")
    thread.start()
    try:
        assert ready.wait(PATIENCE_S), "the broker did not start"
        if outcome.error is not None:
            raise outcome.error
        yield outcome.broker
    finally:
        if outcome.loop is not None and thread.is_alive():
            outcome.loop.call_soon_threadsafe(outcome.stop.set)
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "the broker did not stop"
    if outcome.error is not None:
        raise outcome.error


def main(argv: list[str]) -> None:
    """A process of its own. ``--topic name:partitions[:key=value,...]``; all else are the broker's
    keys.
    """
    from tidemark.runtime.service import run_service
    from tidemark.runtime.service_config import load

    topics: list[TopicImage] = []
    rest: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        if word != "--topic":
            rest.append(word)
            continue
        name, partitions, *configs = words.pop(0).split(":")
        pairs = [pair.split("=", 1) for pair in ":".join(configs).split(",") if pair]
        topics.append(topic_image(name, int(partitions), dict(pairs)))
    config = load(BrokerConfig, ["--broker.id", "1", *rest], "HARNESS_")

    async def serving(stop: asyncio.Event) -> None:
        await serve(config, tuple(topics), stop, lambda one: print(f"port={one.port}", flush=True))

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        sys.exit(runner.run(run_service(serving, shutdown_deadline_ms=10_000)))


if __name__ == "__main__":
    main(sys.argv[1:])
