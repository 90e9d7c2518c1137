"""CoordinatorSession: membership of a coordinator replica in the cluster, and its shards.

Membership is an ephemeral znode, a registration with the controller and the metadata feed. The
path of the znode holds the incarnation id, drawn once for each process. When the ZooKeeper session
is lost, or the controller has removed the znode, the replica creates it and registers again. Its
shards may have other owners by then; the logs fence later writes of this replica.
"""

import asyncio
import logging
import os
from typing import Any, Final

from tidemark_wire.v1 import controller_pb2 as pb

from tidemark.model.backoff import spread
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import BrokerEpoch
from tidemark.model.metadata import ClusterImage, FeedPosition
from tidemark.runtime import zk_paths
from tidemark.runtime.cluster_membership import RETRY_S, ClusterMembership
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.metadata_wire import read_position
from tidemark.runtime.producer_ids import ProducerIdBlock
from tidemark.runtime.service import ServiceError
from tidemark.runtime.telemetry import fields
from tidemark.runtime.zk_session import (
    SessionLostError,
    SessionState,
    ZkError,
    ZkSession,
)

log = logging.getLogger(__name__)

INCARNATION_BYTES: Final = 16
FEATURE_LEVEL: Final = 1
REGISTER_TIMEOUT_S: Final = 60.0
"""Time to wait for the end of an older incarnation's session, and for a controller."""
CALL_TIMEOUT_S: Final = 5.0
_DUPLICATE_RETRY_S: Final = 0.2
_REGISTERED_LATER: Final = (ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.REQUEST_TIMED_OUT)
_NOT_REGISTERED: Final = BrokerEpoch(-1)


