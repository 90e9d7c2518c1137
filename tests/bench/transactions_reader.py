"""The reader beside the steady writer: it fetches every partition from its leader and tells how old
each batch is when it comes.

``python -m bench.transactions_reader JSON`` prints one JSON object.
"""

import json
import sys
import time
from dataclasses import asdict, dataclass, field

from bench.fetch_session import FetchSession
from bench.transactions_wire import Loop, read_stamp_ns
from tidemark.codec.record_batch import BatchHeader


@dataclass
class ReaderPlan:
    """``led``: the partitions of each broker, by its port. ``records``: how many there will be,
    from ``offsets`` on, which are by partition (JSON has text for keys). A tick has
    ``tick_records`` in a partition, and a batch the records of one tick or more.
    """

    topic: str
    led: dict[str, list[int]]
    offsets: dict[str, int]
    records: int
    tick_records: int
    tick_s: float
    stamp_position: int
    committed: bool
    within_s: float


@dataclass
class ReaderOutcome:
    """Of every tick in every partition: milliseconds from when it was due to be created."""

    received_ms: list[float] = field(default_factory=list)
    records: int = 0
    batches: int = 0
    fetches: int = 0
    load_cpu_s: float = 0


class Reader:
    """Notes the ticks of batches as they come."""

    def __init__(self, plan: ReaderPlan, found: ReaderOutcome) -> None:
        self._plan, self._found = plan, found

    def take(self, batch: memoryview, header: BatchHeader) -> None:
        """Note one batch. Markers of transactions have no ticks."""
        if header.is_control:
            return
        created_ns = read_stamp_ns(batch, self._plan.stamp_position)
        first_ms = (time.monotonic_ns() - created_ns) / 1e6
        tick_ms = 1e3 * self._plan.tick_s
        ticks = header.record_count // self._plan.tick_records
        self._found.received_ms += [first_ms - place * tick_ms for place in range(ticks)]
        self._found.records += header.record_count
        self._found.batches += 1


def run_reader(plan: ReaderPlan) -> ReaderOutcome:
    """Until all records are there. Raises ConnectionError, TimeoutError."""
    loop, found = Loop(), ReaderOutcome()
    cpu = time.process_time()
    take = Reader(plan, found).take
    sessions = [
        FetchSession(
            loop.link(int(port)),
            plan.topic,
            {one: plan.offsets[str(one)] for one in partitions},
            take,
            committed=plan.committed,
        )
        for port, partitions in plan.led.items()
    ]
    for session in sessions:
        session.fetch()
    loop.run(lambda: found.records >= plan.records, within_s=plan.within_s)
    found.load_cpu_s = time.process_time() - cpu
    found.fetches = sum(one.fetches for one in sessions)
    loop.close()
    return found


if __name__ == "__main__":
    print(json.dumps(asdict(run_reader(ReaderPlan(**json.loads(sys.argv[1]))))))
