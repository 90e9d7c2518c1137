"""Small transactions as fast as they go: producers in one process, each of which writes one small
batch to each of a few partitions, commits, and begins again with the answer.

``python -m bench.transactions_small_load JSON`` prints one JSON object.
"""

import json
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Final

from bench.transactions_wire import (
    END_TXN_VERSION,
    PRODUCE_VERSION,
    Loop,
    Producer,
    ProduceTemplate,
    StampedBatch,
    coordinator_port,
    end_fields,
    init_producer,
    next_producer,
    refused_partitions,
    stamped_batch,
)
from tidemark.kafka.apis import ApiKey

RETRY_S: Final = 0.005
_BATCH_BYTES: Final = 170
_DRAIN_S: Final = 30.0


@dataclass
class SmallPlan:
    """``led``: the partitions of each broker, by its port."""

    topic: str
    led: dict[str, list[int]]
    producers: int
    partitions_each: int
    seconds: float

    def port_of(self) -> dict[int, int]:
        """Of each partition's leader."""
        return {one: int(port) for port, partitions in self.led.items() for one in partitions}


@dataclass
class SmallOutcome:
    """Of every transaction (milliseconds)."""

    took_ms: list[float] = field(default_factory=list)
    """From its first request to the answer of EndTxn."""
    end_ms: list[float] = field(default_factory=list)
    """EndTxn alone."""
    refused: int = 0
    """Batches asked again: the end before them was still under way."""
    seconds: float = 0
    load_cpu_s: float = 0


class SmallProducer:
    """One transactional id, with connections of its own."""

    def __init__(self, loop: Loop, plan: SmallPlan, number: int, batch: StampedBatch) -> None:
        self.is_idle = True
        self.found = SmallOutcome()
        self._loop, self._plan, self._batch = loop, plan, batch
        self._name = f"small-{number}"
        port_of = plan.port_of()
        first = number * plan.partitions_each
        wanted: dict[int, list[int]] = {}
        for place in range(plan.partitions_each):
            partition = (first + place) % len(port_of)
            wanted.setdefault(port_of[partition], []).append(partition)
        self._writes = [
            (loop.link(port), self._template(partitions)) for port, partitions in wanted.items()
        ]
        port = coordinator_port(next(iter(wanted)), self._name)
        self._coordinator = loop.link(port)
        self._producer: Producer = init_producer(port, self._name)
        self._unanswered = 0
        self._began = 0.0

    def _template(self, partitions: list[int]) -> ProduceTemplate:
        return ProduceTemplate(self._plan.topic, partitions, self._batch, self._name)

    def begin(self, until: float) -> None:
        """One transaction after the other, until a time on the monotonic clock."""
        self._began = time.monotonic()
        self.is_idle = self._began >= until
        if self.is_idle:
            return
        self._unanswered = len(self._writes)
        for place, (_, template) in enumerate(self._writes):
            self._write(place, template, until)

    def _write(self, place: int, template: ProduceTemplate, until: float) -> None:
        def on_answer(body: memoryview) -> None:
            refused = refused_partitions(body)
            if refused:
                self.found.refused += len(refused)
                again = template
                if len(refused) < len(template.partitions):
                    again = self._template(refused)
                self._loop.after(RETRY_S, lambda: self._write(place, again, until))
                return
            self._unanswered -= 1
            if not self._unanswered:
                self._end(until)

        frame = template.frame(self._producer, 0, time.monotonic_ns())
        self._writes[place][0].ask(ApiKey.PRODUCE, PRODUCE_VERSION, frame, on_answer)

    def _end(self, until: float) -> None:
        sent = time.monotonic()

        def on_answer(body: memoryview) -> None:
            following = next_producer(body)
            if following is None:
                self._loop.after(RETRY_S, lambda: self._end(until))
                return
            now = time.monotonic()
            self.found.end_ms.append(1e3 * (now - sent))
            self.found.took_ms.append(1e3 * (now - self._began))
            self._producer = following
            self.begin(until)

        fields = end_fields(self._name, self._producer)
        self._coordinator.call(ApiKey.END_TXN, END_TXN_VERSION, fields, on_answer)


def run_small(plan: SmallPlan) -> SmallOutcome:
    """Raises ConnectionError when something is refused, TimeoutError."""
    loop, found = Loop(), SmallOutcome()
    batch = stamped_batch(_BATCH_BYTES, transactional=True)
    producers = [SmallProducer(loop, plan, number, batch) for number in range(plan.producers)]
    start, cpu = time.monotonic(), time.process_time()
    for one in producers:
        one.begin(start + plan.seconds)
    loop.run(lambda: all(one.is_idle for one in producers), within_s=plan.seconds + _DRAIN_S)
    found.seconds = time.monotonic() - start
    found.load_cpu_s = time.process_time() - cpu
    for one in producers:
        found.took_ms += one.found.took_ms
        found.end_ms += one.found.end_ms
        found.refused += one.found.refused
    loop.close()
    return found


if __name__ == "__main__":
    print(json.dumps(asdict(run_small(SmallPlan(**json.loads(sys.argv[1]))))))
