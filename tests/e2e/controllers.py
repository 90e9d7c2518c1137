"""Controller processes for tests, and brokers that only register."""

import asyncio
import contextlib
import json
import secrets
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from e2e import passes
from e2e.zookeeper import HOST
from free_ports import free_port
from tidemark.model.ids import BrokerEpoch
from tidemark.model.metadata import ClusterImage, PartitionImage
from tidemark.runtime import zk_paths
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.metadata_follower import MetadataFollower
from tidemark.runtime.zk_session import ZkSession
from tidemark_wire.v1 import controller_pb2 as pb
from waiting import PATIENCE_S, until_told

SESSION_MS: Final = 2_000
WAIT_S: Final = PATIENCE_S
STOP_S: Final = PATIENCE_S


class ControllerProcess:
    """One replica: started at once, ended with the block it is used in."""

    def __init__(self, number: int, connect: str, directory: Path, *extra: str) -> None:
        self.number = number
        self.grpc = f"{HOST}:{free_port()}"
        self.rest = f"{HOST}:{free_port()}"
        self.log_path = directory / f"controller-{number}.log"
        argv = [sys.executable, "-P", "-m", "controller", "--controller.id", str(number)]
        argv += ["--zookeeper.connect", connect, "--log.format", "json"]
        argv += ["--zookeeper.session.timeout.ms", str(SESSION_MS)]
        argv += ["--grpc.listen", self.grpc, "--rest.listen", self.rest, *extra]
        argv += passes.flags("controller", extra)
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log)

    def signal(self, number: signal.Signals) -> None:
        """To this process alone."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait(STOP_S)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            return self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def http(self, path: str) -> tuple[int, str]:
        """Status and body; status 0 while nobody answers."""
        try:
            with urllib.request.urlopen(f"http://{self.rest}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def cluster(self) -> dict[str, Any]:
        """What GET /v3/clusters says of this replica."""
        status, body = self.http("/v3/clusters")
        return json.loads(body)["data"][0] if status == 200 else {}

    @property
    def is_active(self) -> bool:
        """Whether it says that it is the active controller."""
        return bool(self.cluster().get("active"))

    @property
    def is_ready(self) -> bool:
        """Whether it says that it is ready."""
        return self.http("/readyz")[0] == 200

    def log(self) -> str:
        """All that it logged."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")


@contextlib.contextmanager
def controllers(
    count: int, connect: str, directory: Path, *extra: str
) -> Iterator[list[ControllerProcess]]:
    """Replicas 1..count; the first is active before the others start."""
    started: list[ControllerProcess] = []
    try:
        for number in range(1, count + 1):
            started.append(ControllerProcess(number, connect, directory, *extra))
            if number == 1 and count > 1:
                asyncio.run(until(lambda: started[0].is_active))
        yield started
    finally:
        for process in started:
            if process.process.poll() is None:
                process.stop()


async def until(happened: Callable[[], bool]) -> None:
    """Ask another process again and again."""

    async def ask() -> bool:
        return await asyncio.to_thread(happened)

    await until_told(ask)


