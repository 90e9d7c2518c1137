"""Real file systems that fail on demand, one real broker over them, and its logs read back byte by
byte.

Everything here is a context manager that unmounts, detaches and ends what it started, whatever the
test did in between.
"""

import fcntl
import os
import random
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from e2e.clusters import Cluster
from e2e.kafka_wire import Wire, batch, end_of
from e2e.processes import paused
from e2e.shared_zookeeper import with_shared_zookeeper
from tidemark.cli.dev.layout import Layout
from tidemark.codec.record_batch import BatchHeader, crc_matches, iterate_headers
from tidemark.codec.records import read_records
from tidemark.model.errors import ErrorCode
from tidemark.runtime.clock import Clock
from waiting import PATIENCE_S, wait_for

BROKER: Final = "broker-1"
WAIT_S: Final = PATIENCE_S
MIB: Final = 1024 * 1024
NEVER_MS: Final = 24 * 3_600_000
EXT4_IOC_SHUTDOWN: Final = 0x8004587D
GOING_FLAGS_NOLOGFLUSH: Final = (2).to_bytes(4, "little")
"""Neither the journal nor data reaches the device any more: what was not synced is gone."""

# Nothing reaches the disk of its own accord, so that a test decides what was synced.
UNSYNCED: Final[Mapping[str, object]] = {
    "log.flush.interval.ms": NEVER_MS,
    "log.flush.offset.checkpoint.interval.ms": NEVER_MS,
    "zookeeper.session.timeout.ms": 4_000,
    "shutdown.deadline.ms": 120_000,
    "log.level": "INFO",
}


# -- one broker


