"""Producers and consumers with the behaviour of real ones: they look up the leader, follow it, time
out, retry.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidemark.codec.record_batch import crc_matches, iterate_headers
from tidemark.codec.records import build_batch, read_records
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.fetch import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    read_fetch_response,
    write_fetch_request,
)
from tidemark.kafka.headers import read_response_header, request_header
from tidemark.kafka.list_offsets import (
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResult,
    ListOffsetsTopic,
    read_list_offsets_response,
    write_list_offsets_request,
)
from tidemark.kafka.produce import (
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceTopic,
    read_produce_response,
    write_produce_request,
)
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID, BrokerId

from sim.checkers import require
from sim.cluster.ledger import Stored
from sim.cluster.wire_socket import SimSocket, connect

if TYPE_CHECKING:
    from sim.cluster.parts import SimTopic
    from sim.cluster.world import World

PRODUCE_VERSION: Final = 9
FETCH_VERSION: Final = 12
LIST_OFFSETS_VERSION: Final = 7
ANSWER_S: Final = 0.8
LENGTH_BYTES: Final = 4
ALL: Final = -1
NEXT_PRODUCER: Final = 1_000
"""Step to the producer id of a producer whose batches were lost."""


class Client:
    """Connection to the leader of one partition, made again after a change or a failure."""

    answer_s = ANSWER_S
    wait_ms = 600
    """Longest time that a broker waits for the ISR."""
    produce_version = PRODUCE_VERSION
    transactional_id: str | None = None
    isolation = 0
    """Isolation level of fetches; 1: committed records only."""
    rack = ""
    """Rack in fetches."""

    def __init__(self, world: "World", topic: "SimTopic") -> None:
        self.world = world
        self.topic = topic
        self.leader_epoch = -1
        self._broker = ""
        self._socket: SimSocket | None = None
        self._correlation_id = 0

    def disconnect(self) -> None:
        """Disconnect; the next request looks up the leader."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def ask(self, api_key: ApiKey, version: int, body: bytes) -> memoryview:
        """Send one request and return its response. Raises OSError, TimeoutError: the outcome is
        unknown.
        """
        try:
            async with asyncio.timeout(self.answer_s):
                sock = await self._connected()
                self._correlation_id += 1
                header = request_header(api_key, version, self._correlation_id, "sim")
                frame = header + body
                await sock.send_all(len(frame).to_bytes(LENGTH_BYTES, "big") + frame)
                answer = await _read_frame(sock)
        except (OSError, TimeoutError):
            self.disconnect()
            raise
        _, position = read_response_header(answer, api_key, version)
        return answer[position:]

    async def _connected(self) -> SimSocket:
        if self._socket is None:
            leader = self._find_leader()
            world = self.world
            self._broker = leader
            self._socket = await connect(
                world.network,
                world.client,
                world.network.hosts[leader],
                lambda: world.broker_at(leader),
            )
        return self._socket

    def _find_leader(self) -> str:
        """Return the leader in the metadata of a random reachable broker; never an older one than
        before.
        """
        world = self.world
        broker = world.dice.pick(world.machines)
        process = broker.process
        link = world.network.cuts
        if process is None or ("client", broker.host.name) in link or broker.host.is_paused:
            raise ConnectionRefusedError("no broker answers")
        image = process.broker.metadata.image.topics_by_id.get(self.topic.topic_id)
        if image is None:
            raise ConnectionRefusedError("no metadata yet")
        state = image.partitions[self.topic.partition]
        if state.leader < 0 or state.leader_epoch < self.leader_epoch:
            raise ConnectionRefusedError("no leader is known")
        self.leader_epoch = state.leader_epoch
        shown = process.broker.metadata.image.brokers.get(self._wanted(state.leader))
        if shown is None:
            raise ConnectionRefusedError("the broker is not registered")
        return shown.node

    def _wanted(self, leader: BrokerId) -> BrokerId:
        """Return the broker to connect to."""
        return leader

    async def rest(self) -> None:
        """Wait before the next attempt."""
        await asyncio.sleep(self.world.dice.between(10, 120) / 1_000)

    # -- requests

    async def produce(self, batch: bytes, acks: int) -> ProducePartitionResult:
        """Send one batch. Raises OSError, TimeoutError."""
        request = ProduceRequest(
            self.transactional_id,
            acks,
            self.wait_ms,
            [
                ProduceTopic(
                    self.topic.name,
                    NO_TOPIC_ID,
                    [ProducePartition(self.topic.partition, memoryview(batch))],
                )
            ],
        )
        version = self.produce_version
        body = write_produce_request(version, request)
        answer = await self.ask(ApiKey.PRODUCE, version, body)
        return read_produce_response(answer, version).topics[0][2][0]

    async def fetch(self, offset: int) -> FetchedPartition:
        """Fetch from an offset. Raises OSError, TimeoutError."""
        want = FetchPartition(self.topic.partition, self.leader_epoch, offset, -1, -1, 2_000)
        topics = [FetchTopic(self.topic.name, NO_TOPIC_ID, [want])]
        request = FetchRequest(
            -1, -1, 100, 1, 4_000, self.isolation, 0, -1, topics, [], self.rack, None
        )  # fmt: skip
        body = write_fetch_request(FETCH_VERSION, request)
        answer = await self.ask(ApiKey.FETCH, FETCH_VERSION, body)
        found = read_fetch_response(answer, FETCH_VERSION).topics[0].partitions[0]
        if found.records:
            _check_crcs(found.records)
        return found

    async def latest(self) -> ListOffsetsResult:
        """Look up the end. Raises OSError, TimeoutError."""
        query = ListOffsetsPartition(self.topic.partition, LATEST_TIMESTAMP, self.leader_epoch)
        request = ListOffsetsRequest(
            -1, self.isolation, [ListOffsetsTopic(self.topic.name, [query])]
        )
        body = write_list_offsets_request(LIST_OFFSETS_VERSION, request)
        answer = await self.ask(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, body)
        return read_list_offsets_response(answer, LIST_OFFSETS_VERSION).topics[0][1][0]


