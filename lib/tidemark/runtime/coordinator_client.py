"""CoordinatorClient: calls to the coordinator that owns the shard of a name, wherever it moves.

A directory has the owners: brokers take them from their metadata (``ImageDirectory``), a client
without metadata brings a directory of its own. A call may be made twice if its first response was
lost. Coordinators' RPCs allow for that, because Kafka's clients do the same.
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import grpc
import grpc.aio
from tidemark_wire.v1 import txn_pb2, txn_pb2_grpc

from tidemark.codec.java_hash import shard_for_name
from tidemark.model.backoff import Backoff, Dice, RetryDelays
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.metadata import NO_COORDINATOR, TXN
from tidemark.runtime.channel_pool import (
    CallFailedError,
    ChannelPool,
    Stubs,
    call_failures,
)
from tidemark.runtime.kept_streams import KeptStreams
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.telemetry import REQUEST_ID

T = TypeVar("T")

_REQUEST_ID_METADATA: Final = "x-request-id"
_BACKOFF: Final = Backoff(20, 500)
_LEFT_S_MIN: Final = 0.001
"""No retry with less time left than this: it may be below the resolution of the clock."""
_OWNER_PATIENCE_S: Final = 0.5
"""Interval at which a call without a response checks whether its shard has moved."""
_NO_STREAMS: Final[Mapping[str, str]] = {}
_CODES: Final[Mapping[grpc.StatusCode, ErrorCode]] = {
    grpc.StatusCode.UNAVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    grpc.StatusCode.CANCELLED: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: ErrorCode.REQUEST_TIMED_OUT,
}
RETRIED: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
"""Errors after which the same request is sent again, perhaps to another coordinator."""

ErrorOf = Callable[[Any], ErrorCode]
"""Returns the error code of a response message that decides whether to retry."""


class CoordinatorDirectory(Protocol):
    """Owners of shards. Shards have numbers from 0 to ``shard_count() - 1``."""

    def shard_count(self) -> int:
        """Return the number of shards; 0 while the state topic does not exist yet."""
        ...

    def endpoint_of(self, shard: int) -> str:
        """Return ``host:port`` of the shard's owner; '' while it has none."""
        ...

    def endpoints(self) -> Sequence[str]:
        """Return the endpoints of all coordinators that own a shard."""
        ...

    async def refresh(self, wait_s: float) -> None:
        """Wait until the directory may have changed, ``wait_s`` at most. Called after an entry
        proved wrong.
        """
        ...


class ImageDirectory:
    """Directory in the ClusterImage of a process that follows the metadata feed."""

    def __init__(self, metadata: MetadataCache, kind: str = TXN) -> None:
        self._metadata = metadata
        self._kind = kind

    def shard_count(self) -> int:
        """See CoordinatorDirectory."""
        return len(self._metadata.image.shards.get(self._kind, ()))

    def endpoint_of(self, shard: int) -> str:
        """See CoordinatorDirectory."""
        owner = self._metadata.image.shard_owner(self._kind, shard)
        return "" if owner is None else owner.grpc_endpoint

    def endpoints(self) -> Sequence[str]:
        """See CoordinatorDirectory."""
        image = self._metadata.image
        owners = {one.coordinator_id for one in image.shards.get(self._kind, ())}
        live = (image.coordinators.get((self._kind, owner)) for owner in owners - {NO_COORDINATOR})
        return sorted(one.grpc_endpoint for one in live if one is not None)

    async def refresh(self, wait_s: float) -> None:
        """See CoordinatorDirectory."""
        await self._metadata.wait_newer_or(self._metadata.image.position, wait_s)


def error_code_of(response: Any) -> ErrorCode:
    """Return the ``error_code`` of a response message."""
    number = response.error_code
    return ErrorCode(number) if number else ErrorCode.NONE


