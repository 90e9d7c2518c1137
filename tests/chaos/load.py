"""Producers that never stop, a reader that follows, and the read-back at the end."""

import contextlib
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from chaos.history import Acknowledgement, Partition, Record, Stream
from chaos.values import Name, write_value
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from e2e.bounded_librdkafka import BoundedConsumer as Consumer

KEYS_OF_PARTITION: Final = 3
TICK_S: Final = 0.02
WAITING_MAX: Final = 500
"""Values of one producer for one partition that wait for their acknowledgement."""

_POLL_S: Final = 0.2
QUICK: Final[Mapping[str, object]] = {
    "socket.timeout.ms": 6_000,
    "socket.connection.setup.timeout.ms": 3_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "topic.metadata.refresh.interval.ms": 5_000,
    "log_level": 0,
}
_PRODUCER: Final[Mapping[str, object]] = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 5,
    "request.timeout.ms": 5_000,
    "message.timeout.ms": 3_600_000,
}
READER: Final[Mapping[str, object]] = {
    "group.id": "chaos",  # asked for by the library; nobody joins a group
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 200,
}
# The library goes on by itself after any other: it has lost a connection, or asks for a leader.
READER_ERRORS: Final = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError._LOG_TRUNCATION,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError._BAD_MSG,
        KafkaError._FATAL,
    }
)


class Writer:
    """One idempotent producer in a thread of its own, at a steady rate over all partitions.

    Each key stays in one partition. A fatal error is kept in ``errors``, and a new producer with a
    new name goes on: sequences of the old one end there.
    """

    def __init__(self, number: int, bootstrap: str, partitions: Sequence[Partition], rate: float):
        self._number, self._bootstrap = number, bootstrap
        self._partitions = tuple(partitions)
        self._rate = rate
        self._dice = random.Random(number)
        self._stop = threading.Event()
        self._lives = 0
        self._waiting: Counter[Partition] = Counter()
        self._is_dead = False
        self.sent: dict[Stream, int] = defaultdict(int)
        self.acknowledged: list[Acknowledgement] = []
        self.acknowledged_at: dict[Partition, list[float]] = defaultdict(list)
        self.errors: list[str] = []
        self._producer = self._new_producer()

    def stop(self) -> None:
        """Offer nothing more; ``run`` then waits for what is on its way."""
        self._stop.set()

    def run(self, flush_s: float) -> None:
        """Write until stopped, then wait for every acknowledgement."""
        began, offered = time.monotonic(), 0
        while not self._stop.is_set():
            due = int((time.monotonic() - began) * self._rate)
            for _ in range(offered, due):
                self._offer(self._dice.choice(self._partitions))
            offered = due
            self._serve(TICK_S)
            if self._is_dead:
                self._producer = self._new_producer()
        deadline = time.monotonic() + flush_s
        while len(self._producer) and not self._is_dead and time.monotonic() < deadline:
            self._serve(TICK_S)
        left = len(self._producer)
        if left:
            waiting = ", ".join(f"{one} {count}" for one, count in (+self._waiting).items())
            self.errors.append(f"{self._name}: {left} unanswered {flush_s:g} s later: {waiting}")

    def _serve(self, seconds: float) -> None:
        """Hear what was answered."""
        try:
            self._producer.poll(seconds)
        except KafkaException as fatal:
            self._note(f"{self._name} is dead", fatal.args[0])

    @property
    def _name(self) -> str:
        return f"p{self._number}.{self._lives}"

    def _new_producer(self) -> Producer:
        self._lives += 1
        self._is_dead = False
        self._waiting.clear()
        return Producer({"bootstrap.servers": self._bootstrap, **QUICK, **_PRODUCER})

    def _offer(self, partition: Partition) -> None:
        if self._waiting[partition] >= WAITING_MAX:
            return
        key = f"{partition}.{self._dice.randrange(KEYS_OF_PARTITION)}"
        stream = Stream(self._name, key)
        name = Name(*stream, self.sent[stream])
        producer = self._producer

        def heard(error: KafkaError | None, message: Any) -> None:
            if producer is self._producer:
                self._waiting[partition] -= 1
            self._hear(name, partition, error, message)

        try:
            producer.produce(
                partition.topic,
                write_value(name),
                key.encode(),
                partition.number,
                on_delivery=heard,
            )
        except KafkaException as refused:  # the producer is dead
            self._note(f"{name} not taken", refused.args[0])
            return
        except BufferError:
            return
        self.sent[stream] += 1
        self._waiting[partition] += 1

    def _hear(
        self, name: Name, partition: Partition, error: KafkaError | None, message: Any
    ) -> None:
        if error is not None:
            self._note(f"{name} to {partition}", error)
            return
        self.acknowledged_at[partition].append(time.monotonic())
        offset = message.offset()
        offset = -1 if offset is None else offset
        self.acknowledged.append(Acknowledgement(name, partition, offset))

    def _note(self, what: str, error: KafkaError) -> None:
        self.errors.append(f"{what}: {error.name()}: {error.str()}")
        self._is_dead = True


