"""The faults: each strikes a batch that is under way, seen from outside, and is written down."""

import json
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from demo_hook import REACHED, RELEASE, TAKEN, TRACE, WANTED
from demo_spark import SparkJob
from tidemark.cli.dev.cluster import DevCluster
from tidemark.cli.failure import CommandError
from tidemark.client.errors import TransactionalIdNotFoundError
from tidemark.client.sync import Admin, SinkBatches
from tidemark.runtime.clock import Clock

_STILL_S_MAX: Final = 240.0
_POLL_S: Final = 0.05
_OPEN: Final = "Ongoing"
_BROKERS_TO_SPARE_ONE: Final = 3
"""What the coordinator keeps of transactions has min.insync.replicas=2 (Kafka's default): with two
brokers nothing is committed until the dead one is back.
"""
_clock = Clock()


class Fault(NamedTuple):
    """Who is hit, at which step of a batch, and how far into the run."""

    victim: str
    step: str
    at_share: float
    """Of all batches."""
    committed: bool = False
    """Whether the sink has committed the batch, and Spark does not know it yet."""


FAULTS: Final[Mapping[str, Fault]] = {
    "worker": Fault("worker", "flush", 0.2),
    "broker": Fault("broker", "send", 0.4),
    "driver": Fault("driver", "commit-before", 0.6),
    "commit": Fault("driver", "commit-sent", 0.8, committed=True),
}


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault that happened."""

    name: str
    batch_id: int
    step: str
    killed: str
    transaction: str
    """As the coordinator described it just before."""
    unfinished: bool
    """Spark had no note of the batch's end when the process was dead."""

    def __str__(self) -> str:
        return (
            f"kill -9 {self.killed} in batch {self.batch_id} at step {self.step}:"
            f" {self.transaction}"
        )


class Steps:
    """The files in which the demonstration and Spark's Python processes meet."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def want(self, step: str, batch_id_min: int) -> None:
        """Hold the first process that reaches this step in such a batch."""
        for name in (REACHED, RELEASE, TAKEN):
            (self.directory / name).unlink(missing_ok=True)
        scratch = self.directory / f"{WANTED}.tmp"
        scratch.write_text(json.dumps({"step": step, "batch_id_min": batch_id_min}))
        scratch.replace(self.directory / WANTED)

    def reached(self) -> dict[str, Any] | None:
        """Who is held, and where."""
        try:
            known: dict[str, Any] = json.loads((self.directory / REACHED).read_text())
        except FileNotFoundError:
            return None
        return known

    def release(self) -> None:
        """Let it go on."""
        (self.directory / RELEASE).touch()

    def runs_by_batch(self) -> dict[int, set[str]]:
        """The runs of each batch by their tokens: more than one where a batch was replayed."""
        found: defaultdict[int, set[str]] = defaultdict(set)
        for known in self._trace():
            if "writer" in known:
                found[known["batch_id"]].add(known["writer"].split(".")[0])
        return dict(found)

    def attempts(self, batch_id: int) -> int:
        """The highest number of tries that a task of a batch took."""
        tries = [
            int(known["writer"].split(".")[2]) + 1
            for known in self._trace()
            if known["batch_id"] == batch_id and "writer" in known
        ]
        return max(tries, default=0)

    def _trace(self) -> list[dict[str, Any]]:
        try:
            lines = (self.directory / TRACE).read_text().splitlines()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines]


@dataclass(slots=True)
class Arena:
    """All that a fault needs. ``restart`` starts the job again after its driver was killed."""

    cluster: DevCluster
    grpc: str
    bootstrap: str
    sink_id: str
    target: str
    checkpoint: Path
    steps: Steps
    job: SparkJob
    restart: Callable[[], SparkJob]
    tell: Callable[[str], None]

    def has_committed(self, batch_id: int) -> bool:
        """Whether Spark has noted the end of a batch."""
        return (self.checkpoint / "commits" / str(batch_id)).exists()

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Poll while the job gets on. Raises CommandError when it has ended, or stands still."""
        done, moved_ms = self._committed(), _clock.now_ms()
        while not condition():
            self.job.check_alive()
            if (now := self._committed()) != done:
                done, moved_ms = now, _clock.now_ms()
            elif _clock.now_ms() - moved_ms > _STILL_S_MAX * 1_000:
                raise CommandError(f"waited for {what}, and no batch ended in {_STILL_S_MAX:g} s")
            time.sleep(_POLL_S)

    def _committed(self) -> int:
        """Batches whose end Spark has noted, of those that it still remembers."""
        names = (one.name for one in self.checkpoint.glob("commits/*"))
        return max((int(name) for name in names if name.isdecimal()), default=-1)