class CorruptError(OSError):
    """A broker's disk has changed a batch: a client fetches it again."""


def _check_crcs(records: memoryview | bytes) -> None:
    view = memoryview(records)
    for position, header in iterate_headers(view):
        if not crc_matches(view[position : position + header.size_bytes], header):
            raise CorruptError(f"offset {header.base_offset}: CRC does not match")


async def _read_frame(sock: SimSocket) -> memoryview:
    size = int.from_bytes(await _read_exactly(sock, LENGTH_BYTES), "big")
    return await _read_exactly(sock, size)


async def _read_exactly(sock: SimSocket, size: int) -> memoryview:
    buffer, position = memoryview(bytearray(size)), 0
    while position < size:
        got = await sock.receive_into(buffer[position:])
        if not got:
            raise ConnectionResetError("closed by the broker")
        position += got
    return buffer


def stored_batches(records: memoryview | bytes, *, with_values: bool) -> list[Stored]:
    """Return the whole batches in the form of a ledger."""
    found = []
    for position, header in iterate_headers(records):
        values: tuple[bytes, ...] = ()
        if with_values and not header.is_control:
            batch = memoryview(records)[position : position + header.size_bytes]
            values = tuple(one.value or b"" for one in read_records(batch, header))
        found.append(
            Stored(
                header.base_offset,
                header.last_offset,
                header.partition_leader_epoch,
                header.crc,
                values,
            )
        )
    return found


