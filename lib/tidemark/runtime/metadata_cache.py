"""MetadataCache: the newest metadata of a process, its subscribers, and the tasks that wait for it.

    new image -> change -> subscribers in ``first`` -> shown -> subscribers in ``then`` -> waiters

``image`` is replaced between the two groups of subscribers: those whose work must be done before
others see an image (hosted partitions) are in ``first``. A position counts as reached once every
subscriber has acted on it. A subscriber may act on a large change in steps, between which the loop
runs. An image that has been started is always completed, before the next one starts.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from tidemark.model.metadata import ClusterDelta, ClusterImage, FeedPosition
from tidemark.model.metadata_change import Kind, MetadataChange, changes

WAITERS_MAX: Final = 10_000

OnChange = Callable[[MetadataChange], Iterable[None] | None]
"""Callback for a change. It acts at once, or in the steps of the iterable that it returns."""


class _Subscription(NamedTuple):
    kinds: Kind
    on_change: OnChange


async def let_others_run() -> None:
    """Let other tasks of the loop run."""
    await asyncio.sleep(0)


class MetadataCache:
    """Metadata of one process. ``first`` and ``then`` name all subscribers, in order."""

    def __init__(
        self,
        image: ClusterImage | None = None,
        *,
        first: Sequence[str] = (),
        then: Sequence[str] = (),
    ) -> None:
        self.image = ClusterImage() if image is None else image
        self._first = tuple(first)
        self._then = tuple(then)
        self._subscriptions: dict[str, _Subscription] = {}
        self._changed = asyncio.Event()
        self._watchers: list[Callable[[ClusterImage], None]] = []
        self._waiters: dict[asyncio.Future[None], FeedPosition] = {}
        self._is_taking = False
        self._reached = self.image.position
        """Position on which every subscriber has acted."""

    # -- subscribers

    def subscribe(self, name: str, kinds: Kind, on_change: OnChange) -> None:
        """Call ``on_change`` for every change that has one of ``kinds``, in the declared order."""
        assert name in (*self._first, *self._then), f"{name} has no place in the order"
        assert name not in self._subscriptions, f"{name} is subscribed already"
        self._subscriptions[name] = _Subscription(kinds, on_change)

    def subscribers(self, kind: Kind) -> tuple[str, ...]:
        """Return the names of the subscribers of one kind of change, in order. Raises
        AssertionError if a declared subscriber has not subscribed.
        """
        names = (*self._first, *self._then)
        missing = [name for name in names if name not in self._subscriptions]
        assert not missing, f"declared and not subscribed: {missing}"
        return tuple(name for name in names if kind in self._subscriptions[name].kinds)

    # -- a new image

    def take(self, image: ClusterImage, delta: ClusterDelta | None = None) -> None:
        """Act on a new image and show it. With ``delta`` None all of it may have changed."""
        for _ in self.steps(image, delta):
            pass

    async def take_in_steps(
        self,
        image: ClusterImage,
        delta: ClusterDelta | None = None,
        between: Callable[[], Awaitable[None]] = let_others_run,
    ) -> None:
        """Do as ``take``, and await ``between`` between the steps of a large change. If that is
        cancelled, or fails, the change is taken to its end first.
        """
        steps = self.steps(image, delta)
        for _ in steps:
            try:
                await between()
            except BaseException:
                for _ in steps:
                    pass
                raise

    def steps(self, image: ClusterImage, delta: ClusterDelta | None) -> Iterator[None]:
        """Do the work of ``take`` in steps of a few milliseconds. Exhaust it once started."""
        assert not self._is_taking, "the image before is not taken to its end yet"
        self._is_taking = True
        try:
            change = yield from changes(self.image, image, delta)
            yield from self._act(self._first, change)
            self.image = image
            yield from self._act(self._then, change)
        finally:
            self._is_taking = False
        self._reached = image.position
        self._wake(image)

    def _act(self, names: Iterable[str], change: MetadataChange) -> Iterator[None]:
        for name in names:
            subscription = self._subscriptions.get(name)
            if subscription is not None and subscription.kinds & change.kinds:
                yield from subscription.on_change(change) or ()

    def _wake(self, image: ClusterImage) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        for watcher in tuple(self._watchers):
            watcher(image)
        for reached, position in self._waiters.items():
            if position <= image.position and not reached.done():
                reached.set_result(None)

    # -- waiting

    async def wait_for(self, position: FeedPosition, timeout_s: float) -> bool:
        """Wait until ``position`` or a later one is reached; return True if it was in time. With
        WAITERS_MAX waiting already, the position is checked only at the end of ``timeout_s``.
        """
        if self._reached >= position:
            return True
        if len(self._waiters) >= WAITERS_MAX:
            await asyncio.sleep(timeout_s)  # callers that repeat the call must not block the loop
            return self._reached >= position
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[reached] = position
        try:
            async with asyncio.timeout(timeout_s):
                await reached
        except TimeoutError:
            return self._reached >= position
        finally:
            del self._waiters[reached]
        return True

    @contextmanager
    def watched(self, watcher: Callable[[ClusterImage], None]) -> Iterator[None]:
        """Call ``watcher`` with each new image while the block runs; it must not block."""
        self._watchers.append(watcher)
        try:
            yield
        finally:
            self._watchers.remove(watcher)

    async def wait_newer(self, than: FeedPosition) -> ClusterImage:
        """Wait for the first image after ``than``, and return it."""
        while self.image.position <= than:
            await self._changed.wait()
        return self.image

    async def wait_newer_or(self, than: FeedPosition, wait_s: float) -> ClusterImage:
        """Do as ``wait_newer``, for ``wait_s`` at most; return the image then, newer or not."""
        try:
            async with asyncio.timeout(wait_s):
                return await self.wait_newer(than)
        except TimeoutError:
            return self.image
