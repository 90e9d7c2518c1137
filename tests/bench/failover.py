"""How long nobody can write: from kill -9 (or SIGTERM) of a leader to the first acknowledged write
on the next one.

The client does what clients do: it writes (acks=all) every few milliseconds, and when that fails
asks any broker for Metadata until another leader is named. After each run the broker is started
again, and all replicas are in sync before the next.
"""

import os
import signal
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bench.replication_catch_up import percentile
from bench.replication_cluster import BROKERS, ReplicatedCluster
from bench.report import Row
from e2e.kafka_wire import Wire, batch
from tidemark.model.errors import ErrorCode

TOPIC: Final = "failover"
RETRY_S: Final = 0.005
_WRITES_BEFORE: Final = 20
_GIVE_UP_S: Final = 60.0
_ANSWER_S: Final = 5.0
_ACKS_ALL: Final = -1


@dataclass
class Times:
    """Of one run, in seconds on the monotonic clock."""

    signalled: float
    last_ack_before: float
    """By the old leader, before or after the signal."""
    named: float = 0
    """When Metadata first named another leader."""
    first_ack: float = 0
    """By the new leader."""


class Writer:
    """A producer of one partition that finds the leader by itself."""

    def __init__(self, cluster: ReplicatedCluster) -> None:
        self.leader = -1
        self.acked_at = 0.0
        self._cluster = cluster
        self._value = batch(b"a few bytes to write", timestamp=time.time_ns() // 1_000_000)
        self._wires: dict[int, Wire] = {}

    def close(self) -> None:
        """End its connections."""
        for number in list(self._wires):
            self._drop(number)

    def write(self) -> bool:
        """One write to the leader it knows; whether it was acknowledged."""
        try:
            result = self._wire(self.leader).produce(
                TOPIC, self._value, acks=_ACKS_ALL, timeout_ms=int(1e3 * _ANSWER_S)
            )
        except (OSError, EOFError):
            self._drop(self.leader)
            return False
        if result.error_code != ErrorCode.NONE:
            return False
        self.acked_at = time.monotonic()
        return True

    def find_leader(self, *, without: int = -1) -> bool:
        """Ask the brokers in turn; whether one names a leader that is not ``without``."""
        for number in BROKERS:
            if number == without:
                continue
            try:
                (topic,) = self._wire(number).metadata(TOPIC).topics
            except (OSError, EOFError):
                self._drop(number)
                continue
            leader = topic.partitions[0].leader_id if topic.partitions else -1
            if leader not in (-1, without):
                self.leader = leader
                return True
        return False

    def _wire(self, number: int) -> Wire:
        wire = self._wires.get(number)
        if wire is None:
            wire = self._wires[number] = Wire(self._cluster.port(number), timeout_s=_ANSWER_S)
        return wire

    def _drop(self, number: int) -> None:
        wire = self._wires.pop(number, None)
        if wire is not None:
            wire.socket.close()


def bench_failover_of_leader(cluster: ReplicatedCluster, *, runs: int, where: str) -> list[Row]:
    """A distribution of each kind of stop."""
    cluster.create_topic(TOPIC)
    rows = []
    for name, number in (("kill -9", signal.SIGKILL), ("SIGTERM", signal.SIGTERM)):
        found = [one_run(cluster, number) for _ in range(runs)]
        rows += rows_of(name, found)
    for row in rows:
        row.group = f"failover of a leader, acks=all, {runs} runs each, {where}"
    cluster.delete_topic(TOPIC)
    return rows


def one_run(cluster: ReplicatedCluster, number: signal.Signals) -> Times:
    """Stop the leader by a signal while a writer writes; then make the cluster whole again."""
    writer = Writer(cluster)
    try:
        _until(lambda: writer.find_leader() and writer.write())
        for _ in range(_WRITES_BEFORE):
            _until(writer.write)
            time.sleep(RETRY_S)
        old = writer.leader
        pid = cluster.pid(old)
        times = Times(time.monotonic(), 0)
        os.kill(pid, number)
        _write_on(writer, old, times)
    finally:
        writer.close()
    # The one that was stopped may still be draining: it is waited for, or ended, by the restart.
    cluster.cluster.restart(cluster.name(old))
    cluster.wait_in_sync(TOPIC, ask=old)
    return times


def _write_on(writer: Writer, old: int, times: Times) -> None:
    """To the old leader for as long as it acknowledges, then to the new one."""
    while True:
        if writer.leader == old and writer.write():
            time.sleep(RETRY_S)
            continue
        times.last_ack_before = writer.acked_at
        break
    _until(lambda: writer.find_leader(without=old))
    times.named = time.monotonic()
    _until(lambda: writer.write() or (writer.find_leader(without=old) and False))
    times.first_ack = writer.acked_at


def _until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _GIVE_UP_S
    while not happened():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {_GIVE_UP_S:g} s")
        time.sleep(RETRY_S)


def rows_of(name: str, found: list[Times]) -> list[Row]:
    """From the signal on, and what a producer feels: from its last write to its next."""
    return [
        _row(f"{name}: to the first write on the next leader", found, lambda one: one.signalled),
        _row(f"{name}: between two writes", found, lambda one: one.last_ack_before),
    ]


def _row(name: str, found: list[Times], since: Callable[[Times], float]) -> Row:
    took = [1e3 * (one.first_ack - since(one)) for one in found]
    named = [1e3 * (one.named - since(one)) for one in found]
    row = Row("", name, p50_ms=statistics.median(took))
    row.extra = {
        "min_ms": min(took),
        "p90_ms": percentile(took, 0.9),
        "max_ms": max(took),
        "p50_until_named_ms": statistics.median(named),
    }
    return row
