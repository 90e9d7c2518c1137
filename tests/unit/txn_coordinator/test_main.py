import asyncio
from typing import Any

import pytest
from tidemark.runtime.zk_session import ZkUnavailableError
from txn_coordinator.config import TxnCoordinatorConfig
from txn_coordinator.process import serve
from waiting import patience

NOBODY = "127.0.0.1:1"


def config(**settings: Any) -> TxnCoordinatorConfig:
    return TxnCoordinatorConfig(
        coordinator_id=1, grpc_listen="127.0.0.1:0", zookeeper_connect=NOBODY, **settings
    )


def test_a_replica_that_waits_for_zookeeper_can_be_stopped() -> None:
    async def scenario() -> None:
        stop = asyncio.Event()
        async with patience(), asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(serve(config(), stop))
            await asyncio.sleep(0.02)
            stop.set()
        assert serving.exception() is None

    asyncio.run(scenario())


def test_without_zookeeper_it_says_so_and_ends() -> None:
    async def scenario() -> None:
        await serve(config(zookeeper_connect_timeout_ms=100), asyncio.Event())

    with pytest.raises(ZkUnavailableError):
        asyncio.run(scenario())
