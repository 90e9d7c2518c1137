"""Loads over Kafka's protocol: Kafka's own performance tools, and librdkafka for small requests."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Final

from bench.peers.figures import Outcome
from bench.peers.jvm import tool_argv
from bench.peers.kafka_topics import topic_of
from bench.peers.librdkafka_load import Plan
from bench.peers.loads import RunLoad, outcome_of, output_of, python_module
from bench.peers.rows import Load, Row, Size, records_a_second, records_of
from bench.peers.tool_output import consumed, produced

_CONSUMER_WAIT_MS: Final = 60_000


class KafkaLoads:
    """Loads of a cluster that speaks Kafka's protocol."""

    def __init__(self, address: str, class_path: str) -> None:
        self._address, self._class_path = address, class_path
        self._numbers = itertools.count(1)

    @contextmanager
    def prepared(self, row: Row, size: Size) -> Iterator[RunLoad]:
        """A topic, and for a consumer its records."""
        topic, records = f"{row.name}-{next(self._numbers)}", records_of(row, size)
        with topic_of(self._address, topic, row):
            match row.load:
                case Load.CONSUME:
                    self._produce(row, topic, records)
                    yield lambda: self._consume(topic, records)
                case Load.SMALL | Load.SMALL_TRANSACTIONS:
                    yield lambda: self._small(row, topic, size, records)
                case _:
                    yield lambda: self._produce(row, topic, records)

    def _produce(self, row: Row, topic: str, records: int) -> Outcome:
        properties = {
            "acks": row.acks,
            "batch.size": row.batch_bytes,
            "linger.ms": row.linger_ms,
        }
        arguments = [
            *("--bootstrap-server", self._address, "--topic", topic),
            *("--num-records", str(records), "--record-size", str(row.record_bytes)),
            *("--throughput", str(records_a_second(row)), "--command-property"),
            *(f"{key}={value}" for key, value in properties.items()),
        ]
        if row.commit_ms:
            arguments += ["--transaction-duration-ms", str(row.commit_ms)]
        return produced(self._tool("ProducerPerformance", arguments), row.record_bytes)

    def _consume(self, topic: str, records: int) -> Outcome:
        return consumed(
            self._tool(
                "ConsumerPerformance",
                [
                    *("--bootstrap-server", self._address, "--topic", topic),
                    *("--num-records", str(records), "--timeout", str(_CONSUMER_WAIT_MS)),
                ],
            )
        )

    def _small(self, row: Row, topic: str, size: Size, records: int) -> Outcome:
        plan = Plan(
            address=self._address,
            topic=topic,
            partitions=row.partitions,
            record_bytes=row.record_bytes,
            acks=row.acks,
            records=records,
            requests_s=row.requests_s,
        )
        if row.load is Load.SMALL_TRANSACTIONS:
            plan = replace(plan, transactions_s=size.seconds)
        return outcome_of(python_module("bench.peers.librdkafka_load", asdict(plan)))

    def _tool(self, name: str, arguments: list[str]) -> str:
        main = f"org.apache.kafka.tools.{name}"
        return output_of(tool_argv(self._class_path, main, *arguments))
