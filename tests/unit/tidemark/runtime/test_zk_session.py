import asyncio
import threading

import pytest
from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.zk_session import SessionState, ZkSession, ZkUnavailableError


def test_a_server_that_is_not_there_is_named() -> None:
    async def use() -> None:
        session = ZkSession("127.0.0.1:1/here")
        with pytest.raises(ZkUnavailableError, match=r"127\.0\.0\.1:1/here") as failed:
            await session.start(timeout_s=0.1)
        assert failed.value.exit_code is ExitCode.UNAVAILABLE
        assert session.state is SessionState.LOST

    asyncio.run(use())


def test_a_session_that_never_began_can_be_stopped() -> None:
    async def use() -> SessionState:
        session = ZkSession("127.0.0.1:1")
        await session.stop()
        return session.state

    threads = set(threading.enumerate())
    assert asyncio.run(use()) is SessionState.LOST
    assert set(threading.enumerate()) - threads == set()
