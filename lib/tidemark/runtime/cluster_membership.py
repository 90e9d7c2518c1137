"""Membership of a broker or a coordinator in the cluster: live znode, registration, metadata feed.

    live znode -> registration with the controller -> feed

The sequence starts again when the session is lost, the znode is gone or the registration is stale.
``Member`` holds the differences between brokers and coordinators.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final, Protocol

from tidemark.model.backoff import spread
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
        """Name of the member's subscription to the metadata."""
        ...

    @property
    def epoch(self) -> BrokerEpoch:
        """Epoch of the member's metadata subscription; -1 if it has none."""
        ...

    @property
    def live_parent(self) -> str:
        """Parent of the live znodes of the member's kind."""
        ...

    @property
    def live_path(self) -> str:
        """Path of the member's live znode."""
        ...

    def live_content(self) -> bytes:
        """Return the content of the live znode."""
        ...

    def announced(self, version: int) -> None:
        """Take note that the live znode exists, with this version."""
        ...

    def earlier(self, name: str) -> str | None:
        """Return the path of a live znode if an earlier incarnation of this member created it."""
        ...

    def is_dead(self, path: str, content: bytes) -> bool:
        """True if the earlier incarnation with this znode can no longer be running."""
        ...

    async def register(self) -> None:
        """Register with the controller, and keep the epoch that it grants. Raises TidemarkError;
        ZkError if the member must join again.
        """
        ...

    def refusal(self, refused: TidemarkError) -> ServiceError:
        """Return the error that ends the process."""
        ...


class ClusterMembership:
    """Membership of one process, kept up while ``run`` runs."""

    def __init__(self, session: ZkSession, controller: ControllerClient, member: Member) -> None:
        self.is_registered = False
        """True while this incarnation is registered, as far as this process has seen."""
        self._session = session
        self._controller = controller
        self._member = member
        self._out = asyncio.Event()
        self._feed: asyncio.Task[None] | None = None

    async def run(self, metadata: MetadataCache, *duties: Coroutine[Any, Any, None]) -> None:
        """Join, follow the metadata, and join again when necessary; run ``duties`` meanwhile.
        Raises ServiceError if this process may not join.
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
        """Create the live znode and register again."""
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
        """End the subscription: it belongs to one registration."""
        if self._feed is not None:
            self._feed.cancel()
            await asyncio.wait((self._feed,))
            self._feed = None

    async def _join(self) -> None:
        """Create the live znode, then register: the controller checks one against the other."""
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
                await asyncio.sleep(spread(RETRY_S, self._controller.dice()))
            else:
                return

    async def _announce(self) -> None:
        path, version = self._member.live_path, 0
        await self._session.ensure_path(self._member.live_parent)
        await self._remove_stale_znodes()
        try:
            await self._session.create(path, self._member.live_content(), ephemeral=True)
        except NodeExistsError:
            # An earlier session has not expired, or the response to a create was lost.
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
        """Remove live znodes of earlier incarnations that are dead. A restart after kill -9 need
        not wait until their sessions expire, and takes seconds less.
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
        """Register. Raises ZkError if the process must join again, ServiceError if it may not."""
        try:
            await self._member.register()
        except TidemarkError as refused:
            if refused.code is ErrorCode.REQUEST_TIMED_OUT:
                log.warning("no controller yet", extra=fields(reason=refused.message))
                raise ZkError(refused.message) from refused
            raise self._member.refusal(refused) from refused
