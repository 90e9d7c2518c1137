"""The cluster that is hurt: ZooKeeper, two controllers, three brokers, two txn-coordinators and two
share-coordinators, all on loopback.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from chaos.disks import Disks, cut_in_half
from chaos.history import Partition
from chaos.logs import DISK_TROUBLE, errors
from e2e.kafka_wire import Wire
from tidemark.cli.dev.cluster import DevCluster
from tidemark.cli.dev.health import member_problem
from tidemark.cli.dev.layout import HOST, SHARE_COORDINATOR, TXN_COORDINATOR, Layout
from tidemark.cli.dev.process import pause_process, send_signal, wait_ended
from tidemark.cli.failure import CommandError
from tidemark.kafka.metadata import MetadataPartition
from tidemark.kafka.primitives import MalformedRequestError

BROKERS: Final = 3
COORDINATORS: Final = 2
"""Of each of both kinds."""
INTERNAL_PARTITIONS: Final = 3
"""Of each of the coordinators' topics: few, so that a fault of one's leader is felt."""
SESSION_S: Final = 4.0
GROUP_SESSION_S: Final = 6.0
GROUP_HEARTBEAT_MS: Final = 500
START_S: Final = 300.0
STOP_S: Final = 300.0
HEAL_S: Final = 300.0
_ASK_S: Final = 1.0
_POLL_S: Final = 0.1
_SESSION = {"zookeeper.session.timeout.ms": int(SESSION_S * 1_000), "log.format": "json"}
_SHARE = {
    "group.share.heartbeat.interval.ms": 500,
    "group.share.min.heartbeat.interval.ms": 500,
}
_BROKER = {
    **_SESSION,
    "replica.lag.time.max.ms": 4_000,
    "log.flush.interval.ms": 1_000,
    "log.flush.offset.checkpoint.interval.ms": 1_000,
    "transaction.state.log.num.partitions": INTERNAL_PARTITIONS,
    "offsets.topic.num.partitions": INTERNAL_PARTITIONS,
    "share.coordinator.state.topic.num.partitions": INTERNAL_PARTITIONS,
    **_SHARE,
    "group.initial.rebalance.delay.ms": 500,
    "group.consumer.session.timeout.ms": int(GROUP_SESSION_S * 1_000),
    "group.consumer.heartbeat.interval.ms": GROUP_HEARTBEAT_MS,
}
# Preferred leaders return between faults: elections of living leaders too.
_CONTROLLER = {**_SESSION, "leader.imbalance.check.interval.seconds": 15}


class NotHealedError(Exception):
    """The cluster did not become whole in time, though nothing hurts it any more."""


class ChaosCluster(DevCluster):
    """A DevCluster whose processes end and begin without anybody waiting for it."""

    def __init__(self, directory: Path) -> None:
        layout = Layout.on_free_ports(
            directory,
            brokers=BROKERS,
            txn_coordinators=COORDINATORS,
            share_coordinators=COORDINATORS,
        )
        overrides: dict[str, Mapping[str, object]] = {
            "broker": _BROKER,
            "controller": _CONTROLLER,
            TXN_COORDINATOR: _SESSION,
            SHARE_COORDINATOR: {**_SESSION, **_SHARE},
        }
        super().__init__(layout, overrides=overrides)
        brokers = [f"broker-{number}" for number in range(1, BROKERS + 1)]
        self.disks = Disks(directory, {name: layout.data_path(name) for name in brokers})
        self._hurt: set[str] = set()
        """Brokers whose disks were made to fail, or to lose bytes: they complain of it."""
        self.paused: set[str] = set()
        self.down: set[str] = set()
        """Killed or stopped on purpose, and not started again yet."""

    @property
    def grpc_addresses(self) -> list[str]:
        """host:port of the brokers' gRPC servers."""
        members = (self.layout.member(f"broker-{number}") for number in range(1, BROKERS + 1))
        return [f"{HOST}:{member.ports['grpc']}" for member in members]

    def begin(self, name: str) -> None:
        """Start a process that has ended, or is about to. Raises CommandError: it does not end."""
        if not self.wait_ended(name):
            self.kill(name)
            self.down.discard(name)
            self._spawn(self.layout.member(name))
            raise CommandError(f"{name} did not stop within {STOP_S:g} s of SIGTERM")
        self._spawn(self.layout.member(name))
        self.down.discard(name)

    def kill(self, name: str) -> None:
        """SIGKILL, and wait until it is gone."""
        self.down.add(name)
        self.paused.discard(name)
        super().kill(name)

    def cut_power(self, name: str) -> None:
        """SIGKILL of a process and of its supervisor, which records nothing."""
        self.down.add(name)
        self.paused.discard(name)
        super().cut_power(name)

    def signal_stop(self, name: str) -> None:
        """SIGTERM; ``begin`` waits for the end."""
        self.down.add(name)
        process = self._supervisor(name) or self._running(name)
        if process is not None:
            send_signal(process, signal.SIGTERM)

    def wait_ended(self, name: str) -> bool:
        """Whether what was told to stop did in time; a second SIGTERM would cut it off."""
        process = self._known(name)
        return process is None or wait_ended(process, STOP_S)

    def pause(self, name: str) -> None:
        """SIGSTOP."""
        self.paused.add(name)
        pause_process(self.pid(name))

    def resume(self, name: str) -> None:
        """SIGCONT."""
        os.kill(self.pid(name), signal.SIGCONT)
        self.paused.discard(name)

    def fail_disk(self, name: str) -> None:
        """Writes fail from now on; the broker notices, and ends."""
        self.down.add(name)
        self._hurt.add(name)
        self.disks.fail(name)

    def mend_disk(self, name: str) -> None:
        """Unmount, check and mount it in the same boot, and start the broker again. Raises
        CommandError: it does not end.
        """
        process = self._known(name)
        ended = process is None or wait_ended(process, STOP_S)
        if not ended:
            self.kill(name)
        self.disks.mend(name)
        self._spawn(self.layout.member(name))
        self.down.discard(name)
        if not ended:
            raise CommandError(f"{name} did not end within {STOP_S:g} s of its only disk's failure")

    def damage(self, name: str, partitions: Sequence[Partition]) -> list[Path]:
        """SIGKILL, and each of these partitions loses half of a file; which files."""
        self.kill(name)
        self._hurt.add(name)
        data = self.layout.data_path(name)
        cut = (cut_in_half(data, str(partition)) for partition in partitions)
        return [path for path in cut if path is not None]

    def ended_by_themselves(self) -> list[str]:
        """Processes that nobody ended, and which are gone."""
        names = [member.name for member in self.layout.members()]
        return [name for name in names if name not in self.down and self._running(name) is None]

    def tail(self, name: str) -> str:
        """The last lines of a process's log."""
        return self._log_tail(name)

    def errors_logged(self) -> list[str]:
        """What brokers, controllers and coordinators logged as errors."""
        found = []
        for member in self.layout.members():
            if member.kind != "zookeeper":
                text = self.layout.log_path(member.name).read_text("utf-8", "replace")
                is_hurt = member.name in self._hurt
                lines = errors(text.splitlines(), without=DISK_TROUBLE if is_hurt else ())
                found += [f"{member.name}: {line}" for line in lines]
        return found

    def problems(self) -> list[str]:
        """Which processes are not ready, and why."""
        asked = ((member.name, member_problem(member)) for member in self.layout.members())
        return [f"{name}: {problem}" for name, problem in asked if problem is not None]

    def partitions(
        self, broker: int, topics: tuple[str, ...]
    ) -> dict[Partition, MetadataPartition]:
        """What one broker says of its topics' partitions; nothing while it does not answer."""
        port = self.layout.member(f"broker-{broker}").ports["client"]
        try:
            with Wire(port, timeout_s=_ASK_S) as wire:
                answer = wire.metadata(*topics)
        except (OSError, EOFError, MalformedRequestError):
            return {}
        return {
            Partition(topic.topic or "", one.partition): one
            for topic in answer.topics
            for one in topic.partitions
        }

    def wounds(self, topics: tuple[str, ...], partition_count: int) -> list[str]:
        """What is not whole: every broker must show a leader and a full ISR for every partition."""
        found = self.problems()
        for broker in range(1, BROKERS + 1):
            shown = self.partitions(broker, topics)
            if len(shown) < partition_count:
                found.append(f"broker-{broker} shows {len(shown)} of {partition_count} partitions")
            found += [
                f"broker-{broker} shows {partition} led by {one.leader_id} in epoch"
                f" {one.leader_epoch}, ISR {list(one.isr)}"
                for partition, one in shown.items()
                if one.leader_id < 0 or len(one.isr) < BROKERS
            ]
        return found

    def end(self) -> None:
        """Nothing outlives the run."""
        for name in list(self.paused):
            with contextlib.suppress(CommandError):
                self.resume(name)
        try:
            self.stop(STOP_S)
        finally:
            for name in self.running():
                super().kill(name)
            self.disks.close()


def wait_none(wounds: Callable[[], list[str]], what: str, timeout_s: float = HEAL_S) -> float:
    """Until there are none; how long it took. Raises NotHealedError, which lists those left."""
    began = time.monotonic()
    while found := wounds():
        if time.monotonic() - began > timeout_s:
            raise NotHealedError(f"{what} took over {timeout_s:g} s: " + "; ".join(found))
        time.sleep(_POLL_S)
    return time.monotonic() - began


@contextlib.contextmanager
def running_cluster(directory: Path) -> Iterator[ChaosCluster]:
    """Healthy, and ended with the block."""
    cluster = ChaosCluster(directory)
    try:
        cluster.start(START_S)
        yield cluster
    finally:
        cluster.end()
