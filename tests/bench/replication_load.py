"""Loads for replicated topics: requests of many partitions as fast as they go, and small ones at a
fixed rate.

``python -m bench.replication_load JSON`` prints one JSON object.
"""

import json
import select
import signal
import socket
import struct
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Final

from bench.frames import CORRELATION_POSITION, PRODUCE_VERSION, batch_of
from bench.load import Outcome, outcome
from bench.load import Plan as LoadPlan
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.headers import read_response_header, request_header
from tidemark.kafka.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    read_produce_response,
    write_produce_request,
)

ACKS_ALL: Final = -1
_INT32: Final = struct.Struct(">i")
_RECEIVE_BYTES: Final = 256 * 1024
_IDLE_S: Final = 0.1


@dataclass
class ReplicatedPlan:
    """What to send where. A request has one batch for each of ``batches`` partitions."""

    port: int
    topic: str
    batch_bytes: int
    batches: int
    requests: int
    acks: int = ACKS_ALL
    connections: int = 1
    in_flight: int = 5
    rate_s: float = 0
    """Requests a second, all connections together, however long an answer takes; 0: as fast as it
    goes, with ``in_flight`` unanswered."""

    @property
    def request_bytes(self) -> int:
        """Of records in one request."""
        return self.batch_bytes * self.batches


@dataclass
class Paced:
    """Every request of a load at a fixed rate: when it was sent (monotonic) and what it took."""

    sent_at_s: list[float] = field(default_factory=list)
    took_ms: list[float] = field(default_factory=list)
    late_ms_max: float = 0
    """How far the load itself fell behind its own plan."""


def frame_of(plan: ReplicatedPlan) -> bytearray:
    """A whole request; only its correlation id changes from one to the next."""
    batch = memoryview(batch_of(plan.batch_bytes))
    partitions = [ProducePartition(number, batch) for number in range(plan.batches)]
    request = ProduceRequest(
        None, plan.acks, 30_000, [ProduceTopic(plan.topic, bytes(16), partitions)]
    )
    body = write_produce_request(PRODUCE_VERSION, request)
    frame = request_header(ApiKey.PRODUCE, PRODUCE_VERSION, 0, "bench") + body
    return bytearray(_INT32.pack(len(frame)) + frame)


class Sender:
    """One connection."""

    def __init__(self, plan: ReplicatedPlan, frame: bytearray) -> None:
        self.socket = socket.create_connection(("127.0.0.1", plan.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.sent_at: deque[float] = deque()
        self.answered = 0
        self._frame = bytearray(frame)
        self._correlation_id = 0
        self._unsent = memoryview(b"")
        self._received = bytearray()

    def start(self) -> None:
        """Begin a request; ``push`` sends the rest of it."""
        assert not self._unsent, "one request at a time"
        # What is unsent is a view: nothing of it is left when the frame is changed.
        _INT32.pack_into(self._frame, CORRELATION_POSITION, self._correlation_id)
        self._correlation_id += 1
        self._unsent = memoryview(self._frame)
        self.sent_at.append(time.perf_counter())
        self.push()

    @property
    def is_blocked(self) -> bool:
        """Part of a request is unsent."""
        return len(self._unsent) > 0

    def push(self) -> None:
        """Send what the socket takes."""
        while self._unsent:
            try:
                sent = self.socket.send(self._unsent)
            except BlockingIOError:
                return
            self._unsent = self._unsent[sent:]

    def take(self) -> list[tuple[float, float]]:
        """(sent, seconds) of each request that was answered. Raises ConnectionError when one was
        refused.
        """
        try:
            got = self.socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return []
        if not got:
            raise ConnectionError("the broker closed the connection")
        received = self._received
        received += got
        now, done, position = time.perf_counter(), [], 0
        while len(received) - position >= _INT32.size:
            (size,) = _INT32.unpack_from(received, position)
            if len(received) - position - _INT32.size < size:
                break
            position += _INT32.size
            _check(bytes(received[position : position + size]))
            position += size
            sent = self.sent_at.popleft()
            done.append((sent, now - sent))
        del received[:position]
        self.answered += len(done)
        return done


def _check(frame: bytes) -> None:
    view = memoryview(frame)
    _, start = read_response_header(view, ApiKey.PRODUCE, PRODUCE_VERSION)
    for _, _, results in read_produce_response(view[start:], PRODUCE_VERSION).topics:
        for one in results:
            if one.error_code:
                raise ConnectionError(f"partition {one.partition}: error {one.error_code}")


def run_flood(plan: ReplicatedPlan) -> Outcome:
    """As fast as it goes."""
    frame = frame_of(plan)
    senders = [Sender(plan, frame) for _ in range(plan.connections)]
    by_descriptor = {each.socket.fileno(): each for each in senders}
    poller = select.epoll()
    latencies: list[float] = []
    started, cpu, start = 0, time.process_time(), time.perf_counter()
    for each in senders:
        poller.register(each.socket, select.EPOLLIN | select.EPOLLOUT)
    while len(latencies) < plan.requests:
        for descriptor, ready in poller.poll():
            each = by_descriptor[descriptor]
            if ready & (select.EPOLLIN | select.EPOLLHUP):
                latencies += [took for _, took in each.take()]
            each.push()
            while (
                not each.is_blocked
                and started < plan.requests
                and len(each.sent_at) < plan.in_flight
            ):
                started += 1
                each.start()
            mask = select.EPOLLIN | (select.EPOLLOUT if each.is_blocked else 0)
            poller.modify(descriptor, mask)
    seconds = time.perf_counter() - start
    for each in senders:
        each.socket.close()
    like = LoadPlan("produce", plan.port, plan.topic, plan.request_bytes, 0)
    return outcome(like, latencies, seconds, time.process_time() - cpu)


class _Stop:
    """Set by SIGTERM: what was sent is still waited for."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, _number: int, _frame: object) -> None:
        self.asked = True


def run_paced(plan: ReplicatedPlan) -> Paced:
    """At ``rate_s``, until SIGTERM or ``requests``: each is sent when it is due, whether or not
    those before it are answered.
    """
    frame, stop = frame_of(plan), _Stop()
    senders = [Sender(plan, frame) for _ in range(plan.connections)]
    by_descriptor = {each.socket.fileno(): each for each in senders}
    poller = select.epoll()
    for each in senders:
        poller.register(each.socket, select.EPOLLIN)
    found, started = Paced(), 0
    start = time.perf_counter()
    while True:
        is_over = stop.asked or started == plan.requests
        if is_over and len(found.took_ms) == started:
            break
        now = time.perf_counter()
        due = start + started / plan.rate_s
        while not is_over and started < plan.requests and due <= now:
            found.late_ms_max = max(found.late_ms_max, 1e3 * (now - due))
            senders[started % len(senders)].start()
            started += 1
            due = start + started / plan.rate_s
        wait_s = _IDLE_S if is_over else max(0.0, due - time.perf_counter())
        for descriptor, _ in poller.poll(wait_s):
            for sent, took in by_descriptor[descriptor].take():
                found.sent_at_s.append(sent)
                found.took_ms.append(1e3 * took)
    for each in senders:
        each.socket.close()
    return found


def main() -> None:
    """One plan; what came of it on standard output."""
    plan = ReplicatedPlan(**json.loads(sys.argv[1]))
    print(json.dumps(asdict(run_paced(plan) if plan.rate_s else run_flood(plan))))


if __name__ == "__main__":
    main()