class Producer:
    """Producer of one batch at a time, retried until its outcome is known; no value repeats."""

    def __init__(self, world: "World", topic: "SimTopic", number: int) -> None:
        dice = world.dice
        self.name = f"p{number}"
        self._client = Client(world, topic)
        self._world = world
        self._topic = topic
        self._acks = ALL if dice.chance(0.8) else 1
        self._is_idempotent = self._acks == ALL and dice.chance(0.6)
        self._producer_id = 1_000 + number if self._is_idempotent else -1
        self._epoch = 0 if self._is_idempotent else -1
        self._sequence = 0
        self._pace_ms = dice.pick((15, 40, 80))
        self._written = 0

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Send until the workload ends."""
        while not is_over():
            await asyncio.sleep(self._world.dice.between(1, 2 * self._pace_ms) / 1_000)
            if self._may_send():
                await self._send(self._values())

    def _may_send(self) -> bool:
        """Return False while consumers have enough to do."""
        return True

    def _values(self) -> list[bytes]:
        values = []
        for _ in range(self._world.dice.between(1, 3)):
            self._written += 1
            values.append(b"%s-%d" % (self.name.encode(), self._written))
        for value in values:
            self._topic.ledger.sends(value, once=self._is_idempotent)
        return values

    def _key_of(self, value: bytes) -> bytes | None:
        """Return the key of a record."""
        del value
        return None

    async def _send(self, values: list[bytes]) -> None:
        while True:
            batch = build_batch(
                [(self._world.wall_ms(), self._key_of(value), value, ()) for value in values],
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                base_sequence=self._sequence if self._is_idempotent else -1,
            )
            try:
                result = await self._client.produce(batch, self._acks)
            except (OSError, TimeoutError):
                if self._acks == 1 and self._world.dice.chance(0.5):
                    return
                await self._client.rest()
                continue
            code = ErrorCode(result.error_code)
            if code is ErrorCode.NONE:
                self._heard(values, result.base_offset)
                return
            self._world.note(self.name, f"hears {code.name}", self._topic)
            is_lost = code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            require(
                not is_lost or self._topic.ledger.has_lost,
                "the partition knows its idempotent producers",
                f"{self.name} at {self._sequence}",
            )
            if is_lost:
                self._producer_id, self._sequence = self._producer_id + NEXT_PRODUCER, 0
            self._client.disconnect()
            await self._client.rest()

    def _heard(self, values: list[bytes], base_offset: int) -> None:
        self._world.acknowledged += 1
        self._world.note(self.name, f"acked acks={self._acks} at {base_offset}", self._topic)
        if self._is_idempotent:
            self._sequence += len(values)
        if self._acks == ALL:
            for number, value in enumerate(values):
                self._topic.ledger.acknowledges(value, base_offset + number)


class Reader:
    """Reader from the start of the log, which also looks up the end."""

    def __init__(self, world: "World", topic: "SimTopic", number: int) -> None:
        self.name = f"r{number}"
        self._client = Client(world, topic)
        self._world = world
        self._topic = topic
        self._offset = 0

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Read until the workload ends."""
        while not is_over():
            try:
                if self._world.dice.chance(0.15):
                    await self._ask_end()
                else:
                    await self._read()
            except (OSError, TimeoutError):
                await self._client.rest()

    async def _read(self) -> None:
        result, records = await self._client.fetch(self._offset)
        if result.error_code:
            self._skip_deleted(result.error_code)
            self._client.disconnect()
            await self._client.rest()
            return
        if not records:
            await asyncio.sleep(self._world.dice.between(20, 80) / 1_000)
            return
        self._take(result.high_watermark, records)

    def _skip_deleted(self, error_code: int) -> None:
        """Go on behind the records that a client may have deleted."""
        if error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._offset = max(self._offset, self._topic.ledger.delete_asked)

    def _take(self, high_watermark: int, records: memoryview | bytes) -> None:
        batches = stored_batches(records, with_values=False)
        self._topic.ledger.reads(self.name, batches, high_watermark)
        require(
            batches[0].first <= self._offset, "no record is skipped", f"{self.name} {self._offset}"
        )
        self._offset = batches[-1].last + 1

    async def _ask_end(self) -> None:
        result = await self._client.latest()
        if result.error_code:
            self._client.disconnect()
            await self._client.rest()
        else:
            self._topic.ledger.tells_end(self.name, result.offset)
