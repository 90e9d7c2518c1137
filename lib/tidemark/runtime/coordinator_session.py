"""What a coordinator replica is to the cluster: its ephemeral znode, its registration with the
controller, the metadata feed, and the shards that it owns.

The znode's path holds the incarnation id, drawn once for each process. When the ZooKeeper session
was lost, or the controller has removed the znode, it is made again and the replica registers anew;
its shards may be another's by then. What it still writes is fenced by the logs themselves.
"""

import asyncio
import logging
import os
from typing import Any, Final

from tidemark_wire.v1 import controller_pb2 as pb

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
"""How long an older incarnation's session is waited for, and a controller looked for."""
CALL_TIMEOUT_S: Final = 5.0
_DUPLICATE_RETRY_S: Final = 0.2
_REGISTERED_LATER: Final = (ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.REQUEST_TIMED_OUT)
_NOT_REGISTERED: Final = BrokerEpoch(-1)


class CoordinatorSession:
    """Keeps one coordinator replica a member of the cluster for as long as ``run`` runs.

    ``session`` is started and stopped, and ``controller`` closed, by whoever made them.
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
        """``grpc_endpoint`` is where brokers reach this replica: it listens there already."""
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
        """All metadata as last heard; the empty image before the first snapshot."""
        return self._metadata.image

    @property
    def is_registered(self) -> bool:
        """Whether the controller has taken this incarnation, and dropped it not that we knew."""
        return self._membership.is_registered

    def problem(self) -> str | None:
        """Why this replica is no member of the cluster; None when it is one."""
        if self._session.state is not SessionState.CONNECTED:
            return f"no ZooKeeper session at {self._session.connect}"
        if not self.is_registered:
            return "not registered with the controller yet"
        if not self._is_shown(self.image):
            return "the metadata does not show this replica yet"
        return None

    def owned_shards(self) -> frozenset[int]:
        """The shards that are this incarnation's, as far as the feed has said."""
        image = self.image
        if not self._is_shown(image):
            return frozenset()
        owners = image.shards.get(self.kind, ())
        return frozenset(one.shard for one in owners if one.coordinator_id == self.coordinator_id)

    def _is_shown(self, image: ClusterImage) -> bool:
        shown = image.coordinators.get((self.kind, self.coordinator_id))
        return shown is not None and shown.incarnation_id == self.incarnation_id

    async def wait_for(self, position: FeedPosition, timeout_s: float) -> bool:
        """Wait until the image is at ``position`` or later; whether it got there in time."""
        return await self._metadata.wait_for(position, timeout_s)

    # Membership.

    async def run(self, metadata: MetadataCache) -> None:
        """Join, follow the feed, join again when that became necessary; until cancelled.

        Images are given to ``metadata``. Raises ServiceError when this replica may not join.
        """
        self._metadata = metadata
        await self._membership.run(metadata, self._watch_znode())

    def rejoin(self) -> None:
        """Make the znode and register again: the controller has lost this replica."""
        self._membership.rejoin()

    async def _watch_znode(self) -> None:
        """Notice that the controller has removed our znode though our session lives."""
        while True:
            changed = asyncio.Event()
            try:
                stat = await self._session.exists(self._live.path, changed.set)
            except ZkError:
                await self._session.wait_connected()
                await asyncio.sleep(RETRY_S)
                continue
            if stat is None and self.is_registered:
                log.warning("live znode is gone", extra=fields(path=self._live.path))
                self.rejoin()
            await changed.wait()

    # Member.

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
        """See Member. This replica listens where the earlier one was reached."""
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
        """Another live incarnation of the same id is waited for. Raises TidemarkError, and
        SessionLostError when the live znode is gone.
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
            await asyncio.sleep(_DUPLICATE_RETRY_S)

    # What a member asks for.

    async def acquire(self, shard: int, timeout_s: float = CALL_TIMEOUT_S) -> int:
        """A new owner epoch for a shard that is this incarnation's: higher than any before it.

        Returns once the feed has shown it. An earlier owner stops serving the shard when its own
        feed shows it: every partition that an earlier owner has added to a transaction is in this
        image by then, unless it has been deleted. Raises TidemarkError: NOT_COORDINATOR when it is
        another's, or nobody's; REQUEST_TIMED_OUT when the controller was not reached (the epoch may
        have risen all the same).
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
        """Ids that nobody else ever gets: what ``ProducerIds`` asks for. Raises TidemarkError."""
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
    """The response, unless it is an error: then raises TidemarkError."""
    if response.error_code != ErrorCode.NONE:
        raise TidemarkError(ErrorCode(response.error_code), response.error_message)
    return response
