"""The load: one process, one epoll loop, many connections; the same for the floor and for a broker.

``python -m bench.load JSON`` prints one JSON object: bytes, requests, seconds, latencies.
"""

import json
import select
import socket
import struct
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from bench.frames import FetchFrame, ProduceFrame, batch_of

_INT32: Final = struct.Struct(">i")
_READABLE: Final = select.EPOLLIN | select.EPOLLHUP


@dataclass
class Plan:
    """What to send where."""

    kind: str
    port: int
    topic: str
    size_bytes: int  # of a batch, or of a fetch
    total_bytes: int
    connections: int = 1
    in_flight: int = 5
    first_partition: int = 0
    partitions: int = 1  # connection i uses partition first + i % partitions
    producer_ids: list[int] = field(default_factory=list)  # one a connection; empty: not idempotent
    batch_bytes: int = 65536  # fetch: of the batches stored, to know the next offset
    batch_records: int = 64
    acks: int = 1
    keyed: bool = False
    pace_mb_s: float = 0  # of one connection, one request in flight; 0: as fast as it goes


@dataclass
class Outcome:
    """What came of it. Latencies in milliseconds."""

    bytes: int
    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    load_cpu_s: float
    errors: int
    first_done_s: float = 0  # the first connection has all its answers
    last_done_s: float = 0
    fewest_at_first_done: int = 0  # answers of the connection that was last in line then


