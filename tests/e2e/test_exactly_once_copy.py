"""Consume, transform, produce: each input once in the output, with servers that hang (N04), and the
naive loop, which repeats (N05).
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from e2e.clusters import Cluster, StartCluster
from waiting import PATIENCE_S, wait_for

COUNT = 100
QUICK = {
    "group.initial.rebalance.delay.ms": 100,
    "transaction.state.log.num.partitions": 3,
    "offsets.topic.num.partitions": 3,
}
TESTS = Path(__file__).parents[1]


class WorkerProcess:
    """One copy_worker; its lines are read as they come."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "e2e.copy_worker", json.dumps(plan)],
            env={**os.environ, "PYTHONPATH": str(TESTS)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def wait_for(self, what: str) -> str:
        """The first line that begins so."""
        return wait_for(
            lambda: next((line for line in list(self.lines) if line.startswith(what)), None),
            lambda: f"no {what!r} in {self.lines[-20:]}",
        )

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class Copying:
    """A cluster, an input of COUNT records, and workers."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.workers: list[WorkerProcess] = []
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.kafka()})
        topics = [confluent_kafka.admin.NewTopic(name, 2, 1) for name in ("input", "output")]
        for made in admin.create_topics(topics).values():
            made.result(PATIENCE_S)
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.kafka()})
        for number in range(COUNT):
            producer.produce("input", key=str(number), value=str(number))
        assert producer.flush(PATIENCE_S) == 0

    def worker(self, mode: str, transactional_id: str = "", *, hold: bool = False) -> WorkerProcess:
        plan = {
            "bootstrap": self.cluster.kafka(),
            "group": "copiers",
            "input": "input",
            "output": "output",
            "mode": mode,
            "transactional_id": transactional_id,
            "hold": hold,
        }
        made = WorkerProcess(plan)
        self.workers.append(made)
        return made

    def copies(self) -> Counter[str]:
        """What readers of committed records find in the output, once it holds every input."""
        found: Counter[str] = Counter()
        reader = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.cluster.kafka(),
                "group.id": "reader",
                "isolation.level": "read_committed",
            }
        )
        reader.assign([confluent_kafka.TopicPartition("output", each, 0) for each in range(2)])
        quiet_since = time.monotonic()
        while len(found) < COUNT or time.monotonic() < quiet_since + 3:
            assert time.monotonic() < quiet_since + PATIENCE_S, f"{len(found)} of {COUNT}"
            message = reader.poll(0.5)
            if message is not None and message.error() is None:
                found[(message.value() or b"").decode()] += 1
                quiet_since = time.monotonic()
        reader.close()
        return found


@pytest.fixture
def copying(start_cluster: StartCluster) -> Iterator[Copying]:
    made = Copying(start_cluster(txn_coordinators=1, overrides={"broker": QUICK}))
    yield made
    for worker in made.workers:
        worker.end()


@pytest.mark.feature("N04", "L09", "L14")
@pytest.mark.parametrize("same_id", [True, False], ids=["one id", "an id each"])
def test_a_server_that_hung_and_its_heir_copy_each_record_once(
    copying: Copying, same_id: bool
) -> None:
    zombie = copying.worker("transactional", "copier", hold=True)
    zombie.wait_for("holding")
    heir = copying.worker("transactional", "copier" if same_id else "copier-2")
    heir.wait_for("copied")
    zombie.go_on()
    assert zombie.wait_for("refused")
    assert set(copying.copies().values()) == {1}


@pytest.mark.feature("N05", "L14")
def test_the_naive_loop_repeats_what_it_had_written(copying: Copying) -> None:
    hung = copying.worker("naive", hold=True)
    hung.wait_for("holding")
    hung.end()
    copying.worker("naive").wait_for("copied")
    copies = copying.copies()
    assert len(copies) == COUNT
    assert max(copies.values()) == 2


@pytest.mark.feature("N05", "L04")
def test_the_transactional_loop_does_not_repeat_after_the_same_death(copying: Copying) -> None:
    hung = copying.worker("transactional", "copier", hold=True)
    hung.wait_for("holding")
    hung.end()
    copying.worker("transactional", "copier").wait_for("copied")
    assert set(copying.copies().values()) == {1}
