"""The proof from outside: what is in a topic, as its readers get it, compared record by record."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

import confluent_kafka
from demo_input import Input, KeyField
from tidemark.cli.failure import CommandError
from tidemark.client import Consumer, TopicPartition
from tidemark.runtime.clock import Clock
from tidemark.runtime.exit_codes import ExitCode

_IDLE_SECONDS_MAX: Final = 30
_POLL_SECONDS: Final = 0.2
_RECORDS_A_POLL: Final = 5_000
_clock = Clock()


@dataclass(slots=True)
class Tale:
    """What went by: how many records and bytes, each record's number, and the order of each key's
    records from each server.

    A record is remembered by a digest, an order as a chain of digests, so that a large input fits
    into memory.
    """

    title: str
    records: int = 0
    total_bytes: int = 0
    seconds: float = 0.0
    seen: Counter[bytes] = field(default_factory=Counter)
    order: dict[tuple[bytes, bytes], bytes] = field(default_factory=dict)
    by_partition: Counter[int] = field(default_factory=Counter)
    places: dict[bytes, int] = field(default_factory=dict)
    torn: set[bytes] = field(default_factory=set)
    """Keys met in more than one partition."""

    def add(self, server: bytes, key: bytes, value: bytes, partition: int) -> None:
        """One record, in the order in which its partition has it."""
        self.records += 1
        self.total_bytes += len(value)
        self.seen[_digest(key, value)] += 1
        origin = (server, key)
        self.order[origin] = _digest(self.order.get(origin, b""), value)
        self.by_partition[partition] += 1
        if self.places.setdefault(key, partition) != partition:
            self.torn.add(key)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Measure what happens within."""
        began_ms = _clock.now_ms()
        yield
        self.seconds = max(0.001, (_clock.now_ms() - began_ms) / 1_000)

    @property
    def repeats(self) -> int:
        """Records that equal an earlier one, byte by byte."""
        return self.records - len(self.seen)

    def missing_from(self, other: "Tale") -> int:
        """Records of ours that the other has not, each as often as it is missing."""
        return (self.seen - other.seen).total()

    def out_of_order(self, other: "Tale") -> int:
        """Keys of a server whose records do not come in the same order."""
        return sum(other.order.get(origin) != chain for origin, chain in self.order.items())


def _digest(first: bytes, second: bytes) -> bytes:
    return blake2b(b"%d:%b%b" % (len(first), first, second), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Reading:
    """How a topic's records are understood. ``keyed``: the key is the record's own, not the
    proof's.
    """

    topic: str
    partitions: int
    source: Input
    key_field: KeyField
    keyed: bool

    def take(self, tale: Tale, key: bytes | None, value: bytes, partition: int) -> None:
        """One record into a tale."""
        found = (key or b"") if self.keyed else self.key_field.of(value)
        tale.add(self.source.server_of(value), found, value, partition)


def tale_of_input(source: Input, key_field: KeyField) -> Tale:
    """What the servers were given to send."""
    tale = Tale("input")
    with tale.timed():
        for message in source.messages():
            tale.add(message.server, key_field.of(message.value), message.value, 0)
    return tale


def read_by_kafka(bootstrap: str, reading: Reading) -> Tale:
    """All partitions from the beginning to where they end now, with librdkafka, read_committed."""
    tale = Tale("librdkafka")
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "demo",  # librdkafka wants one; nothing is committed
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    numbers = range(reading.partitions)
    with tale.timed():
        try:
            consumer.assign(
                [confluent_kafka.TopicPartition(reading.topic, number, 0) for number in numbers]
            )
            _take_all(consumer, reading, tale)
        finally:
            consumer.close()
    return tale


def _take_all(consumer: confluent_kafka.Consumer, reading: Reading, tale: Tale) -> None:
    ended: set[int] = set()
    heard_ms = _clock.now_ms()
    while len(ended) < reading.partitions:
        messages = consumer.consume(_RECORDS_A_POLL, timeout=_POLL_SECONDS)
        for message in messages:
            _take(message, reading, tale, ended)
        if messages:
            heard_ms = _clock.now_ms()
        elif _clock.now_ms() - heard_ms > _IDLE_SECONDS_MAX * 1_000:
            raise CommandError(
                f"the Kafka client got nothing from {reading.topic} for {_IDLE_SECONDS_MAX} s",
                hint="tidemark dev status",
                code=ExitCode.TEMPORARY,
            )


def _take(message: confluent_kafka.Message, reading: Reading, tale: Tale, ended: set[int]) -> None:
    error, partition = message.error(), message.partition()
    if error is None:
        assert partition is not None, "librdkafka names it for records and ends alike"
        key, value = message.key(), message.value()
        reading.take(tale, _as_bytes(key), _as_bytes(value), partition)
    elif error.name() == "_PARTITION_EOF":
        assert partition is not None, "and for ends alike"
        ended.add(partition)
    else:
        raise CommandError(f"the Kafka client failed: {error.str()}")


def _as_bytes(content: bytes | str | None) -> bytes:
    return content.encode() if isinstance(content, str) else content or b""


async def read_by_grpc(bootstrap: str, reading: Reading) -> Tale:
    """The same through the PartitionStore, with the native client."""
    tale = Tale("gRPC")
    with tale.timed():
        async with Consumer(
            bootstrap,
            transport="grpc",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            numbers = range(reading.partitions)
            partitions = [TopicPartition(reading.topic, number) for number in numbers]
            consumer.assign(partitions)
            left = await consumer.end_offsets(partitions)
            while left:
                for record in await consumer.poll(_RECORDS_A_POLL):
                    reading.take(tale, record.key, record.value or b"", record.partition)
                for partition, end in list(left.items()):
                    if await consumer.position(partition) >= end:
                        del left[partition]
    return tale


def problems_of(expected: Tale, found: Tale, where: str) -> list[str]:
    """What is wrong, a line each; nothing when all is there, once and in order."""
    counts = (
        (expected.missing_from(found), "records missing"),
        (found.missing_from(expected), "records twice, or never sent"),
        (expected.out_of_order(found), "keys of a server whose records came in another order"),
    )
    return [f"{where}: {count:,} {what}" for count, what in counts if count]
