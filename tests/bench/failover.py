"""How long nobody can write: from the stop of a leader (kill -9, SIGTERM, SIGSTOP, an end with its
supervisor, as by power loss, or a cut of its network) to the first acknowledged write on the next
one.

The first client writes (acks=all) every few milliseconds, and when that fails asks any broker for
Metadata until another leader is named: the time that the cluster takes. Producers of two clients
write at the same time with their defaults: their longest gaps. After each run the broker is started
again, or the cut healed, and all replicas are in sync before the next.
"""

import contextlib
import os
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from bench.producer_gaps import LibrdkafkaGaps, NativeGaps
from bench.replication_catch_up import percentile
from bench.replication_cluster import BROKERS, ReplicatedCluster
from bench.report import Row
from e2e.kafka_wire import Wire, batch
from e2e.netns_cluster import BROKERS as NAMES
from e2e.netns_cluster import CLIENT, CONTROLLERS, ZOOKEEPER, Cluster, cut_cluster
from tidemark.cli.failure import CommandError
from tidemark.model.errors import ErrorCode

TOPIC: Final = "failover"
RETRY_S: Final = 0.005
_WRITES_BEFORE: Final = 20
_GIVE_UP_S: Final = 60.0
SESSION_MS: Final = 9_000
LEASE_MS: Final = 3_000
"""Defaults of the services, as in the cluster whose processes are stopped."""
_ANSWER_S: Final = 0.5
"""A leader that does not answer for so long is looked for elsewhere."""
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
    gaps: dict[str, float] = field(default_factory=dict)
    """Longest gap of each client's producer, in seconds."""


Stop = Callable[[int], None]
"""By the number of a broker."""


@dataclass(frozen=True)
class Trial:
    """A cluster, a way to stop a leader, and how the cluster is made whole again."""

    bootstrap: str
    connect: Callable[[int, float], Wire]
    """By the number of a broker and a timeout in seconds."""
    stop: Stop
    mend: Stop


class Writer:
    """A producer of one partition that finds the leader by itself."""

    def __init__(self, connect: Callable[[int, float], Wire]) -> None:
        self.leader = -1
        self.acked_at = 0.0
        self._connect = connect
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
            wire = self._wires[number] = self._connect(number, _ANSWER_S)
        return wire

    def _drop(self, number: int) -> None:
        wire = self._wires.pop(number, None)
        if wire is not None:
            wire.socket.close()


def bench_failover_of_leader(
    cluster: ReplicatedCluster, stops: Sequence[str], *, runs: int, where: str
) -> list[Row]:
    """A distribution of each kind of stop."""
    cluster.create_topic(TOPIC)
    rows = []
    for name in stops:
        trial = Trial(
            cluster.cluster.bootstrap,
            lambda number, timeout_s: Wire(cluster.port(number), timeout_s=timeout_s),
            partial(STOPS[name], cluster),
            partial(_restart, cluster),
        )
        rows += rows_of(name, [one_run(trial) for _ in range(runs)])
    cluster.delete_topic(TOPIC)
    return _grouped(rows, runs, where)


def bench_cut_of_leader(directory: Path, *, runs: int, where: str) -> list[Row]:
    """A leader that reaches nobody any more. Needs root, for network namespaces."""
    directory.mkdir()
    with cut_cluster(directory, session_ms=SESSION_MS, lease_ms=LEASE_MS) as cluster:
        cluster.topic(TOPIC)
        trial = Trial(
            cluster.bootstrap,
            lambda number, timeout_s: cluster.broker(number).wire(timeout_s),
            partial(_cut_off, cluster),
            lambda _: _heal(cluster),
        )
        found = [one_run(trial) for _ in range(runs)]
    return _grouped(rows_of("cut", found), runs, where)


def _grouped(rows: list[Row], runs: int, where: str) -> list[Row]:
    for row in rows:
        row.group = f"failover of a leader, acks=all, {runs} runs each, {where}"
    return rows


def _signal(number: signal.Signals) -> Callable[[ReplicatedCluster, int], None]:
    return lambda cluster, broker: os.kill(cluster.pid(broker), number)


STOPS: Final[dict[str, Callable[[ReplicatedCluster, int], None]]] = {
    "kill -9": _signal(signal.SIGKILL),
    "SIGTERM": _signal(signal.SIGTERM),
    "SIGSTOP": _signal(signal.SIGSTOP),
    "power loss": lambda cluster, broker: cluster.cluster.cut_power(cluster.name(broker)),
}


def _restart(cluster: ReplicatedCluster, old: int) -> None:
    with contextlib.suppress(CommandError):  # it has ended
        os.kill(cluster.pid(old), signal.SIGCONT)
    # The one that was stopped may still be draining: it is waited for, or ended, by the restart.
    cluster.cluster.restart(cluster.name(old))
    cluster.wait_in_sync(TOPIC, ask=old)


def _cut_off(cluster: Cluster, old: int) -> None:
    name = cluster.broker(old).name
    others = [one for one in NAMES if one != name]
    cluster.cut((name, [ZOOKEEPER, *CONTROLLERS, *others, CLIENT]))


def _heal(cluster: Cluster) -> None:
    cluster.heal()
    cluster.settle()


def one_run(trial: Trial) -> Times:
    """Stop the leader while producers write; then make the cluster whole again."""
    writer, bootstrap = Writer(trial.connect), trial.bootstrap
    try:
        _until(lambda: writer.find_leader() and writer.write())
        with LibrdkafkaGaps(bootstrap, TOPIC) as librdkafka, NativeGaps(bootstrap, TOPIC) as native:
            for _ in range(_WRITES_BEFORE):
                _until(writer.write)
                time.sleep(RETRY_S)
            meters, old = (librdkafka, native), writer.leader
            for meter in meters:
                meter.begin()
            times = Times(time.monotonic(), 0)
            trial.stop(old)
            _write_on(writer, old, times)
            for meter in meters:
                meter.wait_acknowledged(since=times.first_ack)
                times.gaps[meter.name] = meter.longest_s()
    finally:
        writer.close()
    trial.mend(old)
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
    """From the stop on, and what a producer feels: from its last write to its next."""
    rows = [
        _row(f"{name}: to the first write on the next leader", found, lambda one: one.signalled),
        _row(f"{name}: between two writes", found, lambda one: one.last_ack_before),
    ]
    for client in found[0].gaps:
        gaps = [1e3 * one.gaps[client] for one in found]
        rows.append(_distribution(f"{name}: longest gap of a {client} producer", gaps))
    return rows


def _row(name: str, found: list[Times], since: Callable[[Times], float]) -> Row:
    row = _distribution(name, [1e3 * (one.first_ack - since(one)) for one in found])
    named = [1e3 * (one.named - since(one)) for one in found]
    row.extra["p50_until_named_ms"] = statistics.median(named)
    return row


def _distribution(name: str, took_ms: list[float]) -> Row:
    row = Row("", name, p50_ms=statistics.median(took_ms))
    row.extra = {
        "min_ms": min(took_ms),
        "p90_ms": percentile(took_ms, 0.9),
        "max_ms": max(took_ms),
    }
    return row
