"""Election: the active replica is the one that created /controller and raised /controller_epoch.

Both are one transaction. ZooKeeper's answers and events become the beginning and end of a term.
"""

import asyncio
import logging
from typing import Final, NamedTuple

from tidemark.model.ids import ControllerEpoch, ControllerId
from tidemark.runtime import zk_paths
from tidemark.runtime.telemetry import fields
from tidemark.runtime.witness import ProcessZnodes
from tidemark.runtime.zk_session import (
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    SessionState,
    SetData,
    ZkError,
    ZkSession,
)

from controller.shell import znodes

log = logging.getLogger(__name__)

_RETRY_S: Final = 0.2


class ActiveController(NamedTuple):
    """Content of /controller."""

    controller_id: ControllerId
    controller_epoch: ControllerEpoch
    grpc_endpoint: str


class Term:
    """One term of the active controller. It ends once, for one reason."""

    def __init__(self, controller_epoch: ControllerEpoch, epoch_version: int) -> None:
        self.controller_epoch = controller_epoch
        self.epoch_version = epoch_version
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def over(self) -> bool:
        """True if the term has ended."""
        return self._ended.done()

    def end(self, reason: str) -> None:
        """End the term. The first reason counts."""
        if not self._ended.done():
            self._ended.set_result(reason)

    async def wait_ended(self) -> str:
        """Wait for the end of the term, and return its reason."""
        return await asyncio.shield(self._ended)


