"""The server's end of a simulated Kafka connection: frames to the broker's own router, answers in
the order of requests.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, cast

from broker.shell.replies import Part, Reply, framed
from broker.shell.request_router import RequestRouter
from tidemark.kafka.headers import HeaderReader, RequestHeader, response_header
from tidemark.kafka.produce_repeated import RepeatedProduce
from tidemark.storage.disk import DiskError

from sim.cluster.network import Host, Wire
from sim.loop import SimLoop

if TYPE_CHECKING:
    from broker.shell.connection import Connection

LENGTH_BYTES = 4


class SimListener:
    """One listener of a broker."""

    def __init__(self, name: str, loop: SimLoop) -> None:
        self.name = name
        self.loop = loop


class ServerConnection:
    """What handlers see as ``Connection``."""

    def __init__(
        self,
        wire: Wire,
        host: Host,
        listener: SimListener,
        router: RequestRouter,
        *,
        to_client: Callable[[bytes], None],
    ) -> None:
        self.listener = listener
        self.principal = "User:ANONYMOUS"
        self.peer = wire.client.name
        self.headers = HeaderReader()
        self.produce_prefix_bytes = 0
        self.repeated_produces: dict[bytes, RepeatedProduce] = {}
        self.closed = False
        self._wire = wire
        self._host = host
        self._router = router
        self._replies: deque[Reply] = deque()
        self._to_client = to_client
        wire.on_broken[host] = self._lost

    def _lost(self) -> None:
        self.closed = True
        replies, self._replies = self._replies, deque()
        for reply in replies:
            if reply.on_gone is not None:
                reply.on_gone()

    def frame(self, data: bytes) -> None:
        """One whole request has come."""
        if not self.closed:
            view = memoryview(bytearray(data))[LENGTH_BYTES:]
            self._router.handle(cast("Connection", self), view)

    # -- what handlers call

    def answer(self, header: RequestHeader, body: bytes) -> None:
        """Now, in order."""
        head = response_header(header.api_key, header.api_version, header.correlation_id)
        size = (len(head) + len(body)).to_bytes(LENGTH_BYTES, "big")
        self._queue([size + head + body])

    def answer_parts(self, header: RequestHeader, body: Sequence[Part]) -> None:
        """Now, in order."""
        self._queue(framed(header, body))

    def later(self, header: RequestHeader) -> Reply:
        """A place in the order of answers."""
        reply = Reply(cast("Connection", self), header)
        self._replies.append(reply)
        return reply

    def replied(self, _reply: Reply) -> None:
        """A later answer is there."""
        if self.closed:
            return
        while self._replies and self._replies[0].parts is not None:
            parts = self._replies.popleft().parts
            assert parts is not None
            self._send(parts)

    def _queue(self, parts: list[Part]) -> None:
        if not self._replies:
            self._send(parts)
            return
        reply = Reply(cast("Connection", self), RequestHeader(0, 0, 0, None, 0))
        reply.parts = parts
        self._replies.append(reply)

    def _send(self, parts: list[Part]) -> None:
        if self.closed or not parts:
            return
        try:
            data = b"".join(
                part if isinstance(part, bytes) else part[0].read_at(part[1], part[2])
                for part in parts
            )
        except DiskError as failure:
            self.close(str(failure))
            return
        self._wire.send(self._host, lambda: self._to_client(data))

    def mute(self, _throttle_ms: int) -> None:
        """There are no quotas here."""

    def close(self, _reason: str) -> None:
        """Cut it."""
        if not self.closed:
            self._lost()
            self._wire.break_off(self._host)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """A slow handler."""
        self.listener.loop.create_task(work)
