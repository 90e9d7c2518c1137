import asyncio

from controller.shell.zk_election import ZkElection
from controller.shell.zk_store import ZkStore
from tidemark.model.ids import ControllerId

from sim.loop import SimLoop
from sim.test_zookeeper import World
from sim.zk_adapter import SimZkSession


def test_the_real_election_and_store_run_on_simulated_time() -> None:
    world = World()
    loop = SimLoop(world.queue)  # type: ignore[abstract]  # I/O is left out on purpose

    async def lead() -> str:
        session = SimZkSession(world.one)
        election = ZkElection(session, ControllerId(1))
        election.grpc_endpoint = "one:1"
        term = await election.campaign()
        await asyncio.sleep(1.5)
        stored = await ZkStore(session, term.epoch_version).load()
        return stored.cluster_id

    task = loop.create_task(lead())
    world.queue.run(5_000)
    assert task.done()
    assert task.result()
    assert "/brokers/live" in world.zookeeper.tree.znodes
    assert not loop.failures
