"""Removal of the live znodes of brokers and coordinators that the machine fences. It goes on in
parallel to writing the state.
"""

import asyncio
import logging
from typing import Final

from tidemark.runtime import zk_paths
from tidemark.runtime.inbox import Inbox
from tidemark.runtime.telemetry import fields
from tidemark.runtime.zk_session import ZkError, ZkSession

from controller.shell.zk_election import Term
from controller.shell.zk_store import FencedError, ZkStore

log = logging.getLogger(__name__)

WAITING_MAX: Final = 1_024
_RETRY_S: Final = 0.2


class LiveZnodes:
    """Removals of one term, one at a time, each repeated until it succeeds.

    No request waits for a removal. A late one delays a failover, up to the timeout of the session.
    A process that finds its znode removed makes it again at once, at the same path. That one is
    left alone: a removal whose answer was lost must not fence the process twice.
    """

    def __init__(self, session: ZkSession, store: ZkStore) -> None:
        self._session = session
        self._store = store
        self._waiting: Inbox[zk_paths.LiveZnode] = Inbox(inputs_max=WAITING_MAX)

    def remove(self, live: zk_paths.LiveZnode) -> None:
        """Remove a znode soon. Beyond the bound the timeout of its session removes it."""
        if not self._waiting.put_nowait(live):
            log.warning("live znode not removed, queue full", extra=fields(path=live.path))

    async def run(self, term: Term) -> None:
        """Remove znodes as long as the term lasts."""
        while not term.over:
            await self._remove(await self._waiting.get(), term)

    async def _remove(self, live: zk_paths.LiveZnode, term: Term) -> None:
        made: int | None = None  # the transaction that made the znode
        while not term.over:
            try:
                await self._session.sync(live.path)  # after a reconnect its server may lag
                stat = await self._session.exists(live.path)
                if stat is None or made not in (None, stat.created_zxid):
                    return
                made = stat.created_zxid
                await self._store.remove_live(live, stat.version)
            except FencedError as error:
                term.end(str(error))
            except ZkError as error:
                log.info("live znode not removed yet", extra=fields(reason=str(error)))
                await self._session.wait_connected()
                await asyncio.sleep(_RETRY_S)
            else:
                log.info("live znode removed", extra=fields(path=live.path))
                return
