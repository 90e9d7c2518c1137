"""Many clients of many partitions, in one process: producers that write a batch to the next
partition of their topic in each tick, with acks=all, and consumers with a fetch session at every
broker, which share the partitions of their topic.

``python -m bench.scale_load JSON`` prints one JSON object.
"""

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Final

from bench.fetch_session import FetchSession
from bench.transactions_wire import (
    PRODUCE_VERSION,
    Loop,
    ProduceTemplate,
    StampedBatch,
    init_producer,
    read_stamp_ns,
    refused_partitions,
    stamped_batch,
)
from tidemark.codec.record_batch import BatchHeader
from tidemark.kafka.apis import ApiKey

_DRAIN_S: Final = 60.0

Led = dict[str, list[int]]
"""Partitions of a topic that each broker leads, by its Kafka port (JSON has text for keys)."""


@dataclass
class ScalePlan:
    """``topics``: each has one producer. ``offsets``: where consumers begin, by topic and
    partition. ``rate_mb_s``: of all producers, 0 for none.
    """

    topics: dict[str, Led]
    offsets: dict[str, list[int]]
    consumers_of_topic: int
    rate_mb_s: float
    tick_s: float
    seconds: float

    @property
    def batch_bytes(self) -> int:
        """Size of what one producer writes in a tick."""
        return round(self.rate_mb_s * 1e6 * self.tick_s / len(self.topics))


@dataclass
class ScaleOutcome:
    """Times of batches in milliseconds, from when each was due to be written."""

    acknowledged: int = 0
    bytes: int = 0
    acked_ms: list[float] = field(default_factory=list)
    received_ms: list[float] = field(default_factory=list)
    fetches: int = 0
    behind_s: float = 0
    """Last acknowledgement after the last batch was due."""
    load_cpu_s: float = 0


class TopicProducer:
    """Writes its topic's partitions in turn, a batch in each tick."""

    def __init__(
        self, plan: ScalePlan, topic: str, loop: Loop, batch: StampedBatch, found: ScaleOutcome
    ) -> None:
        led = plan.topics[topic]
        self._loop, self._found, self._tick_s, self._seconds = (
            loop,
            found,
            plan.tick_s,
            plan.seconds,
        )
        self._batch = batch
        self._producer = init_producer(int(next(iter(led))), None)
        links = {port: loop.link(int(port)) for port in led}
        of = {one: links[port] for port, partitions in led.items() for one in partitions}
        self._turns: Iterator[int] = itertools.cycle(sorted(of))
        self._links = of
        self._templates = {one: ProduceTemplate(topic, [one], batch, None) for one in of}
        self._sequences = dict.fromkeys(of, 0)
        self._ends = 0.0
        self.unanswered = 0
        self.is_over = False

    def start(self, at: float) -> None:
        """Write from then on."""
        self._ends = at + self._seconds
        self._loop.at(at, lambda: self._tick(at))

    def _tick(self, due: float) -> None:
        partition = next(self._turns)
        sequence = self._sequences[partition]
        self._sequences[partition] += self._batch.records
        frame = self._templates[partition].frame(self._producer, sequence, int(due * 1e9))
        self.unanswered += 1

        def on_answer(body: memoryview) -> None:
            if refused_partitions(body):
                raise ConnectionError("fewer replicas in sync than acks=all needs")
            found, now = self._found, time.monotonic()
            found.acknowledged += 1
            found.bytes += len(self._batch.data)
            found.acked_ms.append(1e3 * (now - due))
            found.behind_s = now - self._ends
            self.unanswered -= 1

        self._links[partition].ask(ApiKey.PRODUCE, PRODUCE_VERSION, frame, on_answer)
        following = due + self._tick_s
        if following < self._ends:
            self._loop.at(following, lambda: self._tick(following))
        else:
            self.is_over = True


def sessions(
    plan: ScalePlan, loop: Loop, on_batch: Callable[[memoryview, BatchHeader], None]
) -> Iterator[FetchSession]:
    """Yield the fetch sessions of all consumers, each with a connection of its own."""
    for topic, led in plan.topics.items():
        offsets = plan.offsets[topic]
        for number in range(plan.consumers_of_topic):
            for port, partitions in led.items():
                own = {one: offsets[one] for one in partitions[number :: plan.consumers_of_topic]}
                if own:
                    yield FetchSession(loop.link(int(port)), topic, own, on_batch)


def run_scale(plan: ScalePlan) -> ScaleOutcome:
    """Run until every batch is acknowledged and read. Raises ConnectionError, TimeoutError."""
    loop, found = Loop(), ScaleOutcome()
    batch = stamped_batch(max(plan.batch_bytes, 1), transactional=False)

    def received(data: memoryview, _: BatchHeader) -> None:
        created_ns = read_stamp_ns(data, batch.stamp_position)
        found.received_ms.append((time.monotonic_ns() - created_ns) / 1e6)

    consumers = list(sessions(plan, loop, received))
    for session in consumers:
        session.fetch()
    producers = []
    if plan.rate_mb_s:
        producers = [TopicProducer(plan, topic, loop, batch, found) for topic in plan.topics]
    print("ready", flush=True)
    start, cpu = time.monotonic(), time.process_time()
    for number, producer in enumerate(producers):
        producer.start(start + plan.tick_s * number / len(producers))

    def is_over() -> bool:
        if time.monotonic() < start + plan.seconds:
            return False
        is_written = all(one.is_over and not one.unanswered for one in producers)
        return is_written and len(found.received_ms) >= found.acknowledged

    if producers and plan.consumers_of_topic:
        loop.run(is_over, within_s=plan.seconds + _DRAIN_S)
    else:
        loop.run(lambda: time.monotonic() >= start + plan.seconds, within_s=plan.seconds + _DRAIN_S)
    found.load_cpu_s = time.process_time() - cpu
    found.fetches = sum(one.fetches for one in consumers)
    loop.close()
    return found


if __name__ == "__main__":
    print(json.dumps(asdict(run_scale(ScalePlan(**json.loads(sys.argv[1]))))))
