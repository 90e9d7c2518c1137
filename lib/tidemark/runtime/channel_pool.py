"""ChannelPool: one gRPC channel for each peer, shared by all callers; the errors of calls."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import grpc
import grpc.aio

from tidemark.runtime.channel import open_channel
from tidemark.runtime.tls import ChannelTls

CHANNELS_MAX: Final = 1_024
_STUBS_MAX: Final = 64


class ChannelPool:
    """Channels by ``host:port``, opened at their first use; closing the pool closes them.

    With TLS, a peer gets a new channel once the files have changed. The one before serves the calls
    that it has, and then goes like every unused channel: gRPC disconnects it after a while, and the
    bound of the pool closes it.
    """

    def __init__(self, tls: ChannelTls | None = None, *, channels_max: int = CHANNELS_MAX) -> None:
        """With ``tls`` None, channels are in plain text."""
        assert channels_max > 0, "a pool holds at least one channel"
        self._tls = tls
        self._channels: dict[tuple[int, str], grpc.aio.Channel] = {}
        self._channels_max = channels_max

    def __len__(self) -> int:
        return len(self._channels)

    async def channel(self, endpoint: str) -> grpc.aio.Channel:
        """Return the channel to ``host:port``. Beyond the bound, close the least recently used
        channel: peers that moved leave unused channels behind.
        """
        channel = self.newest(endpoint)
        await self.trim()
        return channel

    async def trim(self) -> None:
        """Close the least recently used channels beyond the bound; calls on them fail."""
        while len(self._channels) > self._channels_max:
            await self._channels.pop(next(iter(self._channels))).close(None)

    def newest(self, endpoint: str) -> grpc.aio.Channel:
        """Return the channel to ``host:port``, beyond the bound too, which ``trim`` holds."""
        generation, credentials = (
            (0, None) if self._tls is None else self._tls.newest(time.monotonic())
        )
        key = (generation, endpoint)
        channel = self._channels.pop(key, None) or open_channel(endpoint, credentials)
        self._channels[key] = channel  # the newest is last
        return channel

    async def close(self) -> None:
        """Close every channel; calls in flight fail."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close(None)


class Stubs:
    """One stub for each channel of a pool; to make one costs a tenth of a call."""

    def __init__(self, channels: ChannelPool, make: Callable[[grpc.aio.Channel], Any]) -> None:
        self._channels = channels
        self._make = make
        self._made: dict[str, tuple[grpc.aio.Channel, Any]] = {}

    async def stub(self, endpoint: str) -> Any:
        """Return the stub of the channel to ``host:port``, the same for as long as it is the same
        channel.
        """
        channel = await self._channels.channel(endpoint)
        known = self._made.get(endpoint)
        if known is None or known[0] is not channel:
            if len(self._made) >= _STUBS_MAX:
                self._made.clear()
            known = self._made[endpoint] = (channel, self._make(channel))
        return known[1]


class CallFailedError(Exception):
    """A call to a peer failed without a response. ``status`` is gRPC's; the text names the peer."""

    def __init__(self, endpoint: str, status: grpc.StatusCode, detail: str) -> None:
        super().__init__(f"{endpoint}: {status.name} {detail}")
        self.status = status


@contextmanager
def call_failures(endpoint: str) -> Iterator[None]:
    """Turn every failure of a gRPC call or stream within the block into CallFailedError."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise CallFailedError(endpoint, error.code(), error.details() or "") from None
    except asyncio.InvalidStateError:  # raised by gRPC once the stream has ended
        raise CallFailedError(endpoint, grpc.StatusCode.CANCELLED, "it had ended") from None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # This task was not cancelled: gRPC raises it when the channel or the stream was closed.
        raise CallFailedError(endpoint, grpc.StatusCode.CANCELLED, "it was closed") from None