def strike(arena: Arena, name: str, batches: int) -> Strike:
    """Wait for the step, see the open transaction, kill, and let the rest go on."""
    fault = FAULTS[name]
    arena.steps.want(fault.step, max(1, int(batches * fault.at_share)))
    arena.wait_for(lambda: arena.steps.reached() is not None, f"step {fault.step} for {name}")
    held = arena.steps.reached()
    assert held is not None, "waited for"
    batch_id = int(held["batch_id"])
    transaction = _observe(arena, batch_id, committed=fault.committed)
    killed = _KILLERS[fault.victim](arena, held)
    struck = Strike(
        name, batch_id, fault.step, killed, transaction, not arena.has_committed(batch_id)
    )
    arena.tell(str(struck))
    arena.steps.release()
    _recover(arena, fault, struck)
    return struck


def _observe(arena: Arena, batch_id: int, *, committed: bool) -> str:
    """What the coordinator says of the sink; raises CommandError where the batch is not under
    way.
    """
    with SinkBatches(arena.grpc) as sinks, Admin(arena.bootstrap) as admin:
        try:
            sink = sinks.describe(arena.sink_id)
            known = admin.describe_transactions([arena.sink_id])[arena.sink_id]
        except TransactionalIdNotFoundError:
            raise CommandError(f"the coordinator knows no sink {arena.sink_id}") from None
    if committed:
        if sink.batch_id != batch_id:
            raise CommandError(f"batch {batch_id} was to be committed, and {sink.batch_id} is")
        return f"the sink has committed batch {sink.batch_id}, Spark has not noted it"
    if sink.open_batch != batch_id or known.state != _OPEN:
        raise CommandError(f"no open transaction of batch {batch_id}: {sink.open_batch}")
    return f"transaction {known.state}, open batch {sink.open_batch}"


# ---- who is killed


def _kill_worker(arena: Arena, held: Mapping[str, Any]) -> str:
    os.kill(held["pid"], signal.SIGKILL)
    return f"Python worker {held['pid']} of task {held['partition_id']}"


def _kill_broker(arena: Arena, held: Mapping[str, Any]) -> str:
    """One that leads partitions of the target."""
    with Admin(arena.bootstrap) as admin:
        (found,) = admin.describe_topics([arena.target]).values()
    leaders = [partition.leader for partition in found.partitions]
    leader = max(sorted(set(leaders)), key=leaders.count)
    name = f"broker-{leader}"
    pid = arena.cluster.pid(name)
    arena.cluster.kill(name)
    return f"{name} ({pid}), leader of {leaders.count(leader)} of {len(leaders)} partitions"


def _kill_driver(arena: Arena, held: Mapping[str, Any]) -> str:
    pid = arena.job.pid
    arena.job.kill()
    return f"driver {pid}"


_KILLERS: Final[Mapping[str, Callable[[Arena, Mapping[str, Any]], str]]] = {
    "worker": _kill_worker,
    "broker": _kill_broker,
    "driver": _kill_driver,
}


def _recover(arena: Arena, fault: Fault, struck: Strike) -> None:
    """Start again what does not come back by itself, and wait for the batch's end."""
    if fault.victim == "driver":
        arena.tell("starting the driver again")
        arena.job = arena.restart()
    broker = struck.killed.split()[0] if fault.victim == "broker" else ""
    missed = arena.cluster.layout.shape.brokers < _BROKERS_TO_SPARE_ONE
    if broker and missed:
        _bring_back(arena, broker)
    batch_id = struck.batch_id
    arena.wait_for(lambda: arena.has_committed(batch_id), f"the end of batch {batch_id}")
    if broker and not missed:
        _bring_back(arena, broker)


def _bring_back(arena: Arena, broker: str) -> None:
    arena.cluster.restart(broker)
    arena.tell(f"{broker} is back")
