"""One bidirectional gRPC stream, whose responses are matched to requests by correlation id."""

import asyncio
from typing import Any, Final, Generic, Protocol, TypeVar, cast

import grpc
import grpc.aio

from tidemark.client.errors import (
    AuthenticationError,
    ClientError,
    ConnectionLostError,
    RequestTimedOutError,
)
from tidemark.model.errors import ErrorCode

# Returned by read() at the end of a stream; the type stubs lack it.
_END: Final[object] = vars(grpc.aio)["EOF"]


class _Correlated(Protocol):
    correlation_id: int


Request = TypeVar("Request", bound=_Correlated)
Answer = TypeVar("Answer", bound=_Correlated)


class ExchangeStream(Generic[Request, Answer]):
    """Stream of requests and responses; a lost stream cannot be reopened. Run ``run`` in a task."""

    def __init__(
        self,
        call: "grpc.aio.StreamStreamCall[Request, Answer]",
        *,
        where: str,
        pending_requests_max: int,
    ) -> None:
        self._call = call
        self.where = where
        self._pending: dict[int, asyncio.Future[Answer]] = {}
        self._slots = asyncio.Semaphore(pending_requests_max)
        self._writing = asyncio.Lock()
        self._next_correlation_id = 0
        self._lost: str | None = None
        self._refused = False

    @property
    def is_lost(self) -> bool:
        """True if the stream accepts requests no longer."""
        return self._lost is not None

    async def run(self) -> None:
        """Deliver responses to waiting callers until the stream ends."""
        reason = "the broker ended the stream"
        try:
            while (answer := await self._read()) is not None:
                waiting = self._pending.pop(answer.correlation_id, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
        except grpc.aio.AioRpcError as problem:
            self._refused = problem.code() is grpc.StatusCode.UNAUTHENTICATED
            reason = _describe(problem)
        except asyncio.CancelledError:
            reason = "the client closed"
            raise
        finally:
            self.close(reason)

    async def exchange(self, request: Request, *, timeout_ms: float) -> Answer:
        """Send one request and return its response.

        Raises ConnectionLostError, RequestTimedOutError, AuthenticationError.
        """
        async with self._slots:
            try:
                async with asyncio.timeout(timeout_ms / 1_000):
                    return await self._exchange(request)
            except TimeoutError:
                late = RequestTimedOutError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"not answered within {timeout_ms:.0f} ms",
                    where=self.where,
                )
                self.close(late.message)
                raise late from None

    def close(self, reason: str) -> None:
        """End the stream; waiting callers fail with the reason."""
        if self._lost is not None:
            return
        self._lost = reason
        pending, self._pending = self._pending, {}
        for waiting in pending.values():
            if not waiting.done():
                waiting.set_exception(self._loss())
                # The waiting caller may be cancelled already; then the exception is dropped.
                waiting.exception()
        self._call.cancel()

    async def _read(self) -> Answer | None:
        """Return the next response; None at the end of the stream."""
        answer: Any = await self._call.read()
        return None if answer is _END else cast("Answer", answer)

    async def _exchange(self, request: Request) -> Answer:
        if self._lost is not None:
            raise self._loss()
        request.correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._pending[request.correlation_id] = waiting
        try:
            async with self._writing:
                await self._call.write(request)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as problem:
            self.close(_describe(problem))
        return await waiting

    def _loss(self) -> ClientError:
        if self._refused:
            return AuthenticationError(
                ErrorCode.SASL_AUTHENTICATION_FAILED, str(self._lost), where=self.where
            )
        return ConnectionLostError(
            ErrorCode.NETWORK_EXCEPTION, f"stream lost: {self._lost}", where=self.where
        )


def _describe(problem: Exception) -> str:
    if isinstance(problem, grpc.aio.AioRpcError):
        return f"{problem.code().name}: {problem.details()}"
    return str(problem) or "the stream is closed"
