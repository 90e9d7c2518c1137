"""The controller's store and election on a real ZooKeeper, cut off where it hurts."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
from controller.core.cluster import (
    DropTopic,
    PutAcls,
    PutClientMetrics,
    PutGroupConfigs,
    PutPartition,
    PutProducerIds,
    PutTopic,
    StoreOp,
)
from controller.shell.zk_election import Term, ZkElection
from controller.shell.zk_store import FencedError, ZkStore
from e2e.zookeeper import HOST, RunningZookeeper, running_zookeeper
from tidemark.model.acls import AclEntry, PatternType, Permission, ResourcePattern
from tidemark.model.authorization import Operation, ResourceType
from tidemark.model.ids import BrokerId, ControllerId
from tidemark.model.metadata import TopicImage
from tidemark.runtime import zk_paths
from tidemark.runtime.zk_session import SessionState, UnknownOutcomeError, ZkSession
from unit.controller.worlds import a_topic
from waiting import patience

pytestmark = pytest.mark.e2e

SESSION_MS = 4_000


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningZookeeper]:
    with running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture
def chroot(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


class CutWire:
    """Stands between a client and ZooKeeper; ``deaf`` lets requests through and no answers."""

    def __init__(self, port: int) -> None:
        self.deaf = False
        self.port = 0
        self._target = port
        self.kept_back = asyncio.Event()
        """An answer came while deaf."""
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(HOST, self._target)
        self._writers += [writer, back]
        with suppress(ConnectionError):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pump(reader, back, answers=False))
                tasks.create_task(self._pump(there, writer, answers=True))

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                if answers and self.deaf:
                    self.kept_back.set()
                else:
                    writer.write(data)
        writer.close()

    def cut(self) -> None:
        """Close every connection; new ones work."""
        for writer in self._writers:
            writer.close()
        self._writers.clear()


@asynccontextmanager
async def cut_wire(port: int) -> AsyncIterator[CutWire]:
    wire = CutWire(port)
    server = await asyncio.start_server(wire.serve, HOST, 0)
    wire.port = server.sockets[0].getsockname()[1]
    async with server:
        yield wire
        wire.cut()


@asynccontextmanager
async def session_at(connect: str) -> AsyncIterator[ZkSession]:
    session = ZkSession(connect, session_timeout_ms=SESSION_MS)
    await session.start()
    try:
        yield session
    finally:
        await session.stop()


async def elected(session: ZkSession, number: int = 1) -> tuple[Term, ZkStore]:
    election = ZkElection(session, ControllerId(number))
    election.grpc_endpoint = f"host:{number}"
    term = await election.campaign()
    return term, ZkStore(session, term.epoch_version)


def ops_of(topic: TopicImage) -> list[StoreOp]:
    put = [PutPartition(topic.topic_id, partition) for partition in topic.partitions]
    return [*put, PutTopic(topic)]


@pytest.mark.feature("H02")
def test_what_is_written_is_loaded(zookeeper: RunningZookeeper, chroot: str) -> None:
    async def use() -> None:
        async with session_at(f"{zookeeper.connect}/{chroot}") as session:
            term, store = await elected(session)
            first = await store.load()
            topic = a_topic("orders", *((1, 2) for _ in range(1_200)), configs={"a": "ü"})
            await store.write([*ops_of(topic), PutProducerIds(3_000)])
            loaded = await ZkStore(session, term.epoch_version).load()
            assert loaded.topics == (topic,)
            assert (loaded.cluster_id, loaded.next_producer_id) == (first.cluster_id, 3_000)
            await store.write([DropTopic(topic)])
            assert (await ZkStore(session, term.epoch_version).load()).topics == ()
            assert (await session.children(zk_paths.PARTITIONS))[0] == []

    asyncio.run(use())


def test_what_groups_set_is_written_and_loaded_and_forgotten(
    zookeeper: RunningZookeeper, chroot: str
) -> None:
    async def use() -> None:
        async with session_at(f"{zookeeper.connect}/{chroot}") as session:
            term, store = await elected(session)
            await store.load()
            sets = {"../a b": {"consumer.session.timeout.ms": "1"}, "g": {"x": "ü"}}
            await store.write([PutGroupConfigs(name, configs) for name, configs in sets.items()])
            await store.write([PutClientMetrics("../s", {"metrics": "*"})])
            heir = ZkStore(session, term.epoch_version)
            assert (await heir.load()).group_configs == sets
            assert (await heir.load()).client_metrics == {"../s": {"metrics": "*"}}
            await heir.write([PutGroupConfigs("../a b", {}), PutGroupConfigs("never", {})])
            await heir.write([PutClientMetrics("../s", {})])
            assert (await store.load()).group_configs == {"g": {"x": "ü"}}
            assert (await store.load()).client_metrics == {}

    asyncio.run(use())


def test_access_control_lists_are_written_and_loaded_and_forgotten(
    zookeeper: RunningZookeeper, chroot: str
) -> None:
    patterns = [
        ResourcePattern(ResourceType.TOPIC, "*"),
        ResourcePattern(ResourceType.GROUP, "../a\x00 b/ü" * 80, PatternType.PREFIXED),
    ]
    entries = frozenset({AclEntry("User:ä/b", "*", Operation.READ, Permission.DENY)})

    async def use() -> None:
        async with session_at(f"{zookeeper.connect}/{chroot}") as session:
            term, store = await elected(session)
            await store.load()
            await store.write([PutAcls(pattern, entries) for pattern in patterns])
            heir = ZkStore(session, term.epoch_version)
            assert (await heir.load()).acls == dict.fromkeys(patterns, entries)
            await heir.write([PutAcls(patterns[0], frozenset())])
            assert (await store.load()).acls == {patterns[1]: entries}

    asyncio.run(use())


def test_a_deposed_controllers_write_fails_whatever_it_believes(
    zookeeper: RunningZookeeper, chroot: str
) -> None:
    async def use() -> None:
        connect = f"{zookeeper.connect}/{chroot}"
        async with session_at(connect) as one, session_at(connect) as two:
            _, old = await elected(one, 1)
            await old.load()
            await one.delete(zk_paths.CONTROLLER)  # as if its session had expired
            term, new = await elected(two, 2)
            assert term.controller_epoch == 2
            await new.load()
            with pytest.raises(FencedError):
                await old.write(ops_of(a_topic("zombie", (1,))))
            assert (await new.load()).topics == ()

    asyncio.run(use())


def test_a_write_whose_answer_was_lost_is_done_once(
    zookeeper: RunningZookeeper, chroot: str
) -> None:
    async def use() -> None:
        async with (
            cut_wire(zookeeper.port) as wire,
            session_at(f"{HOST}:{wire.port}/{chroot}") as session,
        ):
            term, store = await elected(session)
            await store.load()
            topic = a_topic("orders", (1,), (2,))
            wire.deaf = True
            async with asyncio.TaskGroup() as tasks:
                writing = tasks.create_task(store.write(ops_of(topic)))
                await wire.kept_back.wait()  # ZooKeeper has it, we do not know
                assert not writing.done()
                wire.deaf = False
                wire.cut()
            assert session.state is SessionState.CONNECTED
            assert (await ZkStore(session, term.epoch_version).load()).topics == (topic,)

    asyncio.run(use())


def test_a_drop_whose_answer_was_lost_is_done_once(
    zookeeper: RunningZookeeper, chroot: str
) -> None:
    async def use() -> None:
        async with (
            cut_wire(zookeeper.port) as wire,
            session_at(f"{HOST}:{wire.port}/{chroot}") as session,
        ):
            term, store = await elected(session)
            await store.load()
            topic = a_topic("orders", (1,), (2,))
            await store.write(ops_of(topic))
            async with asyncio.TaskGroup() as tasks:
                removal = await store.plan([DropTopic(topic)])
                wire.deaf = True
                tasks.create_task(store.write_steps(removal))
                await wire.kept_back.wait()
                wire.deaf = False
                wire.cut()
            assert (await ZkStore(session, term.epoch_version).load()).topics == ()

    asyncio.run(use())


def test_a_call_cut_off_has_an_unknown_outcome(zookeeper: RunningZookeeper, chroot: str) -> None:
    async def use() -> None:
        async with (
            cut_wire(zookeeper.port) as wire,
            session_at(f"{HOST}:{wire.port}/{chroot}") as session,
        ):
            wire.deaf = True
            async with patience():
                with pytest.raises(UnknownOutcomeError, match="get /nothing"):
                    await asyncio.gather(session.get("/nothing"), _cut_later(wire))
                wire.deaf = False
                wire.cut()
                await session.wait_connected()

    asyncio.run(use())


async def _cut_later(wire: CutWire) -> None:
    await wire.kept_back.wait()
    wire.cut()


def test_what_a_dead_controller_left_half_made_is_removed(
    zookeeper: RunningZookeeper, chroot: str
) -> None:
    async def use() -> None:
        async with session_at(f"{zookeeper.connect}/{chroot}") as session:
            term, store = await elected(session)
            await store.load()
            half = a_topic("half", (1,), (2,))
            await store.write(ops_of(half)[:-1])  # partitions, but no topic
            assert len((await session.children(zk_paths.PARTITIONS))[0]) == 1
            assert (await ZkStore(session, term.epoch_version).load()).topics == ()
            assert (await session.children(zk_paths.PARTITIONS))[0] == []

    asyncio.run(use())


def test_partitions_left_by_a_half_made_growth_are_overwritten(
    zookeeper: RunningZookeeper, chroot: str
) -> None:
    async def use() -> None:
        async with session_at(f"{zookeeper.connect}/{chroot}") as session:
            term, store = await elected(session)
            await store.load()
            small, grown = a_topic("t", (1,)), a_topic("t", (1,), (2,), (3,))
            await store.write(ops_of(small))
            left = replace(grown.partitions[1], replicas=(), isr=())
            await store.write([PutPartition(grown.topic_id, left)])
            again = ZkStore(session, term.epoch_version)
            assert (await again.load()).topics == (small,)
            await again.write(ops_of(grown))
            assert (await ZkStore(session, term.epoch_version).load()).topics == (grown,)

    asyncio.run(use())


def test_a_term_ends_when_its_znode_goes(zookeeper: RunningZookeeper, chroot: str) -> None:
    async def use() -> None:
        async with session_at(f"{zookeeper.connect}/{chroot}") as session:
            election = ZkElection(session, ControllerId(1))
            election.grpc_endpoint = "host:1"
            term = await election.campaign()
            async with patience(), asyncio.TaskGroup() as tasks:
                tasks.create_task(election.watch(term))
                await asyncio.sleep(0.1)
                await session.delete(zk_paths.CONTROLLER)
                assert await term.wait_ended() == "/controller was removed"

    asyncio.run(use())


def test_a_term_ends_after_too_long_a_silence(zookeeper: RunningZookeeper, chroot: str) -> None:
    async def use() -> None:
        async with (
            cut_wire(zookeeper.port) as wire,
            session_at(f"{HOST}:{wire.port}/{chroot}") as session,
        ):
            election = ZkElection(session, ControllerId(1))
            election.grpc_endpoint = "host:1"
            term = await election.campaign()
            async with patience(), asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(election.watch(term))
                await asyncio.sleep(0.1)
                wire.deaf = True
                wire.cut()
                assert await term.wait_ended() == "no connection to ZooKeeper for 4 s"
                watching.cancel()
                wire.deaf = False
                wire.cut()

    asyncio.run(use())


def test_a_live_znode_is_removed_by_the_active_controller_alone(
    zookeeper: RunningZookeeper, chroot: str
) -> None:
    async def use() -> None:
        async with session_at(f"{zookeeper.connect}/{chroot}") as session:
            live = zk_paths.LiveBroker(BrokerId(1), b"incarnation")
            term, store = await elected(session)
            await store.load()
            await session.create(live.path, ephemeral=True)
            await session.set(live.path, b"a renewed lease")
            with pytest.raises(FencedError):
                await ZkStore(session, term.epoch_version - 1).remove_live(live)
            assert await session.exists(live.path) is not None
            await store.remove_live(live)
            assert await session.exists(live.path) is None
            await store.remove_live(live)  # once more does no harm

    asyncio.run(use())


def test_renewed_leases_wake_no_watch_of_the_live_brokers(
    zookeeper: RunningZookeeper, chroot: str
) -> None:
    async def use() -> None:
        async with session_at(f"{zookeeper.connect}/{chroot}") as session:
            live = zk_paths.LiveBroker(BrokerId(1), b"incarnation")
            _, store = await elected(session)
            await store.load()
            await session.create(live.path, ephemeral=True)
            woken: list[bool] = []
            before = await store.live_brokers(lambda: woken.append(True))
            for _ in range(5):
                await session.set(live.path, b"t0")
            assert await store.live_brokers() == before
            assert woken == []

    asyncio.run(use())