class Reader:
    """Follows every partition from its start, and keeps all that it sees."""

    def __init__(self, bootstrap: str, partitions: Sequence[Partition]) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, **QUICK, **READER})
        self._consumer.assign([TopicPartition(*partition, 0) for partition in partitions])
        self._stop = threading.Event()
        self.seen: dict[Partition, list[Record]] = {partition: [] for partition in partitions}
        self.errors: list[str] = []

    def stop(self) -> None:
        """``run`` then ends."""
        self._stop.set()

    def run(self) -> None:
        """Read until stopped."""
        try:
            while not self._stop.is_set():
                for message in self._consumer.consume(1_000, _POLL_S):
                    self._take(message)
        finally:
            self._consumer.close()

    def behind(self, ends: Mapping[Partition, int]) -> list[str]:
        """The partitions that it has not read to the end."""
        reached = {one: self.seen[one][-1].offset + 1 if self.seen[one] else 0 for one in ends}
        return [
            f"reader is at {reached[one]} of {end} in {one}"
            for one, end in ends.items()
            if reached[one] < end
        ]

    def _take(self, message: Any) -> None:
        error = message.error()
        partition = Partition(message.topic(), message.partition())
        if error is None:
            self.seen[partition].append(Record(message.offset(), message.value()))
        elif error.code() in READER_ERRORS:
            reached = self.seen[partition][-1:]
            self.errors.append(
                f"{partition} after {reached[0].offset if reached else '-'}: {error}"
            )


def end_offsets(
    bootstrap: str,
    partitions: Sequence[Partition],
    timeout_s: float,
    isolation: str = "read_uncommitted",
) -> dict[Partition, int]:
    """Each partition's next offset, or its last stable one under read_committed. Raises
    TimeoutError where none is told in time.
    """
    asks = {"bootstrap.servers": bootstrap, "isolation.level": isolation, **QUICK, **READER}
    consumer = Consumer(asks)
    deadline = time.monotonic() + timeout_s
    ends: dict[Partition, int] = {}
    try:
        while len(ends) < len(partitions):
            for partition in partitions:
                if partition in ends:
                    continue
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no end of {partition} was told in {timeout_s:g} s")
                try:
                    low_high = consumer.get_watermark_offsets(TopicPartition(*partition), 5.0)
                except KafkaException:
                    # librdkafka asks nobody again for a leader that was missing once.
                    with contextlib.suppress(KafkaException):
                        consumer.list_topics(partition[0], 5.0)
                    time.sleep(_POLL_S)
                    continue
                if low_high is not None:
                    ends[partition] = low_high[1]
    finally:
        consumer.close()
    return ends


def read_back(
    bootstrap: str, ends: Mapping[Partition, int], timeout_s: float
) -> dict[Partition, list[Record]]:
    """Every partition from 0 to its end; less when not all came in time."""
    reader = Reader(bootstrap, list(ends))
    thread = threading.Thread(target=reader.run, name="read-back")
    thread.start()
    deadline = time.monotonic() + timeout_s
    while reader.behind(ends) and not reader.errors and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    reader.stop()
    thread.join()
    return {
        partition: [record for record in records if record.offset < ends[partition]]
        for partition, records in reader.seen.items()
    }
