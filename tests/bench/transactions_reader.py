"""The reader beside the steady writer: it fetches every partition from its leader and tells how old
each batch is when it comes.

``python -m bench.transactions_reader JSON`` prints one JSON object.
"""

import json
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Final

from bench.transactions_wire import Link, Loop, frame_of, read_stamp_ns
from tidemark.codec.record_batch import iterate_headers
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    read_fetch_response,
    write_fetch_request,
)
from tidemark.model.errors import ErrorCode

_VERSION: Final = 12
_WAIT_MS: Final = 500
_PARTITION_BYTES_MAX: Final = 1 << 20
_FETCH_BYTES_MAX: Final = 8 << 20


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
    """One fetch session with one broker (KIP-227), one fetch at a time."""

    def __init__(
        self, plan: ReaderPlan, link: Link, partitions: list[int], found: ReaderOutcome
    ) -> None:
        self._plan, self._link, self._found = plan, link, found
        self._offsets = {one: plan.offsets[str(one)] for one in partitions}
        self._moved = set(partitions)
        self._session = (0, 0)

    def fetch(self) -> None:
        """What has moved since the last fetch, or all of it in the first."""
        wanted = [
            FetchPartition(one, -1, self._offsets[one], -1, -1, _PARTITION_BYTES_MAX)
            for one in sorted(self._moved)
        ]
        self._moved.clear()
        request = FetchRequest(
            replica_id=-1,
            replica_epoch=-1,
            wait_ms_max=_WAIT_MS,
            bytes_min=1,
            bytes_max=_FETCH_BYTES_MAX,
            isolation_level=int(self._plan.committed),
            session_id=self._session[0],
            session_epoch=self._session[1],
            topics=[FetchTopic(self._plan.topic, bytes(16), wanted)] if wanted else [],
            forgotten=[],
            rack_id="",
            cluster_id=None,
        )
        frame = frame_of(ApiKey.FETCH, _VERSION, write_fetch_request(_VERSION, request))
        self._link.ask(ApiKey.FETCH, _VERSION, frame, self._on_answer)

    def _on_answer(self, body: memoryview) -> None:
        answer = read_fetch_response(body, _VERSION)
        if answer.error_code:
            raise ConnectionError(f"Fetch: {ErrorCode(answer.error_code).name}")
        self._session = (answer.session_id, self._session[1] + 1)
        now_ns = time.monotonic_ns()
        for topic in answer.topics:
            for result, records in topic.partitions:
                if result.error_code or result.aborted:
                    raise ConnectionError(f"{result.partition}: {result}")
                if records:
                    self._take(result.partition, records, now_ns)
        self._found.fetches += 1
        self.fetch()

    def _take(self, partition: int, records: memoryview, now_ns: int) -> None:
        for position, header in iterate_headers(records):
            self._offsets[partition] = header.last_offset + 1
            self._moved.add(partition)
            if header.is_control:
                continue
            batch = records[position : position + header.size_bytes]
            created_ns = read_stamp_ns(batch, self._plan.stamp_position)
            first_ms, tick_ms = (now_ns - created_ns) / 1e6, 1e3 * self._plan.tick_s
            ticks = header.record_count // self._plan.tick_records
            self._found.received_ms += [first_ms - place * tick_ms for place in range(ticks)]
            self._found.records += header.record_count
            self._found.batches += 1


def run_reader(plan: ReaderPlan) -> ReaderOutcome:
    """Until all records are there. Raises ConnectionError, TimeoutError."""
    loop, found = Loop(), ReaderOutcome()
    cpu = time.process_time()
    for port, partitions in plan.led.items():
        Reader(plan, loop.link(int(port)), partitions, found).fetch()
    loop.run(lambda: found.records >= plan.records, within_s=plan.within_s)
    found.load_cpu_s = time.process_time() - cpu
    loop.close()
    return found


if __name__ == "__main__":
    print(json.dumps(asdict(run_reader(ReaderPlan(**json.loads(sys.argv[1]))))))
