"""Small requests from librdkafka, in a process of its own: one record in each."""

import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import Final

from bench.peers.figures import Outcome, percentile
from confluent_kafka import KafkaError, Message, Producer

IN_FLIGHT_MAX: Final = 5
"""Kafka's own limit for an idempotent producer."""
_END_S: Final = 120.0
_POLL_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """A load. ``requests_s`` of 0: as fast as it goes. ``transactions_s``: for so long,
    transactions instead of single records.
    """

    address: str
    topic: str
    partitions: int
    record_bytes: int
    acks: str
    records: int
    requests_s: int
    transactions_s: float = 0.0


class _Acknowledged:
    """Counts acknowledgements and keeps their latencies."""

    def __init__(self) -> None:
        self.latencies_ms: list[float] = []

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise RuntimeError(str(error))
        self.latencies_ms.append((message.latency() or 0.0) * 1e3)


def run(plan: Plan) -> Outcome:
    """Run a load to its end."""
    return _transactions(plan) if plan.transactions_s else _records(plan)


def _records(plan: Plan) -> Outcome:
    acknowledged = _Acknowledged()
    producer = Producer(
        {
            "bootstrap.servers": plan.address,
            "acks": plan.acks,
            "enable.idempotence": plan.acks == "all",
            "linger.ms": 0,
            "batch.num.messages": 1,
            "max.in.flight.requests.per.connection": IN_FLIGHT_MAX,
        }
    )
    value = bytes(plan.record_bytes)
    # librdkafka gets the producer id of an idempotent producer by a timer of half a second.
    producer.produce(plan.topic, value, partition=0)
    assert producer.flush(_END_S) == 0, "the first record was not acknowledged"
    begun = time.monotonic()
    for number in range(plan.records):
        if plan.requests_s:
            _wait_until(producer, begun + number / plan.requests_s)
        else:
            while number - len(acknowledged.latencies_ms) >= IN_FLIGHT_MAX:
                producer.poll(_POLL_S)
        producer.produce(plan.topic, value, partition=0, on_delivery=acknowledged)
    assert producer.flush(_END_S) == 0, "not all records were acknowledged"
    return Outcome(
        records=plan.records,
        payload=plan.records * plan.record_bytes,
        seconds=time.monotonic() - begun,
        p50_ms=percentile(acknowledged.latencies_ms, 0.5),
        p99_ms=percentile(acknowledged.latencies_ms, 0.99),
    )


def _wait_until(producer: Producer, due: float) -> None:
    """Serve acknowledgements until a record is due."""
    while (left := due - time.monotonic()) > 0:
        producer.poll(0)
        time.sleep(min(left, 0.001))


def _transactions(plan: Plan) -> Outcome:
    """One after the other, a record to each partition; latency is from begin to the commit."""
    producer = Producer(
        {
            "bootstrap.servers": plan.address,
            "transactional.id": plan.topic,
            "linger.ms": 0,
        }
    )
    producer.init_transactions(_END_S)
    value, latencies_ms = bytes(plan.record_bytes), []
    begun = time.monotonic()
    while (start := time.monotonic()) - begun < plan.transactions_s:
        producer.begin_transaction()
        for partition in range(plan.partitions):
            producer.produce(plan.topic, value, partition=partition)
        producer.commit_transaction(_END_S)
        latencies_ms.append((time.monotonic() - start) * 1e3)
    commits = len(latencies_ms)
    return Outcome(
        records=commits * plan.partitions,
        payload=commits * plan.partitions * plan.record_bytes,
        seconds=time.monotonic() - begun,
        p50_ms=percentile(latencies_ms, 0.5),
        p99_ms=percentile(latencies_ms, 0.99),
        commits=commits,
    )


if __name__ == "__main__":
    print(json.dumps(asdict(run(Plan(**json.loads(sys.argv[1]))))))
