"""Writes with acks=all from outside of the cluster, and what was acknowledged when."""

import threading
import time
from itertools import pairwise
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from waiting import PATIENCE_MS, PATIENCE_S

PARTITIONS: Final = 6
_PAUSE_S: Final = 0.01


class Acknowledged(NamedTuple):
    """A record that was acknowledged."""

    partition: int
    value: bytes
    at_s: float


class Load:
    """An idempotent producer that writes to every partition of a topic in turn until stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: list[Acknowledged] = []
        self.failed: list[str] = []
        self._bootstrap = bootstrap
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "message.timeout.ms": PATIENCE_MS,
            }
        )
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, name="load")

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._producer.flush(PATIENCE_S)

    def _write(self) -> None:
        number = 0
        while not self._ended.wait(_PAUSE_S):
            partition = number % PARTITIONS
            self._producer.produce(
                self._topic, str(number), partition=partition, on_delivery=self._delivered
            )
            self._producer.poll(0)
            number += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value, partition = message.value(), message.partition()
        if error is not None or value is None or partition is None:
            self.failed.append(str(error))
        else:
            self.acknowledged.append(Acknowledged(partition, value, time.monotonic()))

    def longest_gap_s(self) -> float:
        """Longest time without an acknowledgement in any one partition."""
        longest = 0.0
        for partition in range(PARTITIONS):
            times = [it.at_s for it in self.acknowledged if it.partition == partition]
            gaps = (later - before for before, later in pairwise(times))
            longest = max(longest, *gaps)
        return longest

    def check(self) -> None:
        """Fail unless each write was acknowledged, and is there once, in order."""
        assert self.failed == []
        written = [
            [it.value for it in self.acknowledged if it.partition == partition]
            for partition in range(PARTITIONS)
        ]
        assert [self._read(partition) for partition in range(PARTITIONS)] == written

    def _read(self, partition: int) -> list[bytes]:
        """Values of a partition from its beginning to its end."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "check",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(self._topic, partition, 0)])
        values: list[bytes] = []
        try:
            while True:
                message = consumer.poll(PATIENCE_S)
                assert message is not None, f"partition {partition}: no end"
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    return values
                assert error is None or error.retriable(), error
                if error is None:
                    values.append(message.value() or b"")
        finally:
            consumer.close()