class ZkElection:
    """Elections of one replica, one after the other."""

    def __init__(self, session: ZkSession, controller_id: ControllerId) -> None:
        self._session = session
        self._controller_id = controller_id
        self.grpc_endpoint = ""
        self.active: ActiveController | None = None
        self._served: ControllerEpoch | None = None
        """Epoch of the last term."""

    async def campaign(self) -> Term:
        """Wait until this replica is the active controller, reached at ``grpc_endpoint``."""
        assert self.grpc_endpoint, "say where this replica is reached first"
        while True:
            await self._session.wait_connected()
            changed = asyncio.Event()
            try:
                term = await self._try(changed)
            except (NodeExistsError, BadVersionError):
                continue  # another replica was faster: read which
            except ZkError as error:
                # NoNodeError too: without the chroot the next attempt would fail at once.
                log.info("election interrupted", extra=fields(reason=str(error)))
                await asyncio.sleep(_RETRY_S)
                continue
            if term is not None:
                self._served = term.controller_epoch
                return term
            await changed.wait()

    async def _try(self, changed: asyncio.Event) -> Term | None:
        stat = await self._session.exists(zk_paths.CONTROLLER, changed.set)
        if stat is None:
            self.active = None
            return await self._claim()
        try:
            data, stat = await self._session.get(zk_paths.CONTROLLER)
        except NoNodeError:
            return None  # it was just removed, and the watch fires
        self.active = _read_active(data)
        if stat.owner_session != self._session.session_id:
            return None
        if self.active.controller_epoch == self._served:
            # Its resignation failed. Positions of the feed and writes under way belong to the term
            # before: the next one needs an epoch of its own. The watch tells when this is gone.
            await self._remove(self._served)
            return None
        # This replica's: the claim succeeded although its answer was lost.
        epoch, version = await self._read_epoch()
        return Term(epoch, version) if epoch == self.active.controller_epoch else None

    async def _claim(self) -> Term:
        """Raise the epoch and create /controller in one transaction."""
        present, version = await self._read_epoch()
        epoch = ControllerEpoch(present + 1)
        claim = ActiveController(self._controller_id, epoch, self.grpc_endpoint)
        content = zk_paths.encode(claim._asdict())
        raised = {"controller_epoch": epoch, "controller_id": self._controller_id}
        stats = await self._session.multi(
            [
                SetData(zk_paths.CONTROLLER_EPOCH, zk_paths.encode(raised), version),
                Create(zk_paths.CONTROLLER, content, ephemeral=True),
            ]
        )
        assert stats[0] is not None, "a SetData answers its stat"
        self.active = claim
        return Term(epoch, stats[0].version)

    def znodes(self, term: Term) -> ProcessZnodes:
        """Return the znode that this replica leaves behind if it ends in this term. An election of
        another replica raises the version of /controller_epoch.
        """
        return ProcessZnodes(
            self._session.connect,
            zk_paths.CONTROLLER,
            guard=zk_paths.CONTROLLER_EPOCH,
            guard_version=term.epoch_version,
            access=self._session.access,
        )

    async def _read_epoch(self) -> tuple[ControllerEpoch, int]:
        try:
            data, stat = await self._session.get(zk_paths.CONTROLLER_EPOCH)
        except NoNodeError:
            first = zk_paths.encode({"controller_epoch": 0, "controller_id": -1})
            await self._session.create(zk_paths.CONTROLLER_EPOCH, first)
            return ControllerEpoch(0), 0
        content = zk_paths.decode(zk_paths.CONTROLLER_EPOCH, data)
        with znodes.reading(zk_paths.CONTROLLER_EPOCH):
            return ControllerEpoch(content["controller_epoch"]), stat.version

    async def watch(self, term: Term) -> None:
        """End the term when its session or its znode is gone, or when ZooKeeper cannot be reached
        for a session's timeout.
        """
        loop = asyncio.get_running_loop()
        session_s = self._session.session_timeout_ms / 1000
        silence: asyncio.TimerHandle | None = None

        def on_state(state: SessionState) -> None:
            nonlocal silence
            if silence is not None:
                silence.cancel()
                silence = None
            if state is SessionState.LOST:
                term.end("the ZooKeeper session expired")
            elif state is SessionState.SUSPENDED:
                words = f"no connection to ZooKeeper for {session_s:g} s"
                silence = loop.call_later(session_s, term.end, words)

        self._session.add_listener(on_state)
        try:
            on_state(self._session.state)
            while not term.over:
                await self._watch_znode(term)
        finally:
            self._session.remove_listener(on_state)
            if silence is not None:
                silence.cancel()

    async def _watch_znode(self, term: Term) -> None:
        changed = asyncio.Event()
        try:
            data, _ = await self._session.get(zk_paths.CONTROLLER, changed.set)
        except NoNodeError:
            term.end("/controller was removed")
            return
        except ZkError:
            await asyncio.sleep(_RETRY_S)  # the session may be connected, and the error last
            await self._session.wait_connected()
            return
        self.active = _read_active(data)
        if self.active.controller_epoch != term.controller_epoch:
            term.end(f"controller {self.active.controller_id} is active")
            return
        await changed.wait()

    async def resign(self, term: Term) -> None:
        """Remove /controller if it is still of this term, so that another replica takes over."""
        try:
            await self._remove(term.controller_epoch)
        except ZkError as error:
            log.info("resignation in ZooKeeper failed", extra=fields(reason=str(error)))

    async def _remove(self, epoch: ControllerEpoch) -> None:
        """Remove /controller if it is of this epoch. Another replica's, which may take its place at
        any moment, has the same path and version, but its claim has raised the epoch.
        """
        _, version = await self._read_epoch()
        data, _ = await self._session.get(zk_paths.CONTROLLER)
        if _read_active(data).controller_epoch == epoch:
            check = Check(zk_paths.CONTROLLER_EPOCH, version)
            await self._session.multi([check, Delete(zk_paths.CONTROLLER)])


def _read_active(data: bytes) -> ActiveController:
    content = zk_paths.decode(zk_paths.CONTROLLER, data)
    with znodes.reading(zk_paths.CONTROLLER):
        return ActiveController(
            ControllerId(content["controller_id"]),
            ControllerEpoch(content["controller_epoch"]),
            content["grpc_endpoint"],
        )
