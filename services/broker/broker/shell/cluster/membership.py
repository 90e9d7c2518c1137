"""Membership: this broker's ephemeral znode, its registration with the controller, and the metadata
feed.

The znode's path holds the incarnation id, drawn once for each process. When the ZooKeeper session
was lost, or the controller has removed the znode, the broker makes it again and registers with a
new broker epoch. Meanwhile it continues to serve.
"""

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import BrokerEpoch
from tidemark.model.metadata import Endpoint
from tidemark.model.metadata_change import Kind, MetadataChange
from tidemark.runtime import zk_paths
from tidemark.runtime.cluster_membership import ClusterMembership
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.service import ServiceError
from tidemark.runtime.telemetry import fields
from tidemark.runtime.zk_session import NoNodeError, ZkError, ZkSession
from tidemark_wire.v1 import controller_pb2 as pb

from broker.shell.cluster.held_logs import held_logs
from broker.shell.cluster.internal_topics import wanted_topics
from broker.shell.cluster.registration import Registration
from broker.shell.facts import BrokerFacts
from broker.shell.subscribers import MEMBERSHIP
from broker.storage.log_manager import LogManager

log = logging.getLogger(__name__)

REGISTER_TIMEOUT_S: Final = 60.0
"""Longest wait for the session of an older incarnation to end, and for a controller."""
FEATURE_LEVEL: Final = 1
_EXIT_CODES: Final = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: ExitCode.IO,
    ErrorCode.INVALID_CONFIG: ExitCode.CONFIG,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """Content of a registration that is known before the broker joins."""

    endpoints: tuple[Endpoint, ...]
    grpc_endpoint: str
    rack: str
    machine: str
    boot_id: str
    log_dir_ids: tuple[bytes, ...]
    clean_stop: bool
    previous_broker_epoch: int


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
        self._membership = ClusterMembership(session, controller, self)
        self.cluster_id = cluster_id
        self._on_joined = on_joined
        self._on_live = on_live
        self._live_version: int | None = None
        """Version of the live znode until ``on_live`` is called."""
        metadata.subscribe(MEMBERSHIP, Kind.POSITION, self._note_registration)

    async def run(self, announcement: Announcement) -> None:
        """Join, follow the metadata, and join again when that becomes necessary. Raises
        ServiceError when this broker may not join.
        """
        self._announcement = announcement
        await self._membership.run(self._metadata)

    def rejoin(self) -> None:
        """Make the live znode and register again: the znode is gone, the session may not be."""
        self._membership.rejoin()

    def _note_registration(self, change: MetadataChange) -> None:
        version = self._live_version
        if version is None or not self._membership.is_registered:
            return
        shown = change.image.brokers.get(self._registration.broker_id)
        if shown is not None and shown.broker_epoch == self._registration.broker_epoch:
            self._on_live(self.live_path, self.live_content(), version)
            self._live_version = None

    # -- Member

    @property
    def subscriber(self) -> str:
        """See Member."""
        return f"broker-{self._registration.broker_id}"

    @property
    def epoch(self) -> BrokerEpoch:
        """See Member."""
        return BrokerEpoch(self._registration.broker_epoch)

    @property
    def live_parent(self) -> str:
        """See Member."""
        return zk_paths.LIVE_BROKERS

    @property
    def live_path(self) -> str:
        """See Member."""
        return zk_paths.LiveBroker(self._registration.broker_id, self._incarnation_id).path

    def live_content(self) -> bytes:
        """See Member."""
        return zk_paths.encode({"log_dirs": self._log_dirs()})

    def announced(self, version: int) -> None:
        """See Member."""
        self._live_version = version

    def earlier(self, name: str) -> str | None:
        """See Member."""
        live = zk_paths.LiveBroker.parse(name)
        is_ours = live.broker_id == self._registration.broker_id
        return live.path if is_ours and live.incarnation_id != self._incarnation_id else None

    def is_dead(self, path: str, content: bytes) -> bool:
        """See Member. This process holds the locks of its log directories, so that another process
        that held them is dead.
        """
        return not set(self._log_dirs()).isdisjoint(zk_paths.decode(path, content)["log_dirs"])

    def refusal(self, refused: TidemarkError) -> ServiceError:
        """See Member."""
        return ServiceError(
            f"broker {self._registration.broker_id} may not join: {refused.message}",
            _EXIT_CODES.get(refused.code, ExitCode.UNAVAILABLE),
        )

    async def register(self) -> None:
        """See Member."""
        try:
            epoch, cluster_id = await self._controller.register_broker(
                self._request(), REGISTER_TIMEOUT_S
            )
        except TidemarkError as refused:
            if refused.code is not ErrorCode.STALE_BROKER_EPOCH:
                raise
            # Another process with this broker's id was registered after the znode was made, and is
            # gone.
            await self._session.delete(self.live_path)
            raise ZkError(refused.message) from refused
        self._registration.broker_epoch = epoch
        self.cluster_id = cluster_id
        await self._remove_ended()
        self._on_joined(cluster_id)
        log.info("registered", extra=fields(broker_epoch=epoch, cluster_id=cluster_id))

    async def _remove_ended(self) -> None:
        """Remove the records of earlier processes of this broker id that have ended: this one is
        registered in their place. Raises ZkError.
        """
        try:
            names, _ = await self._session.children(zk_paths.ENDED_BROKERS)
        except NoNodeError:
            return  # the controller is of an earlier release
        for name in names:
            ended = zk_paths.LiveBroker.parse(name, zk_paths.ENDED_BROKERS)
            is_ours = ended.broker_id == self._registration.broker_id
            if is_ours and ended.incarnation_id != self._incarnation_id:
                with contextlib.suppress(NoNodeError):
                    await self._session.delete(ended.ended_path)

    def _announced(self) -> Announcement:
        assert self._announcement is not None, "run() is given the announcement"
        return self._announcement

    def _log_dirs(self) -> list[str]:
        return [directory.hex() for directory in self._announced().log_dir_ids]

    def _request(self) -> pb.RegisterBrokerRequest:
        registration, announcement = self._registration, self._announced()
        return pb.RegisterBrokerRequest(
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
                    for one in announcement.endpoints
                ],
                grpc_endpoint=announcement.grpc_endpoint,
                rack=announcement.rack,
                node=announcement.machine,
            ),
            previous_broker_epoch=announcement.previous_broker_epoch
            if registration.broker_epoch < 0
            else registration.broker_epoch,
            clean_stop=announcement.clean_stop,
            boot_id=announcement.boot_id,
            log_dir_ids=list(announcement.log_dir_ids),
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
