"""Real controller processes on a real ZooKeeper: elections, fencing, registration, the feed."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from e2e.controllers import (
    WAIT_S,
    Client,
    ControllerProcess,
    FakeBroker,
    client_of,
    controllers,
    until,
)
from e2e.zookeeper import RunningZookeeper, running_zookeeper
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tidemark.cli.dev.process import pause_process
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import BrokerId
from tidemark.runtime import zk_paths
from tidemark.runtime.channel import open_channel
from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.zk_session import ZkSession
from tidemark_wire.v1 import controller_pb2 as pb
from tidemark_wire.v1 import controller_pb2_grpc
from waiting import PATIENCE_MS, cpu_s

pytestmark = [pytest.mark.e2e, pytest.mark.long]


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningZookeeper]:
    with running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture
def connect(zookeeper: RunningZookeeper, request: pytest.FixtureRequest) -> str:
    """A chroot for each test."""
    return f"{zookeeper.connect}/{request.node.name}"


def with_client(connect: str, use: Callable[[Client], Awaitable[None]]) -> None:
    async def run() -> None:
        async with client_of(connect) as client:
            await use(client)

    asyncio.run(run())


def create_request(name: str) -> pb.CreateTopicsRequest:
    topic = pb.CreateTopicsRequest.Topic(name=name, partition_count=1, replication_factor=1)
    return pb.CreateTopicsRequest(topics=[topic], timeout_ms=PATIENCE_MS)


async def create_at(endpoint: str, name: str) -> pb.CreateTopicsResponse:
    """Ask one replica, active or not."""
    channel = open_channel(endpoint)
    try:
        stub = controller_pb2_grpc.ControllerStub(channel)
        answer: pb.CreateTopicsResponse = await stub.CreateTopics(
            create_request(name), timeout=WAIT_S
        )
        return answer
    finally:
        await channel.close(None)


def test_one_of_two_is_active_and_the_other_says_who(connect: str, tmp_path: Path) -> None:
    async def use(client: Client) -> None:
        first, second = pair
        await until(lambda: first.is_ready and second.is_ready)
        assert (first.is_active, second.is_active) == (True, False)
        answer = await create_at(second.grpc, "a")
        assert answer.error_code == ErrorCode.NOT_CONTROLLER
        assert answer.controller_hint == first.grpc
        assert (await client.broker(1)).number == 1
        assert (await client.create("a")).error_code == 0

    with controllers(2, connect, tmp_path) as pair:
        with_client(connect, use)


def test_a_standby_takes_over_from_a_killed_one_with_everything(
    connect: str, tmp_path: Path
) -> None:
    async def use(client: Client) -> None:
        await client.broker(1)
        await client.create("before", 3)
        known = client.image.topics["before"]
        pair[0].kill()
        await client.sees(lambda image: image.position.controller_epoch == 2)
        assert client.image.topics["before"] == known
        assert (await client.create("after")).error_code == 0

    with controllers(2, connect, tmp_path) as pair:
        with_client(connect, use)


def test_a_paused_controller_wakes_up_deposed_and_writes_nothing(
    connect: str, tmp_path: Path
) -> None:
    async def use(client: Client) -> None:
        first, second = pair
        await client.broker(1)
        await client.create("before")
        pause_process(first.process.pid)
        await until(lambda: second.is_active)
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(create_at(first.grpc, "zombie"))
            await asyncio.sleep(0.2)  # the request is in its socket before it wakes
            first.signal(signal.SIGCONT)
        assert asked.result().error_code == ErrorCode.NOT_CONTROLLER
        assert (await client.create("after")).error_code == 0
        assert set(client.image.topics) == {"before", "after"}
        await until(lambda: first.is_ready and not first.is_active)

    with controllers(2, connect, tmp_path) as pair:
        with_client(connect, use)


@pytest.mark.feature("H02")
def test_everything_survives_a_restart_of_the_only_controller(connect: str, tmp_path: Path) -> None:
    async def use(client: Client) -> None:
        for number in (1, 2, 3):
            await client.broker(number)
        await client.create("orders", 4, 3)
        await client.create("gone")
        call = client.controller.call
        grow = pb.CreatePartitionsRequest.Topic(name="orders", partition_count=6)
        await call("CreatePartitions", pb.CreatePartitionsRequest(topics=[grow]), WAIT_S)
        change = pb.AlterConfigsRequest.Change(name="retention.ms", value="5")
        orders = pb.AlterConfigsRequest.Resource(
            resource_type=2, resource_name="orders", changes=[change]
        )
        await call("AlterConfigs", pb.AlterConfigsRequest(resources=[orders]), WAIT_S)
        gone = pb.DeleteTopicsRequest(topics=[pb.DeleteTopicsRequest.Topic(name="gone")])
        deleted = await call("DeleteTopics", gone, WAIT_S)
        await client.sees(lambda image: image.position.version >= deleted.position.version)
        before = client.image
        assert started[0].stop() == ExitCode.OK
        started[0] = ControllerProcess(1, connect, tmp_path)
        await client.sees(lambda image: image.position.controller_epoch == 2)
        assert (client.image.topics, client.image.brokers) == (before.topics, before.brokers)
        assert client.image.cluster_id == before.cluster_id
        assert client.image.topics["orders"].configs == {"retention.ms": "5"}
        assert len(client.image.topics["orders"].partitions) == 6

    with controllers(1, connect, tmp_path) as started:
        with_client(connect, use)


@pytest.mark.feature("H06", "A03")
def test_ten_partitions_of_three_replicas_have_their_leaders_spread(
    connect: str, tmp_path: Path
) -> None:
    async def use(client: Client) -> None:
        for number in (1, 2, 3):
            await client.broker(number)
        await client.create("orders", 10, 3)
        partitions = client.image.topics["orders"].partitions
        assert sorted(Counter(item.leader for item in partitions).values()) == [3, 3, 4]
        assert all(item.leader == item.replicas[0] for item in partitions)
        refused = await client.create("too-many", 1, 4)
        assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        assert "only 3 broker(s) are registered" in refused.error_message

    with controllers(1, connect, tmp_path):
        with_client(connect, use)


@pytest.mark.feature("H03")
def test_a_lost_session_fences_a_broker_and_a_new_incarnation_brings_it_back(
    connect: str, tmp_path: Path
) -> None:
    async def use(client: Client) -> None:
        broker = await client.broker(1)
        await client.create("a")
        first_epoch = client.image.brokers[BrokerId(1)].broker_epoch
        await broker.session.stop()
        await client.sees(lambda image: image.brokers[BrokerId(1)].fenced)
        assert client.image.topics["a"].partitions[0].leader == 1
        # Nobody else is made the leader, nor it unmade, before its lease is over.
        await client.sees(lambda image: image.topics["a"].partitions[0].leader == -1)
        lost = client.image.topics["a"].partitions[0]
        assert (lost.leader_epoch, lost.isr, lost.last_known_leader) == (1, (1,), 1)
        await client.broker(1)
        await client.sees(lambda image: image.topics["a"].partitions[0].leader == 1)
        assert client.image.topics["a"].partitions[0].leader_epoch == 2
        assert client.image.brokers[BrokerId(1)].broker_epoch > first_epoch

    with controllers(1, connect, tmp_path):
        with_client(connect, use)


def test_a_second_broker_of_one_id_has_to_wait(connect: str, tmp_path: Path) -> None:
    async def use(client: Client) -> None:
        await client.broker(1)
        twin = FakeBroker(1, client.session)
        await twin.come_alive()
        with pytest.raises(TidemarkError, match="Another broker is registered") as refused:
            await twin.register(client.controller, 0.7)
        assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION

    with controllers(1, connect, tmp_path):
        with_client(connect, use)


def test_a_subscriber_that_dies_is_forgotten(connect: str, tmp_path: Path) -> None:
    async def use(client: Client) -> None:
        await client.broker(1)
        lag = 'tidemark_controller_feed_lag_updates{subscriber="mortal"}'
        channel = open_channel(started[0].grpc)
        call = controller_pb2_grpc.ControllerStub(channel).WatchMetadata()
        await call.write(pb.WatchMetadataRequest(subscriber="mortal", broker_epoch=-1))
        await call.read()
        assert lag in started[0].http("/metrics")[1]
        await channel.close(None)
        await until(lambda: lag not in started[0].http("/metrics")[1])
        assert "Traceback" not in started[0].log()

    with controllers(1, connect, tmp_path) as started:
        with_client(connect, use)


def test_health_and_metrics_tell_the_truth(connect: str, tmp_path: Path) -> None:
    async def use(client: Client) -> None:
        await client.broker(1)
        await client.create("a", 3)
        channel = open_channel(started[0].grpc)
        health = health_pb2_grpc.HealthStub(channel)
        asked = health_pb2.HealthCheckRequest(service="tidemark_wire.v1.Controller")
        assert (await health.Check(asked)).status == health_pb2.HealthCheckResponse.SERVING
        await channel.close(None)
        metrics = started[0].http("/metrics")[1]
        assert "kafka_controller_kafkacontroller_activecontrollercount 1.0" in metrics
        assert "kafka_controller_kafkacontroller_globalpartitioncount 3.0" in metrics
        assert started[0].http("/livez")[0] == 200
        assert started[0].cluster()["cluster_id"] == client.image.cluster_id

    with controllers(1, connect, tmp_path) as started:
        with_client(connect, use)


def test_a_callers_deadline_is_kept_while_zookeeper_is_silent(
    connect: str, tmp_path: Path, zookeeper: RunningZookeeper
) -> None:
    async def use(client: Client) -> None:
        await client.broker(1)
        request = create_request("a")
        request.timeout_ms = 300
        zookeeper.pause()
        try:
            asked_at = time.monotonic()
            answer = await client.controller.call("CreateTopics", request, WAIT_S)
            assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
            assert time.monotonic() - asked_at >= 0.3
        finally:
            zookeeper.resume()

    with controllers(1, connect, tmp_path):
        with_client(connect, use)


def test_a_store_of_a_newer_release_is_refused_by_name(connect: str, tmp_path: Path) -> None:
    async def write_newer() -> None:
        session = ZkSession(connect)
        await session.start()
        await session.ensure_path(zk_paths.TOPICS)
        await session.create(zk_paths.topic("orders"), b'{"format":99}')
        await session.stop()

    asyncio.run(write_newer())
    with controllers(1, connect, tmp_path) as started:
        assert started[0].process.wait(WAIT_S) == ExitCode.DATA
        assert "znode /topics/orders has format 99" in started[0].log()


def test_without_zookeeper_a_controller_says_so_and_ends(tmp_path: Path) -> None:
    nowhere = "127.0.0.1:1/none"
    limit = ("--zookeeper.connect.timeout.ms", "300")
    with controllers(1, nowhere, tmp_path, *limit) as started:
        assert started[0].process.wait(WAIT_S) == ExitCode.UNAVAILABLE
        assert f"no ZooKeeper server of {nowhere} answered" in started[0].log()


@pytest.mark.slow
def test_ten_thousand_partitions_change_hands_in_seconds(connect: str, tmp_path: Path) -> None:
    async def use(client: Client) -> None:
        await client.broker(1)
        topics = [
            pb.CreateTopicsRequest.Topic(name=f"t{n}", partition_count=10, replication_factor=1)
            for n in range(1_000)
        ]
        request = pb.CreateTopicsRequest(topics=topics)
        response = await client.controller.call("CreateTopics", request, WAIT_S)
        assert {result.error_code for result in response.topics} == {0}
        await until(lambda: pair[1].is_ready)
        before_s = cpu_s(pair[1].process.pid)
        pair[0].signal(signal.SIGTERM)
        await client.sees(lambda image: image.position.controller_epoch >= 2)
        assert len(client.image.topics) == 1_000
        assert cpu_s(pair[1].process.pid) - before_s < 15

    with controllers(2, connect, tmp_path) as pair:
        with_client(connect, use)
