"""A reader of partitions that have transactions: its offsets have gaps, where markers and aborted
records are.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from chaos.history import Partition, Record
from chaos.load import QUICK, READER, READER_ERRORS
from chaos.transactions import Seen
from confluent_kafka import KafkaError, TopicPartition
from e2e.bounded_librdkafka import BoundedConsumer as Consumer

COMMITTED: Final = "read_committed"
UNCOMMITTED: Final = "read_uncommitted"
_POLL_S: Final = 0.2


class TransactionReader:
    """Follows every partition from its start under one isolation level, and keeps what it sees."""

    def __init__(self, bootstrap: str, partitions: Sequence[Partition], isolation: str) -> None:
        # Ends of partitions are told: only so is it known that nothing readable is left.
        asks = {"isolation.level": isolation, "enable.partition.eof": True}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, **QUICK, **READER, **asks})
        self._consumer.assign([TopicPartition(*partition, 0) for partition in partitions])
        self._stop = threading.Event()
        self._reached = dict.fromkeys(partitions, 0)
        self.seen: dict[Partition, list[Seen]] = {partition: [] for partition in partitions}
        self.errors: list[str] = []

    def stop(self) -> None:
        """``run`` then ends."""
        self._stop.set()

    def run(self) -> None:
        """Read until stopped."""
        try:
            while not self._stop.is_set():
                messages = self._consumer.consume(1_000, _POLL_S)
                now_s = time.monotonic()
                for message in messages:
                    self._take(message, now_s)
        finally:
            self._consumer.close()

    def values(self, topic: str) -> set[bytes]:
        """All that it saw of a topic."""
        of_topic = [seen for partition, seen in self.seen.items() if partition.topic == topic]
        return {one.value for seen in of_topic for one in seen}

    def behind(self, ends: Mapping[Partition, int]) -> list[str]:
        """The partitions that it has not read to the end."""
        return [
            f"reader is at {self._reached[one]} of {end} in {one}"
            for one, end in ends.items()
            if self._reached[one] < end
        ]

    def _take(self, message: Any, now_s: float) -> None:
        error = message.error()
        partition = Partition(message.topic(), message.partition())
        if error is None:
            self.seen[partition].append(Seen(message.offset(), message.value(), now_s))
            self._reached[partition] = message.offset() + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            self._reached[partition] = max(self._reached[partition], message.offset())
        elif error.code() in READER_ERRORS:
            self.errors.append(f"{partition} after {self._reached[partition]}: {error}")


def read_all(
    bootstrap: str, ends: Mapping[Partition, int], isolation: str, timeout_s: float
) -> dict[Partition, list[Record]]:
    """Every partition from 0 to its end; less when not all came in time."""
    reader = TransactionReader(bootstrap, list(ends), isolation)
    thread = threading.Thread(target=reader.run, name=f"read-back {isolation}")
    thread.start()
    deadline = time.monotonic() + timeout_s
    while reader.behind(ends) and not reader.errors and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    reader.stop()
    thread.join()
    return {
        partition: [Record(one.offset, one.value) for one in seen]
        for partition, seen in reader.seen.items()
    }
