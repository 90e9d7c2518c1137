"""Membership: this broker's ephemeral znode, its registration with the controller, and the metadata
feed.

The znode's path holds the incarnation id, drawn once for each process. When the ZooKeeper session
was lost, or the controller has removed the znode, it is made again and the broker registers anew,
with a new broker epoch; what it serves goes on meanwhile, and so does the feed.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import BrokerEpoch
from tidemark.model.metadata import Endpoint
from tidemark.model.metadata_change import Kind, MetadataChange
from tidemark.runtime import zk_paths
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.exit_codes import ExitCode
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
from tidemark_wire.v1 import controller_pb2 as pb

from broker.shell.cluster.held_logs import held_logs
from broker.shell.cluster.internal_topics import wanted_topics
from broker.shell.cluster.registration import Registration
from broker.shell.facts import BrokerFacts
from broker.shell.subscribers import MEMBERSHIP
from broker.storage.log_manager import LogManager

log = logging.getLogger(__name__)

REGISTER_TIMEOUT_S: Final = 60.0
"""How long an older incarnation's session is waited for, and a controller looked for."""
RETRY_S: Final = 0.2
FEATURE_LEVEL: Final = 1
_EXIT_CODES: Final = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: ExitCode.IO,
    ErrorCode.INVALID_CONFIG: ExitCode.CONFIG,
}


class Announcement:
    """What a broker says of itself when it registers."""

    def __init__(
        self,
        *,
        endpoints: Sequence[Endpoint],
        grpc_endpoint: str,
        rack: str,
        machine: str,
        boot_id: str,
        log_dir_ids: Sequence[bytes],
        clean_stop: bool,
        previous_broker_epoch: int,
    ) -> None:
        self.endpoints = tuple(endpoints)
        self.grpc_endpoint = grpc_endpoint
        self.rack = rack
        self.machine = machine
        self.boot_id = boot_id
        self.log_dir_ids = tuple(log_dir_ids)
        self.clean_stop = clean_stop
        self.previous_broker_epoch = previous_broker_epoch


