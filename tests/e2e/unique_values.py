"""A producer of unique values beside a test, and the read-back of what it was promised."""

import contextlib
import threading
import time
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from waiting import PATIENCE_S

READ_S: Final = PATIENCE_S
PAUSE_S: Final = 0.01
REFUSED_PAUSE_S: Final = 0.1
DELIVER_S: Final = PATIENCE_S
_NOT_YET: Final = (
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._TIMED_OUT,
    KafkaError.OFFSET_NOT_AVAILABLE,
)


class Found(NamedTuple):
    """One record as read back."""

    partition: int
    offset: int
    key: bytes
    value: bytes


class Writer:
    """An idempotent acks=all producer in a thread. Values are ``<key>-<number>``; numbers rise.

    The thread starts with the block and stops sending at its end, which waits until everything sent
    is acknowledged or has failed.
    """

    def __init__(self, bootstrap: str, topic: str, *, keys: int = 1, name: str = "") -> None:
        self.topic = topic
        self.sent: set[bytes] = set()
        self.acknowledged: list[bytes] = []
        self.acknowledged_at: list[float] = []
        self.failures: list[KafkaError] = []
        self._keys = [f"{name}{key:02}".encode() for key in range(keys)]
        self._stopping = threading.Event()
        self._in_vain = False
        self._settings = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "message.timeout.ms": int(DELIVER_S * 1_000),
            "request.timeout.ms": 3_000,
            "socket.timeout.ms": 4_000,
            "socket.connection.setup.timeout.ms": 2_000,
            "reconnect.backoff.max.ms": 500,
            "retry.backoff.ms": 50,
            "retry.backoff.max.ms": 200,
            "topic.metadata.refresh.fast.interval.ms": 100,
            "partitioner": "murmur2_random",
            "log_level": 0,
        }
        self._thread = threading.Thread(target=self._write, name=f"write-{topic}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._in_vain = kind is not None
        self._stopping.set()
        self._thread.join()

    def _write(self) -> None:
        producer = Producer(self._settings)
        number = 0
        while not self._stopping.is_set():
            for key in self._keys:
                value = b"%s-%08d" % (key, number)
                self.sent.add(value)
                producer.produce(self.topic, value, key, on_delivery=self._on_delivery)
            number += 1
            producer.poll(PAUSE_S)
            time.sleep(PAUSE_S)
        if self._in_vain:
            producer.purge()
        producer.flush(DELIVER_S)

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.acknowledged.append(message.value())
            self.acknowledged_at.append(time.monotonic())
        else:
            self.failures.append(error)

    def acknowledged_since(self, instant: float) -> int:
        """How many values were acknowledged after that (``time.monotonic``)."""
        return sum(at > instant for at in tuple(self.acknowledged_at))


def read_back(bootstrap: str, topic: str, partitions: int = 1) -> list[Found]:
    """Every record of a topic, up to where its partitions end now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "socket.timeout.ms": 5_000,
            "log_level": 0,
        }
    )
    try:
        ends = {}
        for partition in range(partitions):
            first, end = _watermarks(consumer, TopicPartition(topic, partition))
            if end > first:
                ends[partition] = end
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        return _read(consumer, ends)
    finally:
        consumer.close()


def _watermarks(consumer: Consumer, partition: TopicPartition) -> tuple[int, int]:
    """First offset and end. A partition without a leader, as after a cut, or with a new leader
    whose high watermark has not caught up (KIP-207) is asked for again.
    """
    deadline = time.monotonic() + READ_S
    while True:
        try:
            return consumer.get_watermark_offsets(partition, 20)
        except KafkaException as failure:
            code = failure.args[0].code()
            if code not in _NOT_YET or time.monotonic() > deadline:
                raise
        # librdkafka refuses at once what it knows no leader of, half a million times a second, and
        # keeps 200 bytes each time.
        consumer.poll(REFUSED_PAUSE_S)
        # It asks nobody again for minutes: a broker whose metadata is late may have answered it.
        with contextlib.suppress(KafkaException):
            consumer.list_topics(partition.topic, 20)


def _read(consumer: Consumer, ends: Mapping[int, int]) -> list[Found]:
    found: list[Found] = []
    missing = dict(ends)
    deadline = time.monotonic() + READ_S
    while missing:
        assert time.monotonic() < deadline, f"not read to the end: {missing}"
        for message in consumer.consume(1_000, 0.5):
            assert message.error() is None, message.error()
            partition, offset = message.partition(), message.offset()
            assert partition is not None, "a record is of a partition"
            assert offset is not None, "and has its offset"
            found.append(Found(partition, offset, message.key() or b"", message.value() or b""))
            if offset + 1 >= missing.get(partition, offset + 2):
                del missing[partition]
    return found


def check_promises(
    found: Collection[Found], *writers: Writer, others: Collection[bytes] = ()
) -> None:
    """Every acknowledged value is there, in order per key, and nothing that was never sent, by
    these writers or by ``others`` (values without a key).
    """
    values = [one.value for one in found]
    acknowledged = {value for writer in writers for value in writer.acknowledged}
    sent = {value for writer in writers for value in writer.sent}
    assert acknowledged, "nothing was acknowledged: this proves nothing"
    assert acknowledged - set(values) == set(), "acknowledged, and lost"
    assert set(values) - sent - set(others) == set(), "invented"
    for key in {one.key for one in found if one.key}:
        of_key = [one.value for one in found if one.key == key]
        assert of_key == sorted(set(of_key)), f"out of order, or twice: key {key!r}"
    for writer in writers:
        assert writer.failures == [], "given up by the producer"
