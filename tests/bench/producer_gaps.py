"""Longest gap between acknowledgements that a producer with acks=all sees."""

import asyncio
import contextlib
import threading
import time
from typing import Final, Self

from confluent_kafka import Producer as LibrdkafkaProducer
from tidemark.client import Producer as NativeProducer
from tidemark.client.errors import ClientError

SEND_S: Final = 0.005
_WAIT_S: Final = 120.0


class GapMeter:
    """A producer on a thread of its own, which sends a record every few milliseconds."""

    name = ""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self._acknowledged = threading.Condition()
        self._last = 0.0
        self._longest = 0.0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self.produce, name=f"{self.name} producer")

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait_acknowledged(since=0.0)
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    @property
    def ends(self) -> bool:
        """True once the producer is to stop."""
        return self._ends.is_set()

    def produce(self) -> None:
        """Send until ``ends``."""
        raise NotImplementedError

    def acknowledged(self) -> None:
        """Note an acknowledgement."""
        with self._acknowledged:
            now = time.monotonic()
            if self._last:
                self._longest = max(self._longest, now - self._last)
            self._last = now
            self._acknowledged.notify_all()

    def begin(self) -> None:
        """Forget the gaps before."""
        with self._acknowledged:
            self._longest = 0.0

    def wait_acknowledged(self, *, since: float) -> None:
        """Wait for an acknowledgement after this time. Raises TimeoutError."""
        with self._acknowledged:
            if not self._acknowledged.wait_for(lambda: self._last > since, _WAIT_S):
                raise TimeoutError(f"the {self.name} producer got no acknowledgement")

    def longest_s(self) -> float:
        """Longest gap since ``begin``."""
        with self._acknowledged:
            return self._longest


class LibrdkafkaGaps(GapMeter):
    """librdkafka with its defaults."""

    name = "librdkafka"

    def produce(self) -> None:
        """Send until ``ends``."""
        producer = LibrdkafkaProducer(
            {"bootstrap.servers": self.bootstrap, "acks": "all", "log_level": 0}
        )
        while not self.ends:
            producer.produce(self.topic, b"a few bytes to write", on_delivery=self._delivered)
            producer.poll(SEND_S)
            time.sleep(SEND_S)
        producer.purge()
        producer.flush(_WAIT_S)

    def _delivered(self, error: object, _message: object) -> None:
        if error is None:
            self.acknowledged()


class NativeGaps(GapMeter):
    """The native client with its defaults."""

    name = "native"

    def produce(self) -> None:
        """Send until ``ends``."""
        asyncio.run(self._produce())

    async def _produce(self) -> None:
        async with NativeProducer(self.bootstrap) as producer, asyncio.TaskGroup() as tasks:
            while not self.ends:
                tasks.create_task(self._send(producer), name="send")
                await asyncio.sleep(SEND_S)

    async def _send(self, producer: NativeProducer) -> None:
        with contextlib.suppress(ClientError):
            await producer.send(self.topic, b"a few bytes to write")
            self.acknowledged()
