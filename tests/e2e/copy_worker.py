"""Copies a topic, in a process of its own: ``python -m e2e.copy_worker '{"mode": ...}'``.

Modes: ``transactional`` commits records and offsets in one transaction; ``naive`` reads, writes,
waits for the acknowledgements, commits. Says what it does, a line each; with ``hold`` it stops
before its first commit until a line comes on its standard input: a server that hangs.
"""

import json
import sys
from typing import Any

import confluent_kafka
from waiting import PATIENCE_S

POLL_S = 0.5


def say(what: str) -> None:
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


class Worker:
    """Reads batches as a member of a group, writes them, commits."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.holds = bool(plan.get("hold"))
        common = {"bootstrap.servers": plan["bootstrap"]}
        self.consumer = confluent_kafka.Consumer(
            {
                **common,
                "group.id": plan["group"],
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 6_000,
                "max.poll.interval.ms": 6_000,
                "heartbeat.interval.ms": 500,
            }
        )
        self.consumer.subscribe([plan["input"]])
        more = {}
        if plan["mode"] == "transactional":
            more = {"transactional.id": plan["transactional_id"], "transaction.timeout.ms": 10_000}
        self.producer = confluent_kafka.Producer({**common, "acks": "all", "linger.ms": 0, **more})
        if more:
            self.producer.init_transactions(PATIENCE_S)

    def run(self) -> None:
        """Until the other end of standard output is gone, or the worker is fenced."""
        say("ready")
        while True:
            messages = [m for m in self.consumer.consume(20, POLL_S) if m.error() is None]
            if not messages:
                say("idle")
                continue
            if self.plan["mode"] == "transactional":
                self.copy_in_transaction(messages)
            else:
                self.copy(messages)
            say(f"copied {len(messages)}")

    def write(self, messages: list[confluent_kafka.Message]) -> None:
        for message in messages:
            self.producer.produce(self.plan["output"], key=message.key(), value=message.value())
        assert self.producer.flush(PATIENCE_S) == 0

    def hold(self) -> None:
        if self.holds:
            self.holds = False
            say("holding")
            sys.stdin.readline()

    def copy(self, messages: list[confluent_kafka.Message]) -> None:
        self.write(messages)
        self.hold()
        self.consumer.commit(asynchronous=False)

    def copy_in_transaction(self, messages: list[confluent_kafka.Message]) -> None:
        self.producer.begin_transaction()
        self.write(messages)
        member = self.consumer.consumer_group_metadata()
        ends: dict[tuple[str, int], int] = {}
        for message in messages:
            ends[str(message.topic()), int(message.partition() or 0)] = int(message.offset() or 0)
        offsets = [
            confluent_kafka.TopicPartition(topic, partition, last + 1)
            for (topic, partition), last in ends.items()
        ]
        self.hold()
        self.producer.send_offsets_to_transaction(offsets, member, 30)
        self.producer.commit_transaction(30)


def main() -> None:
    worker = Worker(json.loads(sys.argv[1]))
    try:
        worker.run()
    except confluent_kafka.KafkaException as refused:
        say(f"refused {refused.args[0].name()}")
        sys.exit(3)


if __name__ == "__main__":
    main()
