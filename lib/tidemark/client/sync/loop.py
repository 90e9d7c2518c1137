"""A thread with an event loop for the sync faces: one a client, ended by its ``close``."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar

from tidemark.client.consumer.group_types import RebalanceListener
from tidemark.client.errors import ClientClosedError
from tidemark.client.producer.batches import EncodedRecords
from tidemark.client.producer.producer import Producer
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition

_CLOSE_SECONDS_MAX = 180.0


class _Client(Protocol):
    async def __aenter__(self) -> Any: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


Client = TypeVar("Client", bound=_Client)
Result = TypeVar("Result")
P = ParamSpec("P")


class LoopThread(Generic[Client]):
    """Runs one async client. All its calls happen on the thread's loop; callers block in theirs."""

    def __init__(self, make: Callable[[], Client], *, name: str) -> None:
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
        """Run a coroutine on the loop and wait for its result. Raises what it raises."""
        if self._loop is None or self._ended.done():
            work.close()
            raise ClientClosedError(ErrorCode.NETWORK_EXCEPTION, "the client is closed")
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
        """Run a plain function on the loop's thread, where the client's state lives."""

        async def run() -> Result:
            return function(*args, **kwargs)

        return self.call(run())

    def close(self) -> None:
        """Close the client and end the thread. Raises what the client's close raises; again:
        nothing.
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
        """What serving ended with, as a value: it is raised in the caller's thread, not in this
        one.
        """
        (outcome,) = await asyncio.gather(self._serve(), return_exceptions=True)
        return outcome

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        async with self._make() as client:
            self._loop = asyncio.get_running_loop()
            self._started.set_result(client)
            await self._stop.wait()


class SyncFace(Generic[Client]):
    """What every sync face has: a thread, ``with``, and ``close``."""

    def __init__(self, make: Callable[[], Client], *, name: str) -> None:
        self._thread: LoopThread[Client] = LoopThread(make, name=name)

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
        """Finish what is under way, let go of everything, and end the thread."""
        self._thread.close()

    @property
    def _client(self) -> Client:
        return self._thread.client


class ThreadListener:
    """A plain listener of a sync consumer, called outside the loop's thread: it may call the
    consumer, which would wait for the loop.
    """

    def __init__(self, listener: RebalanceListener) -> None:
        self._listener = listener

    async def on_assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Pass it on."""
        await asyncio.to_thread(self._listener.on_assigned, partitions)

    async def on_revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Pass it on."""
        await asyncio.to_thread(self._listener.on_revoked, partitions)

    async def on_lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Pass it on."""
        await asyncio.to_thread(self._listener.on_lost, partitions)


async def send_all_encoded(producer: Producer, batches: Sequence[EncodedRecords]) -> None:
    """Take each; failures are the flush's to raise."""
    for batch in batches:
        await producer.send_encoded(
            batch.partition,
            batch.records,
            count=batch.count,
            first_timestamp=batch.first_timestamp,
            max_timestamp=batch.max_timestamp,
        )


def _done() -> concurrent.futures.Future[None]:
    done: concurrent.futures.Future[None] = concurrent.futures.Future()
    done.set_result(None)
    return done
