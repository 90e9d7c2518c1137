"""What the loads of transactions and groups share: one epoll loop over many Kafka connections, and
the frames of a transactional producer (transactions v2, KIP-890).
"""

import heapq
import itertools
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from bench.frames import CORRELATION_POSITION
from crc32c import crc32c
from e2e.kafka_wire import Wire
from tidemark.codec.record_batch import CRC_POSITION, CRC_START, TRANSACTIONAL_BIT
from tidemark.codec.records import build_batch
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.headers import read_response_header, request_header
from tidemark.kafka.long_tail import Struct, read_response, write_request
from tidemark.kafka.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    read_produce_response,
    write_produce_request,
)
from tidemark.model.errors import ErrorCode

PRODUCE_VERSION: Final = 12
END_TXN_VERSION: Final = 5
_INIT_VERSION: Final = 4
_FIND_VERSION: Final = 4
_ACKS_ALL: Final = -1
_TIMEOUT_MS: Final = 30_000
_TRANSACTION_TIMEOUT_MS: Final = 60_000
_READY_S: Final = 60.0
_RETRY_S: Final = 0.02
_RECEIVE_BYTES: Final = 1 << 20
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_UINT32: Final = struct.Struct(">I")
_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_POSITION: Final = 43
_STAMP: Final = b"the time"
_RECORD_BYTES: Final = 1_024
_RECORD_OVERHEAD_BYTES: Final = 16
_LATER: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)

OnAnswer = Callable[[memoryview], None]
"""Hears the body of an answer, behind its header; the view is gone when it returns."""