class FakeBroker:
    """A session, a live znode and a registration; it serves nothing."""

    def __init__(self, number: int, session: ZkSession) -> None:
        self.number = number
        self.session = session
        self.incarnation_id = secrets.token_bytes(16)
        self.broker_epoch = -1

    @property
    def live(self) -> zk_paths.LiveBroker:
        """Its live znode."""
        return zk_paths.LiveBroker(self.number, self.incarnation_id)  # type: ignore[arg-type]

    async def come_alive(self) -> None:
        """Make the live znode."""
        await self.session.ensure_path(zk_paths.LIVE_BROKERS)
        await self.session.create(self.live.path, b"", ephemeral=True)

    async def register(self, client: ControllerClient, wait_s: float = WAIT_S) -> tuple[int, str]:
        """Broker epoch and cluster id."""
        info = pb.BrokerInfo(
            broker_id=self.number,
            incarnation_id=self.incarnation_id,
            endpoints=[pb.Endpoint(listener="CLIENT", host="host", port=9092)],
            node=f"node-{self.number}",
        )
        request = pb.RegisterBrokerRequest(broker=info, previous_broker_epoch=-1)
        self.broker_epoch, cluster_id = await client.register_broker(request, wait_s)
        return self.broker_epoch, cluster_id

    def alteration(
        self, state: PartitionImage, topic_id: bytes, isr: Iterable["FakeBroker"]
    ) -> pb.AlterPartitionsRequest:
        """A proposal by this broker, as leader, of an ISR."""
        proposal = pb.AlterPartitionsRequest.Partition(
            topic_id=topic_id,
            partition=state.partition,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            new_isr=[
                pb.AlterPartitionsRequest.IsrMember(
                    broker_id=one.number, broker_epoch=one.broker_epoch
                )
                for one in isr
            ],
        )
        return pb.AlterPartitionsRequest(
            broker_id=self.number, broker_epoch=self.broker_epoch, partitions=[proposal]
        )


class Client:
    """What a broker has of the controller: a session, calls, and the feed."""

    def __init__(self, connect: str) -> None:
        self.connect = connect
        self.session = ZkSession(connect, session_timeout_ms=SESSION_MS)
        self.controller = ControllerClient(self.session)
        self.follower = MetadataFollower(self.controller, MetadataCache(), subscriber="test")
        self._sessions: list[ZkSession] = []

    @property
    def image(self) -> ClusterImage:
        """As the feed last said."""
        return self.follower.image

    async def broker(self, number: int) -> FakeBroker:
        """A registered broker with a session of its own."""
        session = ZkSession(self.connect, session_timeout_ms=SESSION_MS)
        await session.start()
        self._sessions.append(session)
        broker = FakeBroker(number, session)
        await broker.come_alive()
        await broker.register(self.controller)
        return broker

    async def create(self, name: str, partitions: int = 1, replicas: int = 1) -> pb.TopicResult:
        """One topic, seen in the feed."""
        topic = pb.CreateTopicsRequest.Topic(
            name=name, partition_count=partitions, replication_factor=replicas
        )
        response: pb.CreateTopicsResponse = await self.controller.call(
            "CreateTopics", pb.CreateTopicsRequest(topics=[topic]), WAIT_S
        )
        assert response.error_code == 0, response
        result = response.topics[0]
        await self.sees(lambda image: result.error_code != 0 or name in image.topics)
        return result

    async def sees(self, shown: Callable[[ClusterImage], bool], wait_s: float = WAIT_S) -> None:
        """Wait until the feed shows it."""
        async with asyncio.timeout(wait_s):
            while not shown(self.image):
                epoch, version = self.image.position
                await self.follower.metadata.wait_for(
                    type(self.image.position)(epoch, version + 1), wait_s
                )

    async def close(self) -> None:
        """End every session."""
        await self.controller.close()
        for session in (*self._sessions, self.session):
            await session.stop()


@asynccontextmanager
async def client_of(connect: str) -> AsyncIterator[Client]:
    """A client that follows the feed for as long as the block lasts."""
    client = Client(connect)
    await client.session.start()
    try:
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(client.follower.run())
            try:
                yield client
            finally:
                following.cancel()
    finally:
        await client.close()


@asynccontextmanager
async def feed_of(connect: str, broker: FakeBroker) -> AsyncIterator[MetadataFollower]:
    """A broker's metadata stream, for as long as the block lasts; it acknowledges as a broker."""
    session = ZkSession(connect, session_timeout_ms=SESSION_MS)
    await session.start()
    controller = ControllerClient(session)
    follower = MetadataFollower(
        controller,
        MetadataCache(),
        subscriber=f"broker-{broker.number}",
        broker_epoch=lambda: BrokerEpoch(broker.broker_epoch),
    )
    try:
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(follower.run())
            try:
                yield follower
            finally:
                following.cancel()
    finally:
        await controller.close()
        await session.stop()