class CoordinatorClient:
    """Concurrent calls over the channels of one pool, which its creator closes."""

    def __init__(
        self,
        directory: CoordinatorDirectory,
        channels: ChannelPool,
        make_stub: Callable[[grpc.aio.Channel], Any] = txn_pb2_grpc.TransactionCoordinatorStub,
        *,
        streams: Mapping[str, str] = _NO_STREAMS,
        dice: Dice = random.random,
    ) -> None:
        """``streams``: methods that have another one which does the same on a stream."""
        self._directory = directory
        self._stubs = Stubs(channels, make_stub)
        self._streams = {method: KeptStreams(stream) for method, stream in streams.items()}
        self._dice = dice

    async def call(
        self,
        method: str,
        name: str,
        request: Any,
        timeout_s: float,
        *,
        error_of: ErrorOf = error_code_of,
    ) -> Any:
        """Call ``method`` ("EndTransaction") at the owner of the shard of ``name``, a transactional
        id; return the response message, which may have an error other than RETRIED.

        Raises TidemarkError if there is no such response within ``timeout_s``: the last code of
        RETRIED; COORDINATOR_NOT_AVAILABLE if no coordinator was reached; REQUEST_TIMED_OUT if one
        did not respond in time (the outcome is unknown); UNKNOWN_SERVER_ERROR for other failures of
        gRPC.
        """

        def attempt(left_s: float) -> Awaitable[Any]:
            count = self._directory.shard_count()
            if not count:
                raise _no_owner()
            shard = shard_for_name(name, count)
            return self._call_owner(shard, method, request, left_s, error_of)

        return await self._retried(attempt, timeout_s)

    async def call_shard(self, method: str, shard: int, request: Any, timeout_s: float) -> Any:
        """Call ``method`` at the owner of a shard, as ``call`` does."""

        def attempt(left_s: float) -> Awaitable[Any]:
            return self._call_owner(shard, method, request, left_s, error_code_of)

        return await self._retried(attempt, timeout_s)

    async def list_all(self, method: str, request: Any, timeout_s: float) -> list[Any]:
        """Ask every coordinator that owns a shard for a listing, page by page; return all response
        messages. While one of them does not respond, or a shard has no owner, all are called again:
        the result must be complete.

        Raises TidemarkError as ``call`` does.
        """

        async def attempt(left_s: float) -> list[Any]:
            directory = self._directory
            if not all(directory.endpoint_of(shard) for shard in range(directory.shard_count())):
                raise _no_owner()
            lists = await _gather(
                self._pages(endpoint, method, request, left_s) for endpoint in directory.endpoints()
            )
            return [page for pages in lists for page in pages]

        return await self._retried(attempt, timeout_s)

    async def _pages(self, endpoint: str, method: str, request: Any, timeout_s: float) -> list[Any]:
        """Return the pages of one coordinator. One of an earlier release has a single page."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        asked = type(request)()
        asked.CopyFrom(request)
        asked.takes_pages = True
        asked.ClearField("after")
        pages: list[Any] = []
        while True:
            left_s = max(_LEFT_S_MIN, deadline - loop.time())
            page = await self._call(endpoint, method, asked, left_s, error_code_of)
            pages.append(page)
            if not page.HasField("next"):
                return pages
            asked.after.CopyFrom(page.next)

    async def describe(self, ids: Sequence[str], caller: Any, timeout_s: float) -> list[Any]:
        """Call ``DescribeTransactions`` for ids of any shards; return their TransactionState
        messages in the order of ``ids``. Raises TidemarkError as ``call`` does.
        """
        by_shard: dict[int, list[str]] = {}
        count = self._directory.shard_count() or 1
        for each in dict.fromkeys(ids):
            by_shard.setdefault(shard_for_name(each, count), []).append(each)
        responses = await _gather(
            self.call(
                "DescribeTransactions",
                of_shard[0],
                txn_pb2.DescribeTransactionsRequest(caller=caller, transactional_ids=of_shard),
                timeout_s,
                error_of=_worst_of,
            )
            for of_shard in by_shard.values()
        )
        found: Mapping[str, Any] = {
            state.transactional_id: state
            for response in responses
            for state in response.transactions
        }
        return [found[each] for each in ids]

    # -- attempts

    async def _retried(self, attempt: Callable[[float], Awaitable[T]], timeout_s: float) -> T:
        """Repeat ``attempt(left_s)`` while it fails with a code of RETRIED, until the timeout."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        left_s, failure = timeout_s, None
        delays: RetryDelays | None = None
        while left_s >= _LEFT_S_MIN:
            try:
                return await attempt(left_s)
            except TidemarkError as problem:
                if problem.code not in RETRIED:
                    raise
                failure = problem
            delays = delays or RetryDelays(_BACKOFF, self._dice)
            await self._directory.refresh(max(0.0, min(delays.next_s(), deadline - loop.time())))
            left_s = deadline - loop.time()
        raise failure or _no_owner()

    async def _while_owned(
        self, shard: int, endpoint: str, work: Awaitable[T], timeout_s: float
    ) -> T:
        """Return the result of a call. Raises TidemarkError: that of the call, NOT_COORDINATOR once
        the shard has another owner, or REQUEST_TIMED_OUT: a stream has no time of its own. An owner
        that is paused or cut off may not respond at all.
        """

        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        limit = asyncio.timeout(None)
        timer: asyncio.TimerHandle

        def look() -> None:
            nonlocal timer
            left_s = deadline - loop.time()
            if left_s < _LEFT_S_MIN or self._directory.endpoint_of(shard) != endpoint:
                limit.reschedule(loop.time())
            else:
                timer = loop.call_later(min(_OWNER_PATIENCE_S, left_s), look)

        # A timer and no task: this is on the path of every acknowledgement of a share group.
        timer = loop.call_later(min(_OWNER_PATIENCE_S, timeout_s), look)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            if self._directory.endpoint_of(shard) == endpoint:
                words = f"{endpoint} did not answer within {timeout_s:g} s"
                raise TidemarkError(ErrorCode.REQUEST_TIMED_OUT, words) from None
            words = f"{endpoint} did not answer, and its shard has moved"
            raise TidemarkError(ErrorCode.NOT_COORDINATOR, words) from None
        finally:
            timer.cancel()

    def _call_owner(
        self, shard: int, method: str, request: Any, timeout_s: float, error_of: ErrorOf
    ) -> Awaitable[Any]:
        endpoint = self._directory.endpoint_of(shard)
        work = self._call(endpoint, method, request, timeout_s, error_of)
        bound_s = timeout_s if method in self._streams else math.inf
        return self._while_owned(shard, endpoint, work, bound_s)

    async def _call(
        self, endpoint: str, method: str, request: Any, timeout_s: float, error_of: ErrorOf
    ) -> Any:
        """Call once. Raises TidemarkError, also for a response with a code of RETRIED."""
        if not endpoint:
            raise _no_owner()
        stub, streams = await self._stubs.stub(endpoint), self._streams.get(method)

        async def call() -> Any:
            request_id = REQUEST_ID.get()
            metadata = ((_REQUEST_ID_METADATA, request_id),) if request_id else None
            with call_failures(endpoint):
                return await getattr(stub, method)(request, timeout=timeout_s, metadata=metadata)

        try:
            if streams is None:
                response = await call()
            else:
                response = await streams.exchange(endpoint, stub, request, call)
        except CallFailedError as failure:
            words = f"{method} at {failure}"
            code = _CODES.get(failure.status, ErrorCode.UNKNOWN_SERVER_ERROR)
            raise TidemarkError(code, words) from None
        code = error_of(response)
        if code in RETRIED:
            raise TidemarkError(code, f"{method} at {endpoint}: {code.name}")
        return response


def _no_owner() -> TidemarkError:
    return TidemarkError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no coordinator owns its shard yet")


def _worst_of(response: Any) -> ErrorCode:
    """Return a code to retry, if any transaction of a DescribeTransactions response has one."""
    codes = (ErrorCode(state.error_code) for state in response.transactions)
    return next((code for code in codes if code in RETRIED), ErrorCode.NONE)


async def _gather(calls: Iterable[Any]) -> list[Any]:
    """Run the calls concurrently; return their results, or raise the first failure."""
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(call) for call in calls]
    except* TidemarkError as failures:
        raise _first(failures) from None
    return [task.result() for task in running]


def _first(failures: BaseExceptionGroup[TidemarkError]) -> TidemarkError:
    one = failures.exceptions[0]
    return _first(one) if isinstance(one, BaseExceptionGroup) else one