class Link:
    """One connection; answers come in the order of the requests."""

    def __init__(self, loop: "Loop", port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self._loop = loop
        self._numbers = itertools.count(1)
        self._asked: deque[tuple[int, int, int, OnAnswer]] = deque()
        self._unsent: deque[memoryview] = deque()
        self._received = bytearray()

    @property
    def unanswered(self) -> int:
        """Requests."""
        return len(self._asked)

    @property
    def is_blocked(self) -> bool:
        """Something is unsent."""
        return bool(self._unsent)

    def ask(self, key: ApiKey, version: int, frame: bytearray, on_answer: OnAnswer) -> None:
        """Send a frame with its length, which nobody changes afterwards but for its number here."""
        number = next(self._numbers)
        _INT32.pack_into(frame, CORRELATION_POSITION, number)
        self._asked.append((key, version, number, on_answer))
        self._unsent.append(memoryview(frame))
        self.push()
        if self._unsent:
            self._loop.watch(self)

    def call(
        self, key: ApiKey, version: int, fields: Mapping[str, object], on_answer: OnAnswer
    ) -> None:
        """``ask`` for an API of the long tail."""
        self.ask(
            key, version, frame_of(key, version, write_request(key, version, fields)), on_answer
        )

    def push(self) -> None:
        """Send what the socket takes."""
        while self._unsent:
            part = self._unsent[0]
            try:
                sent = self.socket.send(part)
            except BlockingIOError:
                return
            if sent < len(part):
                self._unsent[0] = part[sent:]
            else:
                self._unsent.popleft()

    def take(self) -> None:
        """Receive, and tell who asked. Raises ConnectionError when the broker closed."""
        try:
            got = self.socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        if not got:
            raise ConnectionError("the broker closed the connection")
        self._received += got
        position, end = 0, len(self._received)
        while end - position >= _INT32.size:
            (size,) = _INT32.unpack_from(self._received, position)
            if end - position - _INT32.size < size:
                break
            position += _INT32.size
            # A copy: what is received must be free to be cut below.
            self._tell(memoryview(bytes(self._received[position : position + size])))
            position += size
        del self._received[:position]

    def _tell(self, frame: memoryview) -> None:
        key, version, number, on_answer = self._asked.popleft()
        correlation_id, start = read_response_header(frame, key, version)
        assert correlation_id == number, "answers come in order"
        on_answer(frame[start:])


class Loop:
    """Links and timers, until something is true."""

    def __init__(self) -> None:
        self._poller = select.epoll()
        self._links: dict[int, Link] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_numbers = itertools.count()

    def link(self, port: int) -> Link:
        """A new connection."""
        link = Link(self, port)
        self._links[link.socket.fileno()] = link
        self._poller.register(link.socket, select.EPOLLIN)
        return link

    def watch(self, link: Link) -> None:
        """Until all that it has to send is sent."""
        wanted = select.EPOLLIN | (select.EPOLLOUT if link.is_blocked else 0)
        self._poller.modify(link.socket, wanted)

    def at(self, when_s: float, work: Callable[[], None]) -> None:
        """On the monotonic clock."""
        heapq.heappush(self._timers, (when_s, next(self._timer_numbers), work))

    def after(self, seconds: float, work: Callable[[], None]) -> None:
        """From now."""
        self.at(time.monotonic() + seconds, work)

    def run(self, is_over: Callable[[], bool], *, within_s: float) -> None:
        """Raises TimeoutError."""
        deadline = time.monotonic() + within_s
        while not is_over():
            now = time.monotonic()
            if now > deadline:
                raise TimeoutError(f"not over within {within_s:g} s")
            while self._timers and self._timers[0][0] <= now:
                heapq.heappop(self._timers)[2]()
            due = min(deadline, self._timers[0][0]) if self._timers else deadline
            for descriptor, ready in self._poller.poll(max(0.0, due - time.monotonic())):
                link = self._links[descriptor]
                if ready & ~select.EPOLLOUT:
                    link.take()
                if ready & select.EPOLLOUT:
                    link.push()
                    self.watch(link)

    def close(self) -> None:
        """End every connection."""
        for link in self._links.values():
            link.socket.close()
        self._poller.close()


def frame_of(key: ApiKey, version: int, body: bytes) -> bytearray:
    """A request with its length; ``Link.ask`` numbers it."""
    frame = request_header(key, version, 0, "bench") + body
    return bytearray(_INT32.pack(len(frame)) + frame)


class StampedBatch(NamedTuple):
    """A batch with room for the time of its creation, in nanoseconds, in its first record."""

    data: bytes
    stamp_position: int
    records: int


def stamped_batch(size_bytes: int, *, transactional: bool, times: int = 1) -> StampedBatch:
    """About ``size_bytes``, in records of about 1 KiB; ``times``: as many such records again."""
    count = max(1, size_bytes // _RECORD_BYTES)
    filling = max(0, size_bytes // count - len(_STAMP) - _RECORD_OVERHEAD_BYTES)
    now_ms = time.time_ns() // 1_000_000
    data = build_batch(
        [(now_ms, None, _STAMP + b"x" * filling, ()) for _ in range(count * times)],
        producer_id=0,
        producer_epoch=0,
        base_sequence=0,
        attributes_extra=TRANSACTIONAL_BIT if transactional else 0,
    )
    return StampedBatch(data, data.index(_STAMP), count * times)


def read_stamp_ns(batch: memoryview, stamp_position: int) -> int:
    """When a batch was created, on the monotonic clock of this machine."""
    return int(_INT64.unpack_from(batch, stamp_position)[0])


class Producer(NamedTuple):
    """Who writes."""

    producer_id: int
    producer_epoch: int


class ProduceTemplate:
    """A request with the same batch for each of some partitions."""

    def __init__(
        self,
        topic: str,
        partitions: Sequence[int],
        batch: StampedBatch,
        transactional_id: str | None,
    ) -> None:
        view = memoryview(batch.data)
        topics = [
            ProduceTopic(topic, bytes(16), [ProducePartition(one, view) for one in partitions])
        ]
        request = ProduceRequest(transactional_id, _ACKS_ALL, _TIMEOUT_MS, topics)
        body = write_produce_request(PRODUCE_VERSION, request)
        self.partitions = list(partitions)
        self._frame = frame_of(ApiKey.PRODUCE, PRODUCE_VERSION, body)
        self.batch = batch
        self._starts: list[int] = []
        start = -1
        for _ in partitions:
            start = self._frame.index(batch.data, start + 1)
            self._starts.append(start)

    def frame(self, producer: Producer, sequence: int, created_ns: int) -> bytearray:
        """One request; ``sequence`` is of each partition's first record."""
        frame, size = bytearray(self._frame), len(self.batch.data)
        view = memoryview(frame)
        for start in self._starts:
            _PRODUCER.pack_into(frame, start + _PRODUCER_POSITION, *producer, sequence)
            _INT64.pack_into(frame, start + self.batch.stamp_position, created_ns)
            covered = view[start + CRC_START : start + size]
            _UINT32.pack_into(frame, start + CRC_POSITION, crc32c(covered))
        return frame


def refused_partitions(body: memoryview) -> list[int]:
    """Those to be asked again. Raises ConnectionError for any other error."""
    refused = []
    for _, _, results in read_produce_response(body, PRODUCE_VERSION).topics:
        for one in results:
            if one.error_code == ErrorCode.NOT_ENOUGH_REPLICAS:
                refused.append(one.partition)
            elif one.error_code:
                code = ErrorCode(one.error_code).name
                raise ConnectionError(f"{one.partition}: {code} {one.error_message}")
    return refused


def end_fields(
    transactional_id: str, producer: Producer, *, commit: bool = True
) -> dict[str, object]:
    """Of EndTxn."""
    return {
        "transactional_id": transactional_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "committed": commit,
    }


def next_producer(body: memoryview) -> Producer | None:
    """Of an answer to EndTxn; None: ask again. Raises ConnectionError when it was refused."""
    answer = read_response(ApiKey.END_TXN, END_TXN_VERSION, body)
    if answer.error_code in _LATER:
        return None
    if answer.error_code:
        raise ConnectionError(f"EndTxn: {ErrorCode(answer.error_code).name}")
    return Producer(answer.producer_id, answer.producer_epoch)


# -- before a load begins


def ask_until_ready(port: int, key: ApiKey, version: int, fields: Mapping[str, object]) -> Struct:
    """Again while the answer is "not yet". Raises TimeoutError, ConnectionError."""
    deadline = time.monotonic() + _READY_S
    with Wire(port, timeout_s=_READY_S) as wire:
        while time.monotonic() < deadline:
            answer = read_response(
                key, version, wire.ask(key, version, write_request(key, version, fields))
            )
            holder = answer.coordinators[0] if key is ApiKey.FIND_COORDINATOR else answer
            if not holder.error_code:
                return holder
            if holder.error_code not in _LATER:
                raise ConnectionError(f"{key.name}: {ErrorCode(holder.error_code).name}")
            time.sleep(_RETRY_S)
    raise TimeoutError(f"{key.name}: not within {_READY_S:g} s")


def coordinator_port(port: int, name: str, *, of_group: bool = False) -> int:
    """The Kafka port of the broker that coordinates a transactional id or a group."""
    fields = {"key_type": 0 if of_group else 1, "coordinator_keys": [name]}
    return int(ask_until_ready(port, ApiKey.FIND_COORDINATOR, _FIND_VERSION, fields).port)


def init_producer(port: int, transactional_id: str | None) -> Producer:
    """A new session."""
    fields = {
        "transactional_id": transactional_id,
        "transaction_timeout": _TRANSACTION_TIMEOUT_MS,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    answer = ask_until_ready(port, ApiKey.INIT_PRODUCER_ID, _INIT_VERSION, fields)
    return Producer(answer.producer_id, answer.producer_epoch)