class OneBroker(Cluster):
    """A broker, a controller, ZooKeeper; the broker is what gets hurt."""

    def __init__(self, layout: Layout) -> None:
        self._keys: Mapping[str, object] = UNSYNCED
        shape = replace(layout.shape, has_supervisors=False)  # its exit code is waited for
        super().__init__(replace(layout, shape=shape), overrides={BROKER: UNSYNCED})

    @property
    def data(self) -> Path:
        """Where it keeps its partitions unless told otherwise."""
        return self.data_directory()

    def wire(self) -> Wire:
        """A bare connection."""
        return Wire(self.layout.member(BROKER).ports["client"])

    def create(self, topic: str, partitions: int = 1, **config: object) -> str:
        """A topic; ``segment_bytes=...`` becomes segment.bytes."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        dotted = {key.replace("_", "."): str(value) for key, value in config.items()}
        asked = NewTopic(topic, partitions, 1, config=dotted)
        admin.create_topics([asked])[topic].result(WAIT_S)
        return topic

    def kill_broker(self) -> None:
        """kill -9."""
        self.kill(BROKER)

    def stop_broker(self) -> int:
        """SIGTERM; the exit code."""
        pid = self.pid(BROKER)
        os.kill(pid, 15)
        return self.exit_code(pid)

    def exit_code(self, pid: int, seconds: float = WAIT_S) -> int:
        """Wait for the broker process ``pid``, a child of ours, to end; how it did."""
        ended: list[int] = []

        def gone() -> bool:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                ended.append(os.waitstatus_to_exitcode(status))
            return bool(found)

        wait_for(gone, f"pid {pid} does not end\n{self.logs_tail()}", wait_s=seconds)
        return ended[0]

    @property
    def log_dirs(self) -> str:
        """What the broker was last started over."""
        return str(self._keys.get("log.dirs", self.data))

    def start_broker(self, **changes: object) -> None:
        """Start it again, with ``UNSYNCED`` and these keys (``log_dirs=...``); wait for it."""
        dotted = {key.replace("_", "."): value for key, value in changes.items()}
        self._keys = {"log.dirs": str(self.data), **UNSYNCED, **dotted}
        self.restart_with_same_keys()

    def restart_with_same_keys(self) -> None:
        """Start it as it was started last; wait for it."""
        self.configure(BROKER, self._keys)
        self.restart(BROKER)

    def new_log(self, position: int) -> str:
        """What the broker has logged from ``position`` on; see ``log_size``."""
        return self.log(BROKER)[position:]

    def log_size(self) -> int:
        """How much the broker has logged."""
        return len(self.log(BROKER))

    def metric(self, name: str) -> float:
        """The sum of a metric's samples."""
        lines = self.ops(BROKER, "/metrics").splitlines()
        samples = [line for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
        assert samples, f"no metric {name}"
        return sum(float(line.rsplit(" ", 1)[1]) for line in samples)


@contextmanager
def one_broker(directory: Path) -> Iterator[OneBroker]:
    """A running OneBroker under ``directory``; every process ends with the block."""
    layout = Layout.on_free_ports(directory, brokers=1, controllers=1)
    cluster = OneBroker(with_shared_zookeeper(layout))
    try:
        cluster.start()
        yield cluster
    except BaseException as problem:
        problem.add_note(cluster.logs_tail())
        raise
    finally:
        cluster.end()


# -- records in and out


class StoredBatch(NamedTuple):
    """One batch as a reader gets it."""

    header: BatchHeader
    raw: bytes

    @property
    def values(self) -> list[bytes | None]:
        """Its records' values."""
        return [record.value for record in read_records(memoryview(self.raw), self.header)]


def make_batch(*values: bytes, **fields: Any) -> bytes:
    """A batch of today, so that retention leaves it alone."""
    return batch(*values, timestamp=Clock().wall_ms(), **fields)


def produce(wire: Wire, topic: str, *values: bytes, partition: int = 0, **fields: Any) -> int:
    """One batch, acknowledged; its base offset."""
    result = wire.produce(topic, make_batch(*values, **fields), partition=partition)
    assert result.error_code == ErrorCode.NONE, (ErrorCode(result.error_code), result.error_message)
    return int(result.base_offset)


def log_end(wire: Wire, topic: str, partition: int = 0) -> int:
    """The next offset."""
    return end_of(wire, topic, partition)


def fetch_raw(wire: Wire, topic: str, partition: int, offset: int) -> tuple[int, bytes]:
    """Error code and bytes of one fetch."""
    response = wire.fetch((topic, partition, offset))
    (one,) = response.topics[0].partitions
    return int(one.result.error_code), bytes(one.records or b"")


def read_log(wire: Wire, topic: str, partition: int = 0, start: int = 0) -> list[StoredBatch]:
    """The whole partition as a reader gets it; every batch whole and true to its CRC."""
    found: list[StoredBatch] = []
    offset, end = start, log_end(wire, topic, partition)
    while offset < end:
        error, data = fetch_raw(wire, topic, partition, offset)
        assert error == ErrorCode.NONE, (ErrorCode(error), topic, partition, offset)
        view = memoryview(data)
        batches = [
            StoredBatch(header, bytes(view[position : position + header.size_bytes]))
            for position, header in iterate_headers(view)
        ]
        assert batches, (topic, partition, offset, end)
        for one in batches:
            assert crc_matches(memoryview(one.raw), one.header), (topic, partition, one.header)
            assert one.header.last_offset >= offset, one.header
            offset = one.header.last_offset + 1
        found += batches
    return found


def values_of(batches: Sequence[StoredBatch]) -> list[bytes | None]:
    """All values, in log order."""
    return [value for one in batches for value in one.values]


def noise(dice: random.Random, label: str, size_bytes: int) -> bytes:
    """A value that is like no other and does not compress."""
    return label.encode() + b":" + dice.randbytes(size_bytes)


# -- load

OUTSTANDING_MAX: Final = 10_000
"""Values of one producer without an answer: however long a broker is away, they fit its disk."""


class Load:
    """A producer in a thread: unique values, numbered per partition, and what became of each."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, name: str, settings: Mapping[str, object]
    ) -> None:
        self.topic, self.partitions, self.name = topic, partitions, name
        self.sent: set[tuple[int, bytes]] = set()
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        """Value by partition and offset."""
        self.failed: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 1,
                "batch.num.messages": 50,
                "queue.buffering.max.messages": OUTSTANDING_MAX,
                "reconnect.backoff.max.ms": 200,
                **settings,
            }
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        if failure is not None:
            self.give_up()
        self._stop()
        left = self._producer.flush(WAIT_S)
        assert left == 0, f"{self.name}: {left} values neither acknowledged nor failed"

    def give_up(self) -> None:
        """Stop, and forget what has not been answered: nobody is going to."""
        self._stop()
        self._producer.purge()
        self._producer.flush(WAIT_S)

    def _stop(self) -> None:
        self._over.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), self.name

    def _run(self) -> None:
        number = 0
        while not self._over.is_set():
            for _ in range(20):
                partition = number % self.partitions
                value = b"%s/%d/%08d" % (self.name.encode(), partition, number)
                try:
                    self._producer.produce(
                        self.topic, value, partition=partition, on_delivery=self._told
                    )
                except BufferError:
                    self._producer.poll(0.05)
                    break
                self.sent.add((partition, value))
                number += 1
            self._producer.poll(0)
            self._over.wait(0.005)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        self.acknowledged[partition, offset] = value


def check_log_of(loads: Sequence[Load], wire: Wire) -> None:
    """Every acknowledged value is at its offset; nothing twice, nothing invented, all in order."""
    topic = loads[0].topic
    for partition in range(loads[0].partitions):
        stored = {
            record_offset: value
            for one in read_log(wire, topic, partition)
            for record_offset, value in enumerate(one.values, one.header.base_offset)
        }
        assert sorted(stored) == list(range(len(stored)))
        for load in loads:
            acknowledged = {
                offset: value
                for (at, offset), value in load.acknowledged.items()
                if at == partition
            }
            assert acknowledged
            assert {offset: stored.get(offset) for offset in acknowledged} == acknowledged
            mark = load.name.encode() + b"/"
            own = [value for value in stored.values() if value and value.startswith(mark)]
            assert own == sorted(set(own)), "twice, or out of order"
            assert {(partition, value) for value in own} <= load.sent
        marks = tuple(load.name.encode() + b"/" for load in loads)
        assert all(value and value.startswith(marks) for value in stored.values())


@contextmanager
def under_load(
    broker: OneBroker, topic: str, partitions: int, **settings: object
) -> Iterator[list[Load]]:
    """Two producers at work; ``settings`` are librdkafka's, with _ for the dot."""
    dotted = {key.replace("_", "."): value for key, value in settings.items()}
    with ExitStack() as running:
        yield [
            running.enter_context(
                Load(broker.bootstrap, topic, partitions, f"{topic}.{name}", dotted)
            )
            for name in ("a", "b")
        ]


# -- file systems


def _run(*command: str | Path) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OSError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


def _unmount(path: Path) -> None:
    """Whoever still has files open there keeps them; the name is free again."""
    if path.is_mount():
        with suppress(OSError):
            _run("umount", path)
        if path.is_mount():
            _run("umount", "--lazy", path)


@contextmanager
def tmpfs(path: Path, size_bytes: int) -> Iterator[Path]:
    """A file system in memory of that size, mounted at ``path``."""
    path.mkdir(parents=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tidemark-test", path)
    try:
        yield path
    finally:
        _unmount(path)


class Ext4:
    """An ext4 in a file that can lose what was not synced, as a machine without power does."""

    def __init__(self, directory: Path, size_bytes: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.image = directory / "ext4.img"
        self.path = directory / "mounted"
        self.path.mkdir()
        with self.image.open("wb") as file:
            file.truncate(size_bytes)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", self.image)

    def mount(self) -> None:
        """Replays the journal, as after a crash.

        The loop device is a new one: another mount namespace, of a container or of a test's
        network, may hold the file system that was shut down. By the same device, mount would find
        that one again.
        """
        device = _run("losetup", "--find", "--show", self.image).strip()
        try:
            _run("mount", device, self.path)
        finally:
            _run("losetup", "--detach", device)  # it goes with the mount

    def shut_down(self) -> None:
        """From now on every write and sync fails with EIO, and nothing more reaches the device."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, GOING_FLAGS_NOLOGFLUSH)
        finally:
            os.close(descriptor)

    def shut_down_under(self, pid: int) -> None:
        """While no sync of that process is under way. Of one that the shutdown overtakes Linux may
        say that it is done, though the journal, and with it the file's new size, never came to the
        device: on a busy machine files of bare fdatasyncs lose acknowledged bytes so.
        """
        with paused(pid):
            self.shut_down()

    def unmount(self) -> None:
        """Drops the page cache; the loop device goes with the mount."""
        _run("umount", self.path)

    def check(self) -> None:
        """fsck, of what is not mounted, as an operator does after an error."""
        subprocess.run(["fsck.ext4", "-fy", str(self.image)], capture_output=True, check=False)

    def release(self) -> None:
        """Unmount it, whatever state it is in; the image stays."""
        _unmount(self.path)

    def close(self) -> None:
        """Unmount it, whatever state it is in, and remove the image."""
        self.release()
        self.image.unlink(missing_ok=True)


@contextmanager
def ext4(directory: Path, size_bytes: int = 32 * MIB) -> Iterator[Ext4]:
    """A mounted Ext4."""
    made = Ext4(directory, size_bytes)
    try:
        made.mount()
        yield made
    finally:
        made.close()


@cache
def tmpfs_problem() -> str | None:
    """Why no tmpfs can be mounted here; None when it can."""
    if os.geteuid() != 0:
        return "mounting a tmpfs needs root"
    try:
        with TemporaryDirectory() as scratch, tmpfs(Path(scratch) / "probe", MIB):
            return None
    except OSError as error:
        return f"cannot mount a tmpfs: {error}"


@cache
def ext4_problem() -> str | None:
    """Why no ext4 can be mounted from a file and shut down here; None when it can."""
    if os.geteuid() != 0:
        return "mounting an ext4 image needs root"
    if shutil.which("mkfs.ext4") is None:
        return "mkfs.ext4 is not installed"
    try:
        with TemporaryDirectory() as scratch, ext4(Path(scratch) / "probe", 8 * MIB) as made:
            made.shut_down()
    except OSError as error:
        return f"cannot mount an ext4 image and shut it down: {error}"
    return None


def skip_if(problem: str | None) -> None:
    """Skip the test, saying why."""
    if problem is not None:
        pytest.skip(problem)
