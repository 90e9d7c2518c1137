"""LeaseKeeper: renews this broker's lease by rewriting its live znode.

Only a write that ZooKeeper confirmed extends the lease, which counts from before the write was
submitted. A ping or the client's view of the session does not: both outlive a session that the
ensemble has already ended.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from tidemark.model.ids import InstantMs
from tidemark.protocol.lease import Lease
from tidemark.runtime.clock import Clock
from tidemark.runtime.telemetry import fields
from tidemark.runtime.zk_session import (
    BadVersionError,
    NoNodeError,
    SessionState,
    ZkError,
    ZkSession,
)

log = logging.getLogger(__name__)

RETRY_S: Final = 0.1


class LiveZnode(NamedTuple):
    """The broker's ephemeral znode; ``version`` is that of the content last confirmed."""

    path: str
    content: bytes
    version: int


class LeaseKeeper:
    """Lease of one broker. Membership makes the znode and passes it on; the keeper rewrites it."""

    def __init__(
        self, session: ZkSession, clock: Clock, *, lease_ms: int, on_gone: Callable[[], None]
    ) -> None:
        """``on_gone`` is called when another session has the znode, or it is gone: make it and
        register again.
        """
        self._session = session
        self._clock = clock
        self._lease = Lease(lease_ms)
        self._lease_ms = lease_ms
        self._on_gone = on_gone
        self._znode: LiveZnode | None = None
        self._made = asyncio.Event()

    def holds(self) -> bool:
        """True if no other broker may lead yet what this one leads."""
        return self._lease.holds(self._clock.boot_ms())

    def made(self, path: str, content: bytes, version: int) -> None:
        """Take over a znode that the present session made, or that was found to belong to it."""
        self._znode = LiveZnode(path, content, version)
        self._made.set()

    def _gone(self) -> None:
        self._znode = None
        self._made.clear()
        self._lease.lost()

    def on_state(self, state: SessionState) -> None:
        """Drop the lease with a session that has ended."""
        if state is SessionState.LOST:
            self._gone()

    async def run(self) -> None:
        """Renew until cancelled."""
        self._session.add_listener(self.on_state)
        try:
            while True:
                await self._made.wait()
                wait_ms = self._lease.next_renewal(self._clock.boot_ms()) - self._clock.boot_ms()
                if wait_ms > 0:
                    await asyncio.sleep(wait_ms / 1_000)
                    continue
                await self._renew()
        finally:
            self._session.remove_listener(self.on_state)
            self._lease.lost()

    async def _renew(self) -> None:
        znode = self._znode
        if znode is None:
            return
        before: InstantMs = self._clock.boot_ms()
        self._lease.begin(before)
        try:
            stat = await self._session.set(znode.path, znode.content, version=znode.version)
        except (NoNodeError, BadVersionError) as failure:
            await self._look_again(znode, failure)
        except ZkError as failure:
            self._lease.failed()
            log.info("lease not renewed", extra=fields(reason=str(failure)))
            await asyncio.sleep(RETRY_S)
            await self._look_again(znode, failure)
        else:
            if self._znode is znode:  # else the session that confirmed it has ended
                self._znode = znode._replace(version=stat.version)
                self._lease.confirmed()

    async def _look_again(self, znode: LiveZnode, failure: ZkError) -> None:
        """Look up the owner and the version of the znode: a write with an unknown outcome may have
        happened.
        """
        self._lease.failed()
        try:
            _, stat = await self._session.get(znode.path)
        except NoNodeError:
            if self._znode is znode:
                log.warning("live znode is gone", extra=fields(path=znode.path))
                self._gone()
                self._on_gone()
            return
        except ZkError as again:
            log.info("lease not renewed", extra=fields(reason=str(again)))
            await asyncio.sleep(RETRY_S)
            return
        if self._znode is not znode:
            return
        if stat.owner_session != self._session.session_id:
            log.warning("live znode is another session's", extra=fields(reason=str(failure)))
            self._gone()
            self._on_gone()
            return
        self._znode = znode._replace(version=stat.version)
