from collections.abc import Awaitable, Callable

import pytest
from controller.core.cluster import (
    DropBroker,
    PutBroker,
    PutBrokerConfigs,
    PutPartition,
    PutShards,
    PutTopic,
    StoredCluster,
)
from controller.core.liveness import CoordinatorListing
from controller.shell.zk_election import ZkElection
from controller.shell.zk_store import (
    BYTES_MAX,
    OPS_MAX,
    FencedError,
    Put,
    Remove,
    Step,
    ZkStore,
    chunks,
)
from controller.shell.znodes import DamagedStoreError
from hypothesis import given, settings
from hypothesis import strategies as st
from sim.loop import SimLoop
from sim.test_zookeeper import World
from sim.zk_adapter import SimZkSession
from tidemark.model.ids import ControllerId
from tidemark.model.metadata import TXN, ShardOwner
from tidemark.runtime import zk_paths
from tidemark.runtime.exit_codes import ExitCode
from unit.controller.worlds import a_broker, a_coordinator, a_topic

PUTS = st.builds(
    Put, st.text("/a", min_size=1, max_size=9), st.integers(0, BYTES_MAX // 2).map(bytes)
)
STEPS = st.lists(PUTS | st.builds(Remove, st.text("/a", min_size=1, max_size=9)), max_size=12)


@given(STEPS)
@settings(max_examples=20, deadline=None)
def test_chunks_keep_order_and_fit_in_a_transaction(steps: list[Step]) -> None:
    cut = list(chunks(steps))
    assert [step for chunk in cut for step in chunk] == steps
    for chunk in cut:
        data = sum(len(step.data) for step in chunk if isinstance(step, Put))
        assert data <= BYTES_MAX


def test_a_chunk_leaves_room_for_the_check_of_the_epoch() -> None:
    sizes = [len(chunk) for chunk in chunks([Remove("/x")] * (2 * OPS_MAX))]
    assert sizes == [OPS_MAX - 1, OPS_MAX - 1, 2]


# On a simulated ZooKeeper.


def run(use: Callable[[SimZkSession], Awaitable[None]]) -> None:
    world = World()
    loop = SimLoop(world.queue)  # type: ignore[abstract]  # I/O is left out on purpose

    async def main() -> None:
        await use(SimZkSession(world.one))

    task = loop.create_task(main())
    world.queue.run(5_000)
    assert task.done(), "stuck"
    task.result()


async def new_store(session: SimZkSession) -> ZkStore:
    election = ZkElection(session, ControllerId(1))
    election.grpc_endpoint = "one:1"
    return ZkStore(session, (await election.campaign()).epoch_version)


async def load(store: ZkStore) -> StoredCluster:
    """Return a store as of another process, without a record of the present znodes."""
    return await ZkStore(store._session, store._epoch_version).load()


def test_shards_are_read_as_they_were_written() -> None:
    one, two = a_coordinator(1), a_coordinator(2)
    owners = (ShardOwner(0, 1, 7), ShardOwner(1, 2, 9))

    async def use(session: SimZkSession) -> None:
        store = await new_store(session)
        assert (await store.load()).shards == {}
        await store.write([PutShards(TXN, (one, two), owners)])
        await store.write([PutShards(TXN, (one,), (owners[0], ShardOwner(1, -1, 9)))])
        found = await load(store)
        assert found.coordinators == (one,)
        assert found.shards == {TXN: (owners[0], ShardOwner(1, -1, 9))}

    run(use)


def test_a_deposed_controller_assigns_nothing() -> None:
    async def use(session: SimZkSession) -> None:
        store = await new_store(session)
        await store.load()
        old = ZkStore(session, store._epoch_version - 1)
        with pytest.raises(FencedError):
            await old.write([PutShards(TXN, (), (ShardOwner(0, -1, 1),))])
        assert (await load(store)).shards == {}

    run(use)


@pytest.mark.feature("AD27")
def test_nothing_is_left_of_an_unregistered_broker() -> None:
    kept, gone = a_broker(1), a_broker(2)
    ended = [zk_paths.LiveBroker(one.broker_id, b"old").ended_path for one in (kept, gone)]

    async def use(session: SimZkSession) -> None:
        store = await new_store(session)
        await store.load()
        configs = [PutBrokerConfigs(name, {"max.connections": "9"}) for name in ("1", "2")]
        await store.write([PutBroker(kept), PutBroker(gone), *configs])
        for path in ended:
            await session.create(path)
        await store.write([PutBrokerConfigs("2", {}), DropBroker(gone.broker_id)])
        found = await load(store)
        assert found.brokers == (kept,)
        assert set(found.broker_configs) == {"1"}
        assert (await session.children(zk_paths.ENDED_BROKERS))[0] == [ended[0].rsplit("/", 1)[1]]

    run(use)


ORDERS = a_topic("orders", (1, 2))
DAMAGED: dict[str, dict[str, object]] = {
    f"{zk_paths.REGISTERED_BROKERS}/1": {"broker_id": 1},
    zk_paths.topic("orders"): {"topic_id": "zz", "replicas": [[1, 2]], "configs": {}},
    zk_paths.partition(ORDERS.topic_id, 0): {"replicas": [1, 2], "leader": 1},
    f"{zk_paths.BROKER_CONFIGS}/1": {"configs": 5},
    f"{zk_paths.GROUP_CONFIGS}/g": {},
    f"{zk_paths.CLIENT_METRICS}/m": {},
    f"{zk_paths.ACLS}/a": {"pattern": [2, "orders", 3], "entries": [["User:a"]]},
    f"{zk_paths.USERS}/amy": {"credentials": [{"mechanism": "SCRAM-MD5"}]},
    f"{zk_paths.QUOTAS}/q": {"entity": ["a", None, None, None], "values": {}},
    zk_paths.shards(TXN): {"coordinators": [], "owners": [5]},
    zk_paths.PRODUCER_IDS: {"next": "many"},
    zk_paths.CONSTANTS: {},
    zk_paths.CLUSTER: {},
    zk_paths.LOGIN_SECRET: {"secret": "x"},
}


@pytest.mark.parametrize("path", DAMAGED)
def test_a_znode_that_cannot_be_read_is_named(path: str) -> None:
    async def use(session: SimZkSession) -> None:
        store = await new_store(session)
        await store.load()
        partitions = [PutPartition(ORDERS.topic_id, one) for one in ORDERS.partitions]
        await store.write([*partitions, PutTopic(ORDERS)])
        data = zk_paths.encode(DAMAGED[path])
        if await session.exists(path) is None:
            await session.create(path, data)
        else:
            await session.set(path, data)
        with pytest.raises(DamagedStoreError, match=f"^znode {path} .*recover.md") as damaged:
            await load(store)
        assert damaged.value.exit_code is ExitCode.DATA

    run(use)


def test_live_coordinators_are_listed_and_removed() -> None:
    live = zk_paths.LiveCoordinator(TXN, 3, b"incarnation")

    async def use(session: SimZkSession) -> None:
        store = await new_store(session)
        await store.load()
        woken: list[bool] = []
        before = await store.live_coordinators(TXN, lambda: woken.append(True))
        await session.create(live.path, ephemeral=True)
        await session.create(f"{zk_paths.live_coordinators(TXN)}/nonsense")
        found = await store.live_coordinators(TXN)
        assert found == CoordinatorListing(TXN, found.zxid, frozenset({(3, b"incarnation")}))
        assert found.zxid > before.zxid
        assert woken == [True]
        await store.remove_live(live)
        assert (await store.live_coordinators(TXN)).live == frozenset()

    run(use)
