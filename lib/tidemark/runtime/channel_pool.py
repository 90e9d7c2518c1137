"""ChannelPool: one gRPC channel for each peer, shared by all that call it; and how calls fail."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import grpc
import grpc.aio

from tidemark.model.errors import ErrorCode
from tidemark.runtime.channel import open_channel

CHANNELS_MAX: Final = 1_024
_KNOWN_CODES: Final = frozenset(map(int, ErrorCode))


class ChannelPool:
    """Channels by ``host:port``, opened when first asked for; closing the pool closes them."""

    def __init__(self, *, channels_max: int = CHANNELS_MAX) -> None:
        assert channels_max > 0, "a pool holds at least one channel"
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._channels_max = channels_max

    def __len__(self) -> int:
        return len(self._channels)

    async def channel(self, endpoint: str) -> grpc.aio.Channel:
        """The channel to ``host:port``. Beyond the bound the one longest unused is closed: peers
        that moved away leave theirs behind.
        """
        channel = self._channels.pop(endpoint, None) or open_channel(endpoint)
        self._channels[endpoint] = channel  # the newest is last
        while len(self._channels) > self._channels_max:
            await self._channels.pop(next(iter(self._channels))).close(None)
        return channel

    async def close(self) -> None:
        """Close every channel; calls still under way fail."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close(None)


class CallFailedError(Exception):
    """A call of a peer had no answer: ``status`` says how, the text says where."""

    def __init__(self, endpoint: str, status: grpc.StatusCode, detail: str) -> None:
        super().__init__(f"{endpoint}: {status.name} {detail}")
        self.status = status


@contextmanager
def call_failures(endpoint: str) -> Iterator[None]:
    """Around a call or the use of a stream: every way in which gRPC fails, as CallFailedError."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise CallFailedError(endpoint, error.code(), error.details() or "") from None
    except asyncio.InvalidStateError:  # what gRPC says when the stream is over
        raise CallFailedError(endpoint, grpc.StatusCode.CANCELLED, "it had ended") from None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # Not us: gRPC says it so when somebody closed the channel or ended the stream.
        raise CallFailedError(endpoint, grpc.StatusCode.CANCELLED, "it was closed") from None


def read_error_code(number: int) -> ErrorCode:
    """A peer's error code; one of a later release counts as UNKNOWN_SERVER_ERROR."""
    return ErrorCode(number) if number in _KNOWN_CODES else ErrorCode.UNKNOWN_SERVER_ERROR
