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
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.metadata_follower import MetadataFollower
from tidemark.runtime.metadata_wire import read_position
from tidemark.runtime.producer_ids import ProducerIdBlock
from tidemark.runtime.service import ServiceError
from tidemark.runtime.telemetry import fields
from tidemark.runtime.zk_session import (
    NodeExistsError,
    NoNodeError,
    SessionLostError,
    SessionState,
    UnknownOutcomeError,
    ZkError,
    ZkSession,
)

log = logging.getLogger(__name__)

INCARNATION_BYTES: Final = 16
FEATURE_LEVEL: Final = 1
REGISTER_TIMEOUT_S: Final = 60.0
"""How long an older incarnation's session is waited for, and a controller looked for."""
CALL_TIMEOUT_S: Final = 5.0
_RETRY_S: Final = 0.2
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
        self._out = asyncio.Event()
        self._feed: asyncio.Task[None] | None = None
        self._metadata = MetadataCache()

    @property
    def image(self) -> ClusterImage:
        """All metadata as last heard; the empty image before the first snapshot."""
        return self._metadata.image

    @property
    def is_registered(self) -> bool:
        """Whether the controller has taken this incarnation, and dropped it not that we knew."""
        return self._epoch != _NOT_REGISTERED

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
        follower = MetadataFollower(
            self._controller,
            metadata,
            subscriber=f"{self.kind}-coordinator-{self.coordinator_id}",
            broker_epoch=lambda: self._epoch,
        )
        self._session.add_listener(self._on_state)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch_znode(), name="coordinator-znode")
                while True:
                    await self._join()
                    self._feed = tasks.create_task(self._follow(follower), name="coordinator-feed")
                    await self._out.wait()
        finally:
            self._session.remove_listener(self._on_state)

    def rejoin(self) -> None:
        """What the controller knows of this replica is gone: make the znode, register again."""
        self._out.set()

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            log.warning("ZooKeeper session lost")
            self._out.set()

    async def _watch_znode(self) -> None:
        """Notice that the controller has removed our znode though our session lives."""
        while True:
            changed = asyncio.Event()
            try:
                stat = await self._session.exists(self._live.path, changed.set)
            except ZkError:
                await self._session.wait_connected()
                await asyncio.sleep(_RETRY_S)
                continue
            if stat is None and self.is_registered:
                log.warning("live znode is gone", extra=fields(path=self._live.path))
                self.rejoin()
            await changed.wait()

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
        self._epoch = _NOT_REGISTERED
        while True:
            self._out.clear()
            await self._session.wait_connected()
            try:
                await self._announce_life()
                await self._stop_feed()
                await self._register()
            except ZkError as failure:
                log.info("joining again", extra=fields(reason=str(failure)))
                await asyncio.sleep(_RETRY_S)
            else:
                return

    @property
    def _live(self) -> zk_paths.LiveCoordinator:
        return zk_paths.LiveCoordinator(self.kind, self.coordinator_id, self.incarnation_id)

    async def _announce_life(self) -> None:
        path = self._live.path
        await self._session.ensure_path(zk_paths.live_coordinators(self.kind))
        await self._bury_predecessor()
        content = zk_paths.encode({"grpc_endpoint": self.grpc_endpoint})
        try:
            await self._session.create(path, content, ephemeral=True)
        except NodeExistsError:
            # Ours: of an earlier session that has not expired yet, or of a create whose answer was
            # lost.
            stat = await self._session.exists(path)
            if stat is None:
                raise UnknownOutcomeError(f"{path} was just removed") from None
            if stat.owner_session != self._session.session_id:
                await self._session.delete(path)
                raise UnknownOutcomeError(f"{path} belonged to an earlier session") from None

    async def _bury_predecessor(self) -> None:
        """Remove the znode of a process that was reached where we are reached now: it listens there
        no more, so that nobody can ask it anything. Its session need not expire first.
        """
        names, _ = await self._session.children(zk_paths.live_coordinators(self.kind))
        for name in names:
            live = zk_paths.LiveCoordinator.parse(self.kind, name)
            if live.coordinator_id != self.coordinator_id or (
                live.incarnation_id == self.incarnation_id
            ):
                continue
            try:
                data, _ = await self._session.get(live.path)
                if zk_paths.decode(live.path, data)["grpc_endpoint"] != self.grpc_endpoint:
                    continue  # another machine claims our id: the controller will say so
                await self._session.delete(live.path)
            except NoNodeError:
                continue
            log.info("predecessor's znode removed", extra=fields(path=live.path))

    async def _register(self) -> None:
        """Raises ZkError: join again; ServiceError: this replica may not join."""
        request = pb.RegisterCoordinatorRequest(
            kind=self.kind,
            coordinator_id=self.coordinator_id,
            incarnation_id=self.incarnation_id,
            grpc_endpoint=self.grpc_endpoint,
            cluster_id=self.cluster_id,
            feature_level_max=FEATURE_LEVEL,
        )
        try:
            response = await self._ask_to_register(request)
        except TidemarkError as refused:
            if refused.code is ErrorCode.REQUEST_TIMED_OUT:
                log.warning("no controller yet", extra=fields(reason=refused.message))
                raise ZkError(refused.message) from refused
            raise ServiceError(
                f"{self.kind} coordinator {self.coordinator_id} may not join: {refused.message}"
            ) from refused
        self._epoch = BrokerEpoch(response.coordinator_epoch)
        self.cluster_id = response.cluster_id
        words = fields(coordinator_epoch=self._epoch, cluster_id=self.cluster_id)
        log.info("registered", extra=words)

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
