"""The thread with an event loop behind each synchronous client, and methods made from async ones.

A synchronous class names the async methods that it offers; ``blocking`` and ``immediate`` make
methods with the same signature and docstring out of them. So type checkers check callers against
the async class, and the two cannot differ.
"""

import asyncio
import concurrent.futures
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from tidemark.client.errors import ClientClosedError
from tidemark.model.errors import ErrorCode

_CLOSE_SECONDS_MAX = 180.0


class _AsyncClient(Protocol):
    async def __aenter__(self) -> Any: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


Client = TypeVar("Client", bound=_AsyncClient)
Target = TypeVar("Target")
Target_co = TypeVar("Target_co", covariant=True)
Result = TypeVar("Result")
Face = TypeVar("Face")
P = ParamSpec("P")


class LoopThread(Generic[Client]):
    """A thread whose event loop runs one async client. Callers block in their own threads."""

    def __init__(self, make: Callable[[], Client], *, name: str) -> None:
        self.before_each: Callable[[], None] | None = None
        """Called in the loop's thread before each call, and before the client closes."""
        self._make = make
        self._started: concurrent.futures.Future[Client] = concurrent.futures.Future()
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        # A daemon: a program that forgets to close still ends, as it would with an open socket.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self.client = self._started.result()

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop and return its result. Raises the coroutine's exception."""
        if self._loop is None or self._ended.done():
            work.close()
            raise ClientClosedError(ErrorCode.NETWORK_EXCEPTION, "the client is closed")
        if self.before_each is not None:
            self._loop.call_soon_threadsafe(self.before_each)
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise ClientClosedError(
                ErrorCode.NETWORK_EXCEPTION, "the client closed during the call"
            ) from None
        except BaseException:
            future.cancel()
            raise

    def call_plain(
        self, function: Callable[P, Result], *args: P.args, **kwargs: P.kwargs
    ) -> Result:
        """Run a plain function in the loop's thread, which owns the client's state."""

        async def run() -> Result:
            return function(*args, **kwargs)

        return self.call(run())

    def close(self) -> None:
        """Close the client and end the thread. Raises the exception of the client's ``close``.

        Further calls do nothing.
        """
        if self._loop is not None and self._stop is not None and not self._ended.done():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_CLOSE_SECONDS_MAX)
        self._loop = None
        ended, self._ended = self._ended, _done()
        ended.result(timeout=0)

    def _run(self) -> None:
        outcome = asyncio.run(self._outcome())
        if outcome is not None and not self._started.done():
            self._started.set_exception(outcome)
            outcome = None
        if outcome is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(outcome)

    async def _outcome(self) -> BaseException | None:
        """Return the exception that ended ``_serve``, which is raised in the caller's thread."""
        (outcome,) = await asyncio.gather(self._serve(), return_exceptions=True)
        return outcome

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        async with self._make() as client:
            self._loop = asyncio.get_running_loop()
            self._started.set_result(client)
            await self._stop.wait()
            if self.before_each is not None:
                self.before_each()


class OnLoop(Generic[Target_co]):
    """Base of every synchronous class: an async object and the thread that runs it."""

    def __init__(self, target: Target_co, thread: LoopThread[Any]) -> None:
        self._target = target
        self._thread = thread


class SyncClient(OnLoop[Client]):
    """Base of the synchronous clients: ``with``, ``close``, and a thread of its own."""

    def __init__(self, make: Callable[[], Client], *, name: str) -> None:
        thread = LoopThread(make, name=name)
        super().__init__(thread.client, thread)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finish pending work, release all resources and end the thread."""
        self._thread.close()


def blocking(
    method: Callable[Concatenate[Target, P], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[OnLoop[Target], P], Result]:
    """Return a method that runs the coroutine ``method`` on the loop and waits for its result."""

    @wraps(method)
    def call(self: OnLoop[Target], /, *args: P.args, **kwargs: P.kwargs) -> Result:
        work: Coroutine[Any, Any, Result] = _bound(self, method)(
            *map(_read, args), **{name: _read(value) for name, value in kwargs.items()}
        )
        return self._thread.call(work)

    return call


def blocking_as(
    face: Callable[[Result, LoopThread[Any]], Face],
    method: Callable[Concatenate[Target, P], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[OnLoop[Target], P], Face]:
    """Return ``blocking(method)`` with its result wrapped in a synchronous class."""
    plain = blocking(method)

    @wraps(method)
    def call(self: OnLoop[Target], /, *args: P.args, **kwargs: P.kwargs) -> Face:
        return face(plain(self, *args, **kwargs), self._thread)

    return _returning(face, call)


def immediate(
    method: Callable[Concatenate[Target, P], Result],
) -> Callable[Concatenate[OnLoop[Target], P], Result]:
    """Return a method that runs the plain ``method`` in the loop's thread."""

    @wraps(method)
    def call(self: OnLoop[Target], /, *args: P.args, **kwargs: P.kwargs) -> Result:
        result: Result = self._thread.call_plain(
            _bound(self, method),
            *map(_read, args),
            **{name: _read(value) for name, value in kwargs.items()},
        )
        return result

    return call


def immediate_as(
    face: Callable[[Result, LoopThread[Any]], Face],
    method: Callable[Concatenate[Target, P], Result],
) -> Callable[Concatenate[OnLoop[Target], P], Face]:
    """Return ``immediate(method)`` with its result wrapped in a synchronous class."""
    plain = immediate(method)

    @wraps(method)
    def call(self: OnLoop[Target], /, *args: P.args, **kwargs: P.kwargs) -> Face:
        return face(plain(self, *args, **kwargs), self._thread)

    return _returning(face, call)


def _bound(self: OnLoop[Any], method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the target's own method: a subclass may override the one that was named."""
    bound: Callable[..., Any] = getattr(self._target, method.__name__)
    return bound


def _read(value: object) -> Any:
    """Exhaust iterators in the caller's thread: a generator may call the client itself."""
    return list(value) if isinstance(value, Iterator) else value


def _returning(face: object, call: Callable[P, Face]) -> Callable[P, Face]:
    signature = inspect.signature(call).replace(return_annotation=face)
    call.__signature__ = signature  # type: ignore[attr-defined]  # inspect reads it
    return call


def _done() -> concurrent.futures.Future[None]:
    done: concurrent.futures.Future[None] = concurrent.futures.Future()
    done.set_result(None)
    return done
