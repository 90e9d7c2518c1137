"""Membership of a broker or a coordinator in the cluster: live znode, registration, metadata feed.

    live znode -> registration with the controller -> feed, until the session is lost, the znode is
    gone or the registration is stale; then again

``Member`` has what differs between brokers and coordinators.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final, Protocol

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import BrokerEpoch
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.metadata_follower import MetadataFollower
from tidemark.runtime.service import ServiceError
from tidemark.runtime.telemetry import fields
from tidemark.runtime.zk_session import (
    NodeExistsError,
    NoNodeError,
    SessionState,
    UnknownOutcomeError,
    ZkError,
    ZkSession,
)

log = logging.getLogger(__name__)

RETRY_S: Final = 0.2


class Member(Protocol):
    """A process that joins the cluster."""

    @property
    def subscriber(self) -> str:
        """Name of its subscription to the metadata."""
        ...

    @property
    def epoch(self) -> BrokerEpoch:
        """Epoch under which it follows the metadata; -1: none."""
        ...

    @property
    def live_parent(self) -> str:
        """Parent of the live znodes of its kind."""
        ...

    @property
    def live_path(self) -> str:
        """Its live znode."""
        ...

    def live_content(self) -> bytes:
        """Content of its live znode."""
        ...

    def announced(self, version: int) -> None:
        """The live znode exists, with this version."""
        ...

    def earlier(self, name: str) -> str | None:
        """Path of a live znode if it is one of an earlier incarnation of this member."""
        ...

    def is_dead(self, path: str, content: bytes) -> bool:
        """True if the earlier incarnation with this znode cannot run any longer."""
        ...

    async def register(self) -> None:
        """Register with the controller, and keep the epoch that it grants. Raises TidemarkError,
        and ZkError to join again.
        """
        ...

    def refusal(self, refused: TidemarkError) -> ServiceError:
        """Error to end the process with."""
        ...


class ClusterMembership:
    """Keeps one process a member of the cluster for as long as ``run`` runs."""

    def __init__(self, session: ZkSession, controller: ControllerClient, member: Member) -> None:
        self.is_registered = False
        """True while the controller has this incarnation, as far as this process has seen."""
        self._session = session
        self._controller = controller
        self._member = member
        self._out = asyncio.Event()
        self._feed: asyncio.Task[None] | None = None

    async def run(self, metadata: MetadataCache, *duties: Coroutine[Any, Any, None]) -> None:
        """Join, follow the metadata, and join again when that becomes necessary; run ``duties``
        meanwhile. Raises ServiceError when this process may not join.
        """
        follower = MetadataFollower(
            self._controller,
            metadata,
            subscriber=self._member.subscriber,
            broker_epoch=lambda: self._member.epoch,
        )
        self._session.add_listener(self._on_state)
        try:
            async with asyncio.TaskGroup() as tasks:
                for duty in duties:
                    tasks.create_task(duty, name="membership-duty")
                while True:
                    await self._join()
                    self._feed = tasks.create_task(self._follow(follower), name="feed")
                    await self._out.wait()
        finally:
            self._session.remove_listener(self._on_state)

    def rejoin(self) -> None:
        """Make the live znode and register again."""
        self._out.set()

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            log.warning("ZooKeeper session lost")
            self._out.set()

    async def _follow(self, follower: MetadataFollower) -> None:
        """Follow until cancelled, or until the controller has a newer registration."""
        try:
            await follower.run()
        except TidemarkError as error:
            if error.code is not ErrorCode.STALE_BROKER_EPOCH:
                raise
            log.warning("registration is stale", extra=fields(reason=error.message))
            self._out.set()

    async def _stop_feed(self) -> None:
        """A subscription belongs to one registration."""
        if self._feed is not None:
            self._feed.cancel()
            await asyncio.wait((self._feed,))
            self._feed = None

    async def _join(self) -> None:
        """Live znode first, then the registration, which the controller checks against it."""
        self.is_registered = False
        while True:
            self._out.clear()
            await self._session.wait_connected()
            try:
                await self._announce()
                await self._stop_feed()
                await self._register()
                self.is_registered = True
            except ZkError as failure:
                log.info("joining again", extra=fields(reason=str(failure)))
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def _announce(self) -> None:
        path, version = self._member.live_path, 0
        await self._session.ensure_path(self._member.live_parent)
        await self._remove_stale_znodes()
        try:
            await self._session.create(path, self._member.live_content(), ephemeral=True)
        except NodeExistsError:
            # Made by an earlier session that has not expired, or by a create whose answer was lost.
            try:
                _, stat = await self._session.get(path)
                if stat.owner_session != self._session.session_id:
                    await self._session.delete(path)
                    raise UnknownOutcomeError(f"{path} belonged to an earlier session") from None
            except NoNodeError:
                raise UnknownOutcomeError(f"{path} was just removed") from None
            version = stat.version
        self._member.announced(version)

    async def _remove_stale_znodes(self) -> None:
        """Remove live znodes of earlier incarnations that are dead: their sessions need not expire
        first, and a restart after kill -9 takes seconds less.
        """
        names, _ = await self._session.children(self._member.live_parent)
        for path in filter(None, map(self._member.earlier, names)):
            try:
                content, _ = await self._session.get(path)
                if not self._member.is_dead(path, content):
                    continue  # another machine claims this id: the controller refuses one of them
                await self._session.delete(path)
            except NoNodeError:
                continue
            log.info("predecessor's znode removed", extra=fields(path=path))

    async def _register(self) -> None:
        """Raises ZkError: join again; ServiceError: this process may not join."""
        try:
            await self._member.register()
        except TidemarkError as refused:
            if refused.code is ErrorCode.REQUEST_TIMED_OUT:
                log.warning("no controller yet", extra=fields(reason=refused.message))
                raise ZkError(refused.message) from refused
            raise self._member.refusal(refused) from refused
