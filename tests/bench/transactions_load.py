"""The steady writer: one process that creates the same number of bytes for every partition in every
tick, with acks=all, and, in transactions, commits at fixed times.

Times count from when a batch was due to be created, however long it had to wait for the transaction
before it: a writer that stalls shows as latency, not as a lower rate. What has to wait goes into
larger batches, as with any producer. What is created before a commit is due belongs to that
transaction; later ticks wait for its answer.

``python -m bench.transactions_load JSON`` prints one JSON object.
"""

import json
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Final

from bench.transactions_wire import (
    END_TXN_VERSION,
    PRODUCE_VERSION,
    Link,
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

IN_FLIGHT_MAX: Final = 5
BATCH_BYTES_MAX: Final = 64 * 1024
"""Of ticks that waited and go together; one tick's may be larger."""
RETRY_S: Final = 0.02
_DRAIN_S: Final = 60.0


@dataclass
class SteadyPlan:
    """``led``: the partitions of each broker, by its port (JSON has text for keys)."""

    topic: str
    led: dict[str, list[int]]
    batch_bytes: int
    tick_s: float
    seconds: float
    commit_every_s: float = 0
    """0: no transactions."""
    transactional_id: str = "steady"

    @property
    def ticks(self) -> int:
        """Batches of each partition."""
        return round(self.seconds / self.tick_s)

    @property
    def partitions(self) -> int:
        """All of them."""
        return sum(map(len, self.led.values()))


@dataclass
class SteadyOutcome:
    """Latencies (milliseconds) of each tick's batches for one broker."""

    bytes: int = 0
    acked_ms: list[float] = field(default_factory=list)
    """From when the batches were due to their acknowledgement."""
    answered_ms: list[float] = field(default_factory=list)
    """From when the request was sent."""
    end_ms: list[float] = field(default_factory=list)
    """EndTxn: from when it was sent to its answer."""
    commit_ms: list[float] = field(default_factory=list)
    """From when the commit was due to the answer of EndTxn, what was not acknowledged included."""
    refused: int = 0
    """Batches asked again: the end before them was still under way."""
    seconds: float = 0
    """Until the last acknowledgement."""
    behind_s: float = 0
    """The last acknowledgement after the last creation."""
    late_ms_max: float = 0
    """How far the load itself fell behind its own plan."""
    load_cpu_s: float = 0


class Leader:
    """One broker: its requests in order; the first of a transaction alone."""

    def __init__(self, writer: "Writer", link: Link, partitions: list[int]) -> None:
        self.waiting: deque[float] = deque()
        """When each tick's batches were due."""
        self.later: deque[float] = deque()
        """The same, of the next transaction."""
        self.unanswered = 0
        self.sequence = 0
        self._writer = writer
        self._link = link
        self._partitions = partitions
        self._is_open = False

    @property
    def is_drained(self) -> bool:
        """Whether all of this transaction is acknowledged."""
        return not self.waiting and not self.unanswered

    def begin(self) -> None:
        """The next transaction: a new epoch, in which sequences begin at 0."""
        self.waiting, self.later = self.later, deque()
        self.sequence, self._is_open = 0, not self._writer.transactional
        self.send()

    def send(self) -> None:
        """As much as may be."""
        while self.waiting and self.unanswered < (IN_FLIGHT_MAX if self._is_open else 1):
            ticks = min(len(self.waiting), self._writer.ticks_max)
            due = [self.waiting.popleft() for _ in range(ticks)]
            self.unanswered += 1
            template = self._writer.template(self._partitions, ticks)
            sequence, self.sequence = self.sequence, self.sequence + template.batch.records
            self._ask(template, due, sequence)

    def _ask(self, template: ProduceTemplate, due: list[float], sequence: int) -> None:
        writer, sent = self._writer, time.monotonic()

        def on_answer(body: memoryview) -> None:
            refused = refused_partitions(body)
            if refused and self._is_open:
                raise ConnectionError(f"refused within a transaction: partitions {refused}")
            accepted = len(template.partitions) - len(refused)
            writer.acknowledged(due, sent, accepted * len(template.batch.data))
            if refused:
                writer.found.refused += len(refused)
                again = writer.template(refused, len(due))
                writer.loop.after(RETRY_S, lambda: self._ask(again, due, sequence))
                return
            self._is_open = True
            self.unanswered -= 1
            self.send()
            writer.maybe_end()

        frame = template.frame(writer.producer, sequence, int(due[0] * 1e9))
        self._link.ask(ApiKey.PRODUCE, PRODUCE_VERSION, frame, on_answer)


class Writer:
    """All leaders, and the transaction."""

    def __init__(self, plan: SteadyPlan, loop: Loop) -> None:
        self.plan, self.loop, self.found = plan, loop, SteadyOutcome()
        self.transactional = plan.commit_every_s > 0
        self.ticks_max = max(1, BATCH_BYTES_MAX // plan.batch_bytes)
        """Whose records may go in one batch."""
        self._name = plan.transactional_id if self.transactional else None
        self._templates: dict[tuple[int, ...], ProduceTemplate] = {}
        self._batches: dict[int, StampedBatch] = {}
        first = int(next(iter(plan.led)))
        self.producer = self._init(first)
        self.leaders = [
            Leader(self, loop.link(int(port)), partitions) for port, partitions in plan.led.items()
        ]
        self._start = 0.0
        self._ticked = 0
        self._last_ack = 0.0
        self._commit_due: float | None = None
        self._ends_at: float | None = None
        """When the commit under way was due; None: none is."""
        self._end_is_sent = False
        self.is_over = False

    def _init(self, port: int) -> Producer:
        if self._name is not None:
            port = coordinator_port(port, self._name)
            self._coordinator = self.loop.link(port)
        return init_producer(port, self._name)

    def template(self, partitions: list[int], ticks: int) -> ProduceTemplate:
        """Made once."""
        key = (ticks, *partitions)
        made = self._templates.get(key)
        if made is None:
            batch = self._batch(ticks)
            made = ProduceTemplate(self.plan.topic, partitions, batch, self._name)
            self._templates[key] = made
        return made

    def _batch(self, ticks: int) -> StampedBatch:
        made = self._batches.get(ticks)
        if made is None:
            size, inside = self.plan.batch_bytes, self.transactional
            made = stamped_batch(size, transactional=inside, times=ticks)
            self._batches[ticks] = made
        return made

    def start(self) -> None:
        """The first tick is now."""
        self._start = time.monotonic()
        for leader in self.leaders:
            leader.begin()
        if self.transactional:
            self._commit_due = self._start + self.plan.commit_every_s
            self.loop.at(self._commit_due, self._commit)
        self._tick()

    def _tick(self) -> None:
        now = time.monotonic()
        due = self._start + self._ticked * self.plan.tick_s
        self.found.late_ms_max = max(self.found.late_ms_max, 1e3 * (now - due))
        for leader in self.leaders:
            (leader.waiting if self._ends_at is None else leader.later).append(due)
            leader.send()
        self._ticked += 1
        if self._ticked < self.plan.ticks:
            self.loop.at(due + self.plan.tick_s, self._tick)
        elif not self.transactional:
            self.maybe_end()

    def acknowledged(self, due: list[float], sent: float, size_bytes: int) -> None:
        """So much of a request, of one or more ticks."""
        if size_bytes:
            self._last_ack = time.monotonic()
            self.found.bytes += size_bytes
            self.found.acked_ms += [1e3 * (self._last_ack - one) for one in due]
            self.found.answered_ms.append(1e3 * (self._last_ack - sent))

    @property
    def _all_created(self) -> bool:
        return self._ticked == self.plan.ticks

    def _commit(self) -> None:
        """A commit is due; where the one before is still under way it comes with the next."""
        assert self._commit_due is not None, "transactions have commits"
        due, self._commit_due = self._commit_due, self._commit_due + self.plan.commit_every_s
        if self._ends_at is None:
            self._ends_at = due
            self.maybe_end()
        self.loop.at(self._commit_due, self._commit)

    def maybe_end(self) -> None:
        """End the transaction, or the run, once all is acknowledged."""
        if not all(leader.is_drained for leader in self.leaders):
            return
        if not self.transactional:
            self.is_over = self._all_created
        elif self._ends_at is not None and not self._end_is_sent:
            assert any(one.sequence for one in self.leaders), "a commit interval has a tick"
            self._end_is_sent = True
            self._end()

    def _end(self) -> None:
        sent = time.monotonic()

        def on_answer(body: memoryview) -> None:
            now, following = time.monotonic(), next_producer(body)
            if following is None:
                self.loop.after(RETRY_S, self._end)
                return
            assert self._ends_at is not None, "a commit was due"
            self.found.end_ms.append(1e3 * (now - sent))
            self.found.commit_ms.append(1e3 * (now - self._ends_at))
            self.producer, self._ends_at, self._end_is_sent = following, None, False
            self.is_over = self._all_created and not any(one.later for one in self.leaders)
            for leader in self.leaders:
                leader.begin()

        fields = end_fields(self.plan.transactional_id, self.producer)
        self._coordinator.call(ApiKey.END_TXN, END_TXN_VERSION, fields, on_answer)

    def outcome(self) -> SteadyOutcome:
        """Once over."""
        last_due = self._start + (self.plan.ticks - 1) * self.plan.tick_s
        self.found.seconds = self._last_ack - self._start
        self.found.behind_s = self._last_ack - last_due
        return self.found


def run_steady(plan: SteadyPlan) -> SteadyOutcome:
    """Raises ConnectionError when a batch or a commit is refused, TimeoutError."""
    loop = Loop()
    writer = Writer(plan, loop)
    cpu = time.process_time()
    writer.start()
    loop.run(lambda: writer.is_over, within_s=plan.seconds + _DRAIN_S)
    found = writer.outcome()
    found.load_cpu_s = time.process_time() - cpu
    loop.close()
    return found


if __name__ == "__main__":
    print(json.dumps(asdict(run_steady(SteadyPlan(**json.loads(sys.argv[1]))))))
