"""AdminService: the parts of the administration that live as long as the controller."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Final, Self

from tidemark.model.authorization import Requester
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.clock import Clock
from tidemark.runtime.server import channel_tls
from tidemark.runtime.zk_session import ZkSession

from controller.admin.access_rules import AccessRules
from controller.admin.broker_calls import BrokerCalls
from controller.admin.cache import AgedCache
from controller.admin.context import NOBODY, AdminContext, AdminLimits, Shared
from controller.admin.errors import try_again
from controller.admin.events import EventLog
from controller.admin.gate_metrics import GateMetrics
from controller.admin.idempotency import IdempotencyStore
from controller.admin.image import ImageSource
from controller.admin.operation_runner import OperationRunner
from controller.admin.operation_store import OperationStore
from controller.admin.traffic_log import TrafficLog
from controller.config import ControllerConfig
from controller.shell.node import ControllerNode

log = logging.getLogger(__name__)


_AGAIN_S: Final = 1.0
_TOTALS_FRESH: Final = 5
"""Times rest.cache.ms for which totals of all logs of a broker are not asked for again."""
_TOTALS_STALE: Final = 15
"""Times rest.cache.ms up to which they are shown while they are asked for."""


async def keep(run: Callable[[], Awaitable[None]]) -> None:
    """Run a duty of the administration until it ends or is cancelled. Begin it again after an
    internal error, which must not end a controller.
    """
    while True:
        try:
            await run()
        except Exception:
            log.critical("administration: internal error", exc_info=True)
            await asyncio.sleep(_AGAIN_S)
        else:
            return


class AdminService:
    """Administration of one controller. An async context manager: exit stops its tasks."""

    def __init__(
        self,
        config: ControllerConfig,
        node: ControllerNode,
        session: ZkSession,
        clock: Clock,
        duties: Mapping[str, Callable[[], Awaitable[None]]],
        gates: GateMetrics,
    ) -> None:
        """``duties`` has further work by its names, which runs as long as the administration."""
        self._duties = duties
        self._gates = gates
        self._config = config
        self._node = node
        self._clock = clock
        self._session = session
        self._tls = channel_tls(config)
        self._image = ImageSource(node, session, self._tls)
        self._tasks = asyncio.TaskGroup()
        self._running: list[asyncio.Task[None]] = []
        self._shared: Shared | None = None

    async def __aenter__(self) -> Self:
        """Start to follow the cluster's metadata."""
        await self._tasks.__aenter__()
        config = self._config
        brokers = BrokerCalls(
            self._image,
            self._clock,
            timeout_ms=config.rest_node_timeout_ms,
            change_ms=config.rest_change_timeout_ms,
            channels=ChannelPool(self._tls),
            grpc_security=config.grpc_client_security(),
        )
        limits = AdminLimits(
            page_wait_ms=config.rest_page_wait_ms, streams_max=config.rest_streams_max
        )
        self._shared = Shared(
            node=self._node,
            image=self._image,
            brokers=brokers,
            clock=self._clock,
            limits=limits,
            answers=AgedCache(self._tasks, self._clock, fresh_ms=config.rest_cache_ms),
            totals=AgedCache(
                self._tasks,
                self._clock,
                fresh_ms=_TOTALS_FRESH * config.rest_cache_ms,
                stale_ms=_TOTALS_STALE * config.rest_cache_ms,
            ),
            events=EventLog(self._image, self._clock),
            traffic=TrafficLog(brokers, self._clock, interval_ms=config.rest_traffic_interval_ms),
            operations=OperationStore(self._session),
            idempotency=IdempotencyStore(self._session, self._clock),
            gates=self._gates,
            access=AccessRules(config.acl_policy, config.roles, lambda: self._image().acls),
            message_clients=asyncio.Semaphore(limits.message_clients_max),
        )
        runner = OperationRunner(self._shared)
        self._running = [
            self._tasks.create_task(keep(run), name=f"admin-{name}")
            for name, run in (
                ("image", self._image.run),
                ("events", self._shared.events.run),
                ("operations", runner.run),
                ("traffic", self._shared.traffic.run),
                *self._duties.items(),
            )
        ]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for task in self._running:
            task.cancel()
        try:
            await self._tasks.__aexit__(kind, error, traceback)
        finally:
            shared, self._shared = self.shared, None
            await shared.brokers.close()

    @property
    def shared(self) -> Shared:
        """Shared parts. Raises AdminError before the service has been entered."""
        if self._shared is None:
            raise try_again("this controller is starting")
        return self._shared

    @property
    def image(self) -> ImageSource:
        """Source of the cluster's metadata."""
        return self._image

    def context(self, requester: Requester = NOBODY) -> AdminContext:
        """Return the context of one request."""
        return AdminContext(self.shared, requester)
