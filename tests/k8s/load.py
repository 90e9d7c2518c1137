"""Writes with acks=all from outside of the cluster, and what was acknowledged when."""

import threading
import time
from abc import abstractmethod
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from k8s.release import Client
from waiting import PATIENCE_MS, PATIENCE_S

PARTITIONS: Final = 6
_PAUSE_S: Final = 0.01


class Acknowledged(NamedTuple):
    """A record that was acknowledged."""

    partition: int
    value: bytes
    at_s: float


class Background:
    """Work on a thread of its own, from the start of a block to its end."""

    def __init__(self, name: str) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @abstractmethod
    def _run(self) -> None:
        """Work until ``_ended`` is set."""


class Load(Background):
    """An idempotent producer that writes to every partition of a topic in turn until stopped."""

    def __init__(self, client: Client, topic: str) -> None:
        """Requests that get no answer are given up after 10 s, and not after librdkafka's 60: the
        gaps in writes shall be those of the cluster.
        """
        super().__init__("load")
        self.acknowledged: list[Acknowledged] = []
        self.failed: list[str] = []
        self._client = client
        self.topic = topic
        self._producer = Producer(
            {
                **client,
                "enable.idempotence": True,
                "acks": "all",
                "socket.timeout.ms": 10_000,
                "message.timeout.ms": PATIENCE_MS,
            }
        )

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._producer.flush(PATIENCE_S)

    def _run(self) -> None:
        number = 0
        while not self._ended.wait(_PAUSE_S):
            partition = number % PARTITIONS
            self._producer.produce(
                self.topic, str(number), partition=partition, on_delivery=self._delivered
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
        read = partial(read_partition, self._client, self.topic)
        assert [read(partition) for partition in range(PARTITIONS)] == written


def read_partition(
    client: Client, topic: str, partition: int, *, isolation: str = "read_uncommitted"
) -> list[bytes]:
    """Values of a partition from its beginning to its end."""
    consumer = Consumer(
        {
            **client,
            "group.id": "check",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
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
