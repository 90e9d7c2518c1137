"""ControllerClient: calls to the active controller, found through ZooKeeper or in a list."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any, Final

import grpc.aio
from tidemark_wire.v1 import controller_pb2 as pb
from tidemark_wire.v1 import controller_pb2_grpc

from tidemark.model.backoff import Backoff, Dice, RetryDelays, spread
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import BrokerEpoch, BrokerId
from tidemark.runtime import zk_paths
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.tls import ChannelTls
from tidemark.runtime.zk_session import NoNodeError, SessionLostError, ZkError, ZkSession

_RETRIED_STATUS: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})
_BACKOFF: Final = Backoff(50, 1_000)
_LEFT_S_MIN: Final = 0.001
"""No retry with less time left than this: it may be below the resolution of the clock."""
_DUPLICATE_RETRY_S: Final = 0.5
_CHANNELS_MAX: Final = 8


class ControllerClient:
    """Client of the active controller. One per process, for any number of tasks."""

    def __init__(
        self,
        session: ZkSession | None = None,
        endpoints: Sequence[str] = (),
        *,
        dice: Dice = random.random,
        tls: ChannelTls | None = None,
    ) -> None:
        """Find the controller through ``session``, or try ``endpoints`` (host:port) in turn.
        Without ``tls``, channels are in plain text.
        """
        assert session is not None or endpoints, "nothing to find a controller by"
        self._session = session
        self._endpoints = tuple(endpoints)
        self.dice = dice
        """Source of the jitter of retry delays, here and in the follower of the metadata feed."""
        self._tries = 0
        self._active = ""
        self._channels = ChannelPool(tls, channels_max=_CHANNELS_MAX)

    @property
    def active_endpoint(self) -> str:
        """Endpoint at which the active controller was last found; '' if it has to be looked up."""
        return self._active

    async def close(self) -> None:
        """Close every channel; calls in flight fail."""
        await self._channels.close()

    async def find(self, timeout_s: float) -> str:
        """Return the active controller's gRPC endpoint. Raises TidemarkError REQUEST_TIMED_OUT."""
        delays = RetryDelays(_BACKOFF, self.dice)
        try:
            async with asyncio.timeout(timeout_s):
                while not self._active:
                    self._active = await self._look_up()
                    await self._channels.trim()  # calls to controllers that moved have failed
                    if not self._active:
                        await asyncio.sleep(delays.next_s())
        except TimeoutError:
            raise TidemarkError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"no active controller was found {self._where} within {timeout_s:.1f} s",
            ) from None
        return self._active

    async def _look_up(self) -> str:
        if self._session is None:
            self._tries += 1
            return self._endpoints[(self._tries - 1) % len(self._endpoints)]
        try:
            data, _ = await self._session.get(zk_paths.CONTROLLER)
        except NoNodeError:
            return ""  # between two active controllers
        except ZkError:
            return ""  # between two connections
        return str(zk_paths.decode(zk_paths.CONTROLLER, data)["grpc_endpoint"])

    @property
    def _where(self) -> str:
        if self._session is not None:
            return f"through ZooKeeper at {self._session.connect}"
        return f"among {', '.join(self._endpoints)}"

    def disprove(self, endpoint: str, hint: str = "") -> None:
        """Forget an endpoint that is not the active controller. ``hint`` is an endpoint that may
        be, or ''.
        """
        if self._active == endpoint:
            self._active = hint if hint != endpoint else ""

    def stub(self, endpoint: str) -> Any:
        """Return the generated stub for one endpoint. Its channel belongs to this client."""
        return controller_pb2_grpc.ControllerStub(self._channels.newest(endpoint))

    async def call(self, method: str, request: Any, timeout_s: float) -> Any:
        """Call ``method`` ("CreateTopics") with its request message; return its response message.

        NOT_CONTROLLER and a lost connection are retried until the deadline. A change may therefore
        be requested twice, and the second response may be TOPIC_ALREADY_EXISTS, for instance. Other
        errors are in the response. Raises TidemarkError REQUEST_TIMED_OUT at the deadline,
        UNKNOWN_SERVER_ERROR for other failures of gRPC.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        delays = RetryDelays(_BACKOFF, self.dice)
        reason = "none was active"
        while (left_s := deadline - loop.time()) >= _LEFT_S_MIN:
            endpoint = await self.find(left_s)
            try:
                call = getattr(self.stub(endpoint), method)
                response = await call(request, timeout=deadline - loop.time())
            except grpc.aio.AioRpcError as error:
                self.disprove(endpoint)  # also without an answer: it may have been replaced
                reason = self._judge(method, endpoint, error)
            else:
                if response.error_code != ErrorCode.NOT_CONTROLLER:
                    return response
                reason = f"{endpoint} is not active"
                self.disprove(endpoint, response.controller_hint)
            await asyncio.sleep(max(0.0, min(delays.next_s(), deadline - loop.time())))
        raise TidemarkError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"the controller did not answer {method} within {timeout_s:.1f} s: {reason}",
        )

    def _judge(self, method: str, endpoint: str, error: grpc.aio.AioRpcError) -> str:
        """Describe a failure that may be retried; raise TidemarkError for any other."""
        words = f"{endpoint}: {error.code().name} {error.details()}"
        if error.code() in _RETRIED_STATUS:
            return words
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            raise TidemarkError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"controller {endpoint} did not answer {method} in time",
            ) from None
        raise TidemarkError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{method} failed at {words}") from None

    async def register_broker(
        self, request: pb.RegisterBrokerRequest, timeout_s: float
    ) -> tuple[BrokerEpoch, str]:
        """Register; return the broker epoch and the cluster id. The live znode must exist already.

        Waits up to ``timeout_s`` for another live incarnation of the same id to go: after a crash
        its session has yet to expire. Raises TidemarkError with the controller's error, and
        SessionLostError if the live znode is gone: create it, then register again.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            left_s = max(0.001, deadline - loop.time())
            response: pb.RegisterBrokerResponse = await self.call("RegisterBroker", request, left_s)
            if response.error_code == ErrorCode.NONE:
                return BrokerEpoch(response.broker_epoch), response.cluster_id
            if response.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED:
                raise SessionLostError(response.error_message)
            again = response.error_code in (
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                ErrorCode.REQUEST_TIMED_OUT,
            )
            if not again or loop.time() + _DUPLICATE_RETRY_S > deadline:
                raise TidemarkError(ErrorCode(response.error_code), response.error_message)
            await asyncio.sleep(spread(_DUPLICATE_RETRY_S, self.dice()))

    async def alter_partitions(
        self, request: pb.AlterPartitionsRequest, timeout_s: float
    ) -> pb.AlterPartitionsResponse:
        """Propose ISRs. If a first attempt has taken effect already, the response to the retry has
        a newer partition epoch. Raises TidemarkError if the outcome is unknown.
        """
        response: pb.AlterPartitionsResponse = await self.call(
            "AlterPartitions", request, timeout_s
        )
        return response

    async def report_replicas(
        self, request: pb.ReportReplicasRequest, timeout_s: float
    ) -> pb.ReportReplicasResponse:
        """Report replicas whose disk failed or lost bytes. Raises TidemarkError: report again."""
        response: pb.ReportReplicasResponse = await self.call("ReportReplicas", request, timeout_s)
        return response

    async def controlled_shutdown(
        self, broker_id: BrokerId, broker_epoch: BrokerEpoch, timeout_s: float
    ) -> pb.ControlledShutdownResponse:
        """Request that all leaderships move; return how many remain. Raises TidemarkError."""
        request = pb.ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
        response: pb.ControlledShutdownResponse = await self.call(
            "ControlledShutdown", request, timeout_s
        )
        return response