class Membership:
    """Keeps one broker a member of the cluster for as long as ``run`` runs."""

    def __init__(
        self,
        facts: BrokerFacts,
        registration: Registration,
        session: ZkSession,
        controller: ControllerClient,
        *,
        metadata: MetadataCache,
        log_managers: Sequence[LogManager],
        incarnation_id: bytes,
        cluster_id: str,
        on_joined: Callable[[str], None],
        on_live: Callable[[str, bytes, int], None],
    ) -> None:
        """``on_joined`` is called with the cluster's id once registered. ``on_live`` is called with
        path, content and version of the live znode when it exists and the feed has shown the
        registration that came with it: before that others may lead what this broker leads.
        """
        self._config = facts.config
        self._registration = registration
        self._metadata = metadata
        self._log_managers = log_managers
        self._session = session
        self._controller = controller
        self._announcement: Announcement | None = None
        self._incarnation_id = incarnation_id
        self._out = asyncio.Event()
        self._feed: asyncio.Task[None] | None = None
        self._is_registered = False
        self.cluster_id = cluster_id
        self._on_joined = on_joined
        self._on_live = on_live
        self._live: tuple[str, bytes, int] | None = None
        metadata.subscribe(MEMBERSHIP, Kind.POSITION, self._note_registration)

    async def run(self, announcement: Announcement) -> None:
        """Join, follow the feed, join again when that became necessary. Raises ServiceError when it
        may not join.
        """
        self._announcement = announcement
        self._session.add_listener(self._on_state)
        follower = MetadataFollower(
            self._controller,
            self._metadata,
            subscriber=f"broker-{self._registration.broker_id}",
            broker_epoch=lambda: BrokerEpoch(self._registration.broker_epoch),
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    await self._join()
                    self._feed = tasks.create_task(self._follow(follower), name="feed")
                    await self._out.wait()
        finally:
            self._session.remove_listener(self._on_state)

    def _note_registration(self, change: MetadataChange) -> None:
        if self._live is None or not self._is_registered:
            return
        shown = change.image.brokers.get(self._registration.broker_id)
        if shown is not None and shown.broker_epoch == self._registration.broker_epoch:
            self._on_live(*self._live)
            self._live = None

    def rejoin(self) -> None:
        """The live znode is gone though the session may not be: make it again, register again."""
        self._out.set()

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            log.warning("ZooKeeper session lost")
            self._out.set()

    async def _follow(self, follower: MetadataFollower) -> None:
        """Until cancelled, or until the controller knows a newer registration."""
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
        self._is_registered = False
        while True:
            self._out.clear()
            await self._session.wait_connected()
            try:
                await self._announce_life()
                await self._stop_feed()
                await self._register()
                self._is_registered = True
            except ZkError as failure:
                log.info("joining again", extra=fields(reason=str(failure)))
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def _announce_life(self) -> None:
        path = self._live_path
        await self._session.ensure_path(zk_paths.LIVE_BROKERS)
        await self._bury_predecessor()
        content = zk_paths.encode({"log_dirs": self._log_dirs()})
        version = 0
        try:
            await self._session.create(path, content, ephemeral=True)
        except NodeExistsError:
            # Ours: of an earlier session that has not expired yet, or of a create whose answer was
            # lost.
            try:
                _, stat = await self._session.get(path)
                if stat.owner_session != self._session.session_id:
                    await self._session.delete(path)
                    raise UnknownOutcomeError(f"{path} belonged to an earlier session") from None
            except NoNodeError:
                raise UnknownOutcomeError(f"{path} went just now") from None
            version = stat.version
        self._live = (path, content, version)

    @property
    def _live_path(self) -> str:
        return zk_paths.LiveBroker(self._registration.broker_id, self._incarnation_id).path

    def _announced(self) -> Announcement:
        assert self._announcement is not None, "run() is given what is announced"
        return self._announcement

    def _log_dirs(self) -> list[str]:
        return [directory.hex() for directory in self._announced().log_dir_ids]

    async def _bury_predecessor(self) -> None:
        """Remove the znode of a process that held our log directories: we hold their locks, so that
        it is dead. Its session need not expire first, and kill -9 costs seconds less.
        """
        ours = set(self._log_dirs())
        names, _ = await self._session.children(zk_paths.LIVE_BROKERS)
        for name in names:
            live = zk_paths.LiveBroker.parse(name)
            if live.broker_id != self._registration.broker_id or (
                live.incarnation_id == self._incarnation_id
            ):
                continue
            try:
                data, _ = await self._session.get(live.path)
                if ours.isdisjoint(zk_paths.decode(live.path, data)["log_dirs"]):
                    continue  # another machine claims our id: the controller will say so
                await self._session.delete(live.path)
            except NoNodeError:
                continue
            log.info("predecessor's znode removed", extra=fields(path=live.path))

    async def _register(self) -> None:
        registration, said = self._registration, self._announced()
        request = pb.RegisterBrokerRequest(
            broker=pb.BrokerInfo(
                broker_id=registration.broker_id,
                broker_epoch=registration.broker_epoch,
                incarnation_id=self._incarnation_id,
                endpoints=[
                    pb.Endpoint(
                        listener=one.listener,
                        host=one.host,
                        port=one.port,
                        security_protocol=one.security_protocol,
                    )
                    for one in said.endpoints
                ],
                grpc_endpoint=said.grpc_endpoint,
                rack=said.rack,
                node=said.machine,
            ),
            previous_broker_epoch=said.previous_broker_epoch
            if registration.broker_epoch < 0
            else registration.broker_epoch,
            clean_stop=said.clean_stop,
            boot_id=said.boot_id,
            log_dir_ids=list(said.log_dir_ids),
            cluster_id=self.cluster_id,
            feature_level_max=FEATURE_LEVEL,
            lease_ms=self._config.lease_ms,
            internal_topics=[
                pb.InternalTopic(
                    name=name,
                    replication_factor=wanted.replication_factor,
                    min_insync_replicas=wanted.min_insync_replicas,
                )
                for name, wanted in wanted_topics(self._config).items()
            ],
            held=held_logs(self._log_managers),
        )
        try:
            epoch, cluster_id = await self._controller.register_broker(request, REGISTER_TIMEOUT_S)
        except TidemarkError as refused:
            if refused.code is ErrorCode.REQUEST_TIMED_OUT:
                log.warning("no controller yet", extra=fields(reason=refused.message))
                raise ZkError(refused.message) from refused
            if refused.code is ErrorCode.STALE_BROKER_EPOCH:
                # Another process of our id was registered after we made our znode, and is gone.
                await self._session.delete(self._live_path)
                raise ZkError(refused.message) from refused
            raise ServiceError(
                f"broker {registration.broker_id} may not join: {refused.message}",
                _EXIT_CODES.get(refused.code, ExitCode.UNAVAILABLE),
            ) from refused
        registration.broker_epoch = epoch
        self.cluster_id = cluster_id
        self._on_joined(cluster_id)
        log.info("registered", extra=fields(broker_epoch=epoch, cluster_id=cluster_id))
