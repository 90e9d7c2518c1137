"""Start of a session with ZooKeeper that comes late, or never."""

import asyncio
import logging
from typing import Any

import pytest
from tidemark.runtime.zk_session import UnknownOutcomeError, ZkSession, ZkUnavailableError
from tidemark.runtime.zk_start import start_session
from virtual_time import run_virtual
from waiting import PATIENCE_S


class Late(ZkSession):
    """A session that is there after some seconds."""

    def __init__(self, after_s: float) -> None:
        super().__init__("127.0.0.1:1")
        self.after_s = after_s
        self.stopped = False

    async def start(self, timeout_s: float = 15.0) -> None:
        answers = asyncio.Event()
        asyncio.get_running_loop().call_later(self.after_s, answers.set)
        try:
            async with asyncio.timeout(timeout_s):
                await answers.wait()
        except TimeoutError:
            raise ZkUnavailableError(f"no ZooKeeper server within {timeout_s:g} s") from None

    async def stop(self) -> None:
        self.stopped = True


def started(session: Late, limit_ms: int, stop_after_s: float | None = None) -> Any:
    async def scenario() -> bool:
        stop = asyncio.Event()
        if stop_after_s is not None:
            asyncio.get_running_loop().call_later(stop_after_s, stop.set)
        return await start_session(session, limit_ms, stop)

    return run_virtual(scenario())


@pytest.mark.feature("KU11")
def test_a_first_election_of_forty_seconds_is_waited_for_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        assert started(Late(41), 86_400_000) is True
    said = [record for record in caplog.records if "still waiting" in record.message]
    assert len(said) == 4
    assert "that ZooKeeper runs there" in str(vars(said[0]))


def test_after_the_limit_the_reason_is_raised() -> None:
    with pytest.raises(ZkUnavailableError, match="within 30 s"):
        started(Late(41), 30_000)


def test_a_service_that_is_stopped_while_it_waits_ends_the_session() -> None:
    session = Late(41)
    assert started(session, 86_400_000, stop_after_s=3) is False
    assert session.stopped


def test_a_connection_that_breaks_in_an_election_is_waited_for() -> None:
    calls: list[str] = []

    class Flapping(ZkSession):
        async def wait_connected(self) -> None:
            calls.append("connected")

        async def ensure_path(self, path: str) -> None:
            if len(calls) < 3:
                raise UnknownOutcomeError(path)

        async def get(self, path: str, on_change: Any = None) -> Any:
            return b"", None

    async def use() -> None:
        session = Flapping("127.0.0.1:1/here")
        await session.start(timeout_s=PATIENCE_S)
        await session.stop()

    asyncio.run(use())
    assert calls == ["connected"] * 3