class CoordinatorSession:
    """Membership of one coordinator replica, kept up while ``run`` runs.

    The creators of ``session`` and ``controller`` start, stop and close them.
    """

    def __init__(
        self,
        session: ZkSession,
        controller: ControllerClient,
        *,
        kind: str,
        coordinator_id: int,
        grpc_endpoint: str,
        incarnation_id: bytes = b"",
    ) -> None:
        """``grpc_endpoint``: address at which this replica listens already, for brokers."""
        self.kind = kind
        self.coordinator_id = coordinator_id
        self.incarnation_id = incarnation_id or os.urandom(INCARNATION_BYTES)
        self.grpc_endpoint = grpc_endpoint
        self.cluster_id = ""
        self._session = session
        self._controller = controller
        self._epoch = _NOT_REGISTERED
        self._membership = ClusterMembership(session, controller, self)
        self._metadata = MetadataCache()

    @property
    def image(self) -> ClusterImage:
        """Latest metadata; the empty image before the first snapshot."""
        return self._metadata.image

    @property
    def is_registered(self) -> bool:
        """True while this incarnation is registered, as far as this process has seen."""
        return self._membership.is_registered

    def problem(self) -> str | None:
        """Reason why this replica is not a member of the cluster; None if it is."""
        if self._session.state is not SessionState.CONNECTED:
            return f"no ZooKeeper session at {self._session.connect}"
        if not self.is_registered:
            return "not registered with the controller yet"
        if not self._is_shown(self.image):
            return "the metadata does not show this replica yet"
        return None

    def owned_shards(self) -> frozenset[int]:
        """Return the shards that this incarnation owns according to the feed."""
        image = self.image
        if not self._is_shown(image):
            return frozenset()
        owners = image.shards.get(self.kind, ())
        return frozenset(one.shard for one in owners if one.coordinator_id == self.coordinator_id)

    def _is_shown(self, image: ClusterImage) -> bool:
        shown = image.coordinators.get((self.kind, self.coordinator_id))
        return shown is not None and shown.incarnation_id == self.incarnation_id

    async def wait_for(self, position: FeedPosition, timeout_s: float) -> bool:
        """Wait until the image is at ``position`` or later; return True if it was in time."""
        return await self._metadata.wait_for(position, timeout_s)

    # -- membership

    async def run(self, metadata: MetadataCache) -> None:
        """Join, follow the feed, and join again when necessary, until cancelled.

        ``metadata`` takes the images. Raises ServiceError if this replica may not join.
        """
        self._metadata = metadata
        await self._membership.run(metadata, self._watch_znode())

    def rejoin(self) -> None:
        """Create the znode and register again: the controller has dropped this replica."""
        self._membership.rejoin()

    async def _watch_znode(self) -> None:
        """Rejoin when the controller has removed the znode although the session lives."""
        while True:
            changed = asyncio.Event()
            try:
                stat = await self._session.exists(self._live.path, changed.set)
            except ZkError:
                await self._session.wait_connected()
                await asyncio.sleep(spread(RETRY_S, self._controller.dice()))
                continue
            if stat is None and self.is_registered:
                log.warning("live znode is gone", extra=fields(path=self._live.path))
                self.rejoin()
            await changed.wait()

    # -- Member

    @property
    def subscriber(self) -> str:
        """See Member."""
        return f"{self.kind}-coordinator-{self.coordinator_id}"

    @property
    def epoch(self) -> BrokerEpoch:
        """See Member."""
        return self._epoch if self.is_registered else _NOT_REGISTERED

    @property
    def live_parent(self) -> str:
        """See Member."""
        return zk_paths.live_coordinators(self.kind)

    @property
    def live_path(self) -> str:
        """See Member."""
        return self._live.path

    @property
    def _live(self) -> zk_paths.LiveCoordinator:
        return zk_paths.LiveCoordinator(self.kind, self.coordinator_id, self.incarnation_id)

    def live_content(self) -> bytes:
        """See Member."""
        return zk_paths.encode({"grpc_endpoint": self.grpc_endpoint})

    def announced(self, version: int) -> None:
        """See Member."""

    def earlier(self, name: str) -> str | None:
        """See Member."""
        live = zk_paths.LiveCoordinator.parse(self.kind, name)
        is_ours = live.coordinator_id == self.coordinator_id
        return live.path if is_ours and live.incarnation_id != self.incarnation_id else None

    def is_dead(self, path: str, content: bytes) -> bool:
        """See Member. True if this replica listens at the endpoint of the earlier one."""
        return bool(zk_paths.decode(path, content)["grpc_endpoint"] == self.grpc_endpoint)

    async def register(self) -> None:
        """See Member."""
        request = pb.RegisterCoordinatorRequest(
            kind=self.kind,
            coordinator_id=self.coordinator_id,
            incarnation_id=self.incarnation_id,
            grpc_endpoint=self.grpc_endpoint,
            cluster_id=self.cluster_id,
            feature_level_max=FEATURE_LEVEL,
        )
        response = await self._ask_to_register(request)
        self._epoch = BrokerEpoch(response.coordinator_epoch)
        self.cluster_id = response.cluster_id
        words = fields(coordinator_epoch=self._epoch, cluster_id=self.cluster_id)
        log.info("registered", extra=words)

    def refusal(self, refused: TidemarkError) -> ServiceError:
        """See Member."""
        return ServiceError(
            f"{self.kind} coordinator {self.coordinator_id} may not join: {refused.message}"
        )

    async def _ask_to_register(self, request: pb.RegisterCoordinatorRequest) -> Any:
        """Register, waiting for another live incarnation of the same id to go. Raises
        TidemarkError; SessionLostError if the live znode is gone.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + REGISTER_TIMEOUT_S
        while True:
            left_s = max(0.001, deadline - loop.time())
            response = await self._controller.call("RegisterCoordinator", request, left_s)
            if response.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED:
                raise SessionLostError(response.error_message)
            again = response.error_code in _REGISTERED_LATER
            if not again or loop.time() + _DUPLICATE_RETRY_S > deadline:
                return _checked(response)
            await asyncio.sleep(spread(_DUPLICATE_RETRY_S, self._controller.dice()))

    # -- requests to the controller

    async def acquire(self, shard: int, timeout_s: float = CALL_TIMEOUT_S) -> int:
        """Return a new owner epoch for a shard of this incarnation, higher than any before it.

        Returns once the feed has shown the epoch. An earlier owner stops serving the shard when its
        own feed shows it. So every partition that an earlier owner has added to a transaction is in
        the image on return, unless it has been deleted. Raises TidemarkError: NOT_COORDINATOR if
        the shard has another owner or none; REQUEST_TIMED_OUT if the controller was not reached
        (the epoch may have been raised nevertheless).
        """
        request = pb.AcquireShardRequest(
            kind=self.kind,
            shard=shard,
            coordinator_id=self.coordinator_id,
            incarnation_id=self.incarnation_id,
        )
        response = _checked(await self._controller.call("AcquireShard", request, timeout_s))
        position = read_position(response.position)
        words = fields(shard=shard, owner_epoch=response.owner_epoch, version=position.version)
        while not await self.wait_for(position, CALL_TIMEOUT_S):
            log.warning("shard waits for the metadata feed", extra=words)
        log.info("shard acquired", extra=words)
        return int(response.owner_epoch)

    async def allocate_producer_ids(self, timeout_s: float = CALL_TIMEOUT_S) -> ProducerIdBlock:
        """Return a block of ids for ``ProducerIds``, allocated only once. Raises TidemarkError."""
        request = pb.AllocateProducerIdsRequest(
            broker_id=-1,
            broker_epoch=-1,
            coordinator_kind=self.kind,
            coordinator_id=self.coordinator_id,
            incarnation_id=self.incarnation_id,
        )
        response = _checked(await self._controller.call("AllocateProducerIds", request, timeout_s))
        return ProducerIdBlock(int(response.first_producer_id), int(response.count))


def _checked(response: Any) -> Any:
    """Return the response. Raises TidemarkError if it has an error."""
    if response.error_code != ErrorCode.NONE:
        raise TidemarkError(ErrorCode(response.error_code), response.error_message)
    return response
