"""Start of a service's session with ZooKeeper, which may be there later than the service."""

import asyncio
import logging
from typing import Final

from tidemark.runtime.telemetry import fields
from tidemark.runtime.zk_calls import ZkError
from tidemark.runtime.zk_session import ZkSession

SAY_EVERY_S: Final = 10.0
_log = logging.getLogger(__name__)


async def start_session(
    session: ZkSession, timeout_ms: int, stop: asyncio.Event, *, say_every_s: float = SAY_EVERY_S
) -> bool:
    """Connect; return False, with the session ended, if ``stop`` is set before. Raises
    ZkUnavailableError after the time, ZkAccessError.

    While it waits it logs for what, every ``say_every_s`` seconds: a first election of ZooKeeper
    takes its time, and nobody would find a wrong address otherwise.
    """
    failure: ZkError | None = None

    async def attempt() -> None:
        nonlocal failure
        try:
            await session.start(timeout_ms / 1_000)
        except ZkError as error:
            failure = error

    _log.info("waiting for ZooKeeper", extra=fields(connect=session.connect))
    async with asyncio.TaskGroup() as tasks:
        starting = tasks.create_task(attempt(), name="zookeeper")
        saying = tasks.create_task(_say(session, timeout_ms, say_every_s), name="say")
        stopping = tasks.create_task(stop.wait(), name="stop")
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        for task in (starting, saying, stopping):
            task.cancel()
    if starting.cancelled():
        await session.stop()
        return False
    if failure is not None:
        raise failure
    _log.info("ZooKeeper answers", extra=fields(connect=session.connect))
    return True


async def _say(session: ZkSession, timeout_ms: int, every_s: float) -> None:
    waited_s = 0.0
    while True:
        await asyncio.sleep(every_s)
        waited_s += every_s
        _log.warning(
            "still waiting for ZooKeeper: no server has answered",
            extra=fields(
                connect=session.connect,
                waited_s=round(waited_s, 1),
                limit_s=timeout_ms / 1_000,
                check=session.check,
            ),
        )
