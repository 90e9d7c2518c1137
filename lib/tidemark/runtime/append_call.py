"""AppendCall: appends to one broker over gRPC, one at a time."""

from typing import Any

import grpc
import grpc.aio
from tidemark_wire.v1 import partition_store_pb2 as pb
from tidemark_wire.v1 import partition_store_pb2_grpc

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.runtime.channel_pool import CallFailedError, call_failures
from tidemark.runtime.streams import END_OF_STREAM

Stream = Any  # a grpc.aio.StreamStreamCall; the stubs' generics do not know EOF


class UnknownOutcomeError(TidemarkError):
    """The appended records may be in the log, or may still be written to it."""


class AppendCall:
    """Stream of appends to one broker, one at a time."""

    def __init__(self, channel: grpc.aio.Channel, endpoint: str) -> None:
        self.endpoint = endpoint
        stub: Any = partition_store_pb2_grpc.PartitionStoreStub(channel)
        self._call: Stream = stub.Append()
        self._was_open = False

    def is_open_to(self, endpoint: str) -> bool:
        """True while the stream to this broker is open, as far as is known."""
        return self._was_open and endpoint == self.endpoint and not self._call.done()

    def close(self) -> None:
        """End the stream; an exchange in progress fails."""
        self._call.cancel()

    async def wait_open(self) -> None:
        """Wait until the broker is reached. Raises CallFailedError."""
        with call_failures(self.endpoint):
            await self._call.wait_for_connection()
        self._was_open = True

    async def exchange(self, request: pb.AppendRequest) -> pb.AppendResponse:
        """Send one append; return its response. Raises UnknownOutcomeError."""
        try:
            with call_failures(self.endpoint):
                await self._call.write(request)
                answer = await self._call.read()
        except CallFailedError as failure:
            raise UnknownOutcomeError(ErrorCode.NETWORK_EXCEPTION, str(failure)) from None
        if answer is END_OF_STREAM:
            words = f"{self.endpoint}: the broker ended the stream"
            raise UnknownOutcomeError(ErrorCode.NETWORK_EXCEPTION, words)
        return answer  # type: ignore[no-any-return]  # generated stubs are untyped