class Connection:
    """One client connection with its requests in flight."""

    def __init__(self, plan: Plan, index: int) -> None:
        self.plan = plan
        self.socket = socket.create_connection(("127.0.0.1", plan.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.buffer = bytearray(max(1 << 16, min(plan.size_bytes + 4096, 1 << 21)))
        self.filled = 0
        self.skip = 0  # bytes of an answer still to come that nobody looks at
        self.sent_at: deque[float] = deque()
        self.correlation_id = 0
        self.started = time.perf_counter()
        requests = max(1, plan.total_bytes // plan.size_bytes)
        self.budget = len(range(index, requests, plan.connections))  # equal work for each
        self.requests = 0
        self.offset = 0
        self.errors = 0
        self.unsent: memoryview | None = None
        partition = plan.first_partition + index % plan.partitions
        if plan.kind == "produce":
            producer_id = plan.producer_ids[index] if plan.producer_ids else -1
            batch = batch_of(plan.size_bytes, producer_id=producer_id, keyed=plan.keyed)
            self.produce: ProduceFrame | None = ProduceFrame(
                plan.topic, partition, batch, acks=plan.acks
            )
            self.fetch = None
        else:
            self.produce = None
            self.fetch = FetchFrame(plan.topic, partition, plan.size_bytes)

    @property
    def may_ask(self) -> bool:
        """Work is left, and fewer requests are unanswered than may be."""
        return self.correlation_id < self.budget and len(self.sent_at) < self.plan.in_flight

    def wait_for_pace(self) -> None:
        """Not earlier than the plan's pace allows."""
        if self.plan.pace_mb_s:
            due = (
                self.started
                + self.correlation_id * self.plan.size_bytes / 1e6 / self.plan.pace_mb_s
            )
            time.sleep(max(0.0, due - time.perf_counter()))

    def send_next(self) -> bool:
        """Start one request; False when the socket is full (the rest waits for writability)."""
        self.wait_for_pace()
        if self.produce is not None:
            self.produce.stamp(self.correlation_id)
            frame = self.produce.buffer
        else:
            assert self.fetch is not None
            self.fetch.stamp(self.correlation_id, self.offset)
            frame = self.fetch.buffer
        self.correlation_id += 1
        self.sent_at.append(time.perf_counter())
        return self.push(memoryview(frame))

    def ask(self) -> int:
        """Start what may be started; the events to wait for."""
        if self.unsent is None or self.push(self.unsent):
            while self.may_ask:
                if not self.send_next():
                    break
        return select.EPOLLIN | (0 if self.unsent is None else select.EPOLLOUT)

    def push(self, data: memoryview) -> bool:
        """Send what the socket takes; keep the rest."""
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            # The frame is patched in place for the next request, so the rest is copied.
            self.unsent = memoryview(bytes(data[sent:])) if self.unsent is None else data[sent:]
            return False
        self.unsent = None
        return True

    def on_readable(self, latencies: list[float]) -> int:
        """Take answers; returns how many came whole."""
        answers = 0
        while True:
            try:
                if self.skip:
                    room = memoryview(self.buffer)[: min(self.skip, len(self.buffer))]
                    received = self.socket.recv_into(room)
                else:
                    received = self.socket.recv_into(memoryview(self.buffer)[self.filled :])
            except BlockingIOError:
                return answers
            if received == 0:
                raise ConnectionError("the server closed the connection")
            if self.skip:
                self.skip -= received
                if self.skip == 0:
                    answers += self.done(latencies)
                continue
            self.filled += received
            answers += self.take(latencies)

    def take(self, latencies: list[float]) -> int:
        """Answers in the buffer, whole or begun."""
        answers = position = 0
        while self.filled - position >= _INT32.size:
            (length,) = _INT32.unpack_from(self.buffer, position)
            self.look(length)
            here = self.filled - position
            if here >= length + 4:
                position += length + 4
                answers += self.done(latencies)
            else:
                self.skip = length + 4 - here
                position = self.filled
        self.buffer[: self.filled - position] = self.buffer[position : self.filled]
        self.filled -= position
        return answers

    def look(self, length: int) -> None:
        """A fetch answer moves the offset by the whole batches in it."""
        if self.fetch is None:
            return
        # What is not records is far less than a batch, so whole batches divide out.
        batches = length // self.plan.batch_bytes
        if batches == 0:
            self.offset = 0  # the end: start again
        else:
            self.offset += batches * self.plan.batch_records

    def done(self, latencies: list[float]) -> int:
        """One answer came whole."""
        latencies.append(time.perf_counter() - self.sent_at.popleft())
        self.requests += 1
        return 1


def run(plan: Plan) -> Outcome:
    """Send until each connection has done its part, then wait for the last answer."""
    connections = [Connection(plan, index) for index in range(plan.connections)]
    by_descriptor = {each.socket.fileno(): each for each in connections}
    poller = select.epoll()
    latencies: list[float] = []
    cpu = time.process_time()
    start = time.perf_counter()
    for each in connections:
        poller.register(each.socket, each.ask())
    done_at: list[float] = []
    fewest = 0
    working = sum(each.budget > 0 for each in connections)
    while len(done_at) < working:
        for descriptor, ready in poller.poll():
            each = by_descriptor[descriptor]
            answered = each.on_readable(latencies) if ready & _READABLE else 0
            if answered and each.requests == each.budget:
                if not done_at:
                    fewest = min(one.requests for one in connections)
                done_at.append(time.perf_counter() - start)
            poller.modify(descriptor, each.ask())
    for each in connections:
        each.socket.close()
    found = outcome(plan, latencies, time.perf_counter() - start, time.process_time() - cpu)
    return replace(
        found, first_done_s=done_at[0], last_done_s=done_at[-1], fewest_at_first_done=fewest
    )


def outcome(plan: Plan, latencies: list[float], seconds: float, cpu_s: float) -> Outcome:
    """Percentiles and sums."""
    ordered = sorted(latencies)

    def percentile(part: float) -> float:
        return 1e3 * ordered[min(len(ordered) - 1, int(part * len(ordered)))]

    return Outcome(
        bytes=len(ordered) * plan.size_bytes,
        requests=len(ordered),
        seconds=seconds,
        p50_ms=percentile(0.5),
        p99_ms=percentile(0.99),
        p999_ms=percentile(0.999),
        load_cpu_s=cpu_s,
        errors=0,
    )


if __name__ == "__main__":
    print(json.dumps(asdict(run(Plan(**json.loads(sys.argv[1]))))))
