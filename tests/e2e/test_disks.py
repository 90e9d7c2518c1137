"""Disks that fill up, fail, forget what was not synced, belong to someone else or come from a newer
release: what a broker does with them, seen from outside.

One cluster for the module; a test that needs a disk of its own starts the broker anew over it.
"""

import asyncio
import random
import re
import subprocess
import sys
import urllib.error
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pytest
from broker.config import BrokerConfig
from broker.shell.start import open_directories
from confluent_kafka.admin import AdminClient
from e2e.disk_fixtures import (
    BROKER,
    MIB,
    WAIT_S,
    Load,
    OneBroker,
    ext4,
    ext4_problem,
    fetch_raw,
    log_end,
    make_batch,
    noise,
    one_broker,
    produce,
    read_log,
    skip_if,
    tmpfs,
    tmpfs_problem,
    under_load,
    values_of,
)
from e2e.kafka_wire import Wire
from tidemark.model.errors import ErrorCode
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.service import ServiceError
from tidemark_wire.v1 import controller_pb2
from waiting import PATIENCE_MS, wait_for

pytestmark = pytest.mark.e2e

OFFLINE_DIRECTORIES: Final = "kafka_log_logmanager_offlinelogdirectorycount"
META: Final = "meta.properties"
OTHER_BROKER: Final = 7


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneBroker]:
    with one_broker(tmp_path_factory.mktemp("disks")) as running:
        yield running


@pytest.fixture
def broker(cluster: OneBroker) -> OneBroker:
    """Over its own disk, whatever the test before left."""
    if cluster.log_dirs != str(cluster.data) or BROKER not in cluster.running():
        cluster.start_broker()
    return cluster


def ready(broker: OneBroker) -> str | None:
    """None, or why /readyz says no."""
    try:
        broker.ops(BROKER, "/readyz")
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()
    return None


# -- a full disk


def fill_up(wire: Wire, topic: str, dice: random.Random) -> list[bytes]:
    """Produce until the disk is full; the acknowledged values."""
    values: list[bytes] = []
    for number in range(200):
        value = noise(dice, f"{topic}/{number}", 300_000)
        result = wire.produce(topic, make_batch(value))
        if result.error_code:
            assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            return values
        values.append(value)
    raise AssertionError("the disk never fills up")


def produced(topic: str, wire: Wire) -> bool:
    """Whether a produce is taken now."""
    return wire.produce(topic, make_batch(b"again")).error_code == ErrorCode.NONE


@pytest.mark.root
@pytest.mark.feature("B03", "K09")
def test_a_full_disk_refuses_writes_and_heals_with_nothing_lost(
    cluster: OneBroker, tmp_path: Path
) -> None:
    skip_if(tmpfs_problem())
    with ExitStack() as ending:
        path = ending.enter_context(tmpfs(tmp_path / "small", 24 * MIB))
        ending.callback(cluster.kill_broker)
        filler = path / "filler"
        filler.write_bytes(bytes(12 * MIB))
        cluster.start_broker(log_dirs=str(path / "data"))
        _full_disk(cluster, filler)


def _full_disk(broker: OneBroker, filler: Path) -> None:
    dice = random.Random(11)
    broker.create("filled", file_delete_delay_ms=100)
    broker.create("synced", flush="group")
    broker.create("retried")
    with broker.wire() as wire:
        synced = [produce(wire, "synced", b"%d" % number) for number in range(20)]
        logged = broker.log_size()
        filled = fill_up(wire, "filled", dice)
        assert wire.produce("synced", make_batch(b"no")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        told = broker.new_log(logged)
        assert "fenced" in told
        assert "No space left on device" in told
        assert broker.metric(OFFLINE_DIRECTORIES) == 1
        assert ready(broker) is not None
        assert values_of(read_log(wire, "filled")) == filled
        assert values_of(read_log(wire, "synced")) == [b"%d" % offset for offset in synced]
    settings = {"enable_idempotence": True, "message_timeout_ms": 300_000}
    with under_load(broker, "retried", 1, **settings) as loads:
        broker.create("late")
        wait_for(lambda: all(len(load.sent) > 200 for load in loads), "the producers produce")
        assert not any(load.acknowledged for load in loads)

        # Killed and started again while it is full: as before.
        broker.kill_broker()
        broker.restart_with_same_keys()
        with broker.wire() as wire:
            assert values_of(read_log(wire, "filled")) == filled
            assert wire.produce("filled", make_batch(bytes(300_000))).error_code

            filler.unlink()
            wait_for(lambda: produced("filled", wire), "the directory heals")
            wait_for(lambda: produced("late", wire), "what was made meanwhile is hosted")
            assert values_of(read_log(wire, "filled"))[: len(filled)] == filled
        wait_for(lambda: all(load.acknowledged for load in loads), "the producers get through")
    assert ready(broker) is None
    assert broker.metric(OFFLINE_DIRECTORIES) == 0
    assert not any(load.failed for load in loads)

    # Full again; this time a deleted topic makes the room.
    with broker.wire() as wire:
        fill_up(wire, "filled", dice)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.delete_topics(["filled"])["filled"].result(WAIT_S)
        wait_for(lambda: produced("late", wire), "the directory heals")
    broker.kill_broker()
    broker.restart_with_same_keys()
    with broker.wire() as wire:
        wait_for(lambda: log_end(wire, "synced") == len(synced), "all that was synced is served")
        assert values_of(read_log(wire, "synced")) == [b"%d" % offset for offset in synced]
        check_everything_arrived_once(loads, wire)


def check_everything_arrived_once(loads: Sequence[Load], wire: Wire) -> None:
    stored = values_of(read_log(wire, loads[0].topic))
    for load in loads:
        mark = load.name.encode() + b"/"
        own = [value for value in stored if value and value.startswith(mark)]
        assert own == sorted(value for _, value in load.sent)


# -- a device that drops what was not synced, and answers EIO


FLUSHED: Final = {"group": "g", "os": "o"}
SPREAD: Final = 4


def shares(path: Path, topic: str) -> list[int]:
    """Which partitions of a topic a log directory has."""
    return sorted(int(found.name.rpartition("-")[2]) for found in path.glob(f"{topic}-[0-9]"))


def pretend_another_boot(path: Path) -> None:
    """As after a power failure: nothing that this kernel knows survived."""
    meta = path / META
    text = re.sub(r"boot\.id=.*", "boot.id=another", meta.read_text())
    meta.write_text(text)


@pytest.mark.root
@pytest.mark.feature("Y10", "B04")
def test_what_was_synced_survives_a_device_that_drops_the_rest(
    cluster: OneBroker, tmp_path: Path
) -> None:
    skip_if(ext4_problem())
    with ExitStack() as ending:
        disks = [ending.enter_context(ext4(tmp_path / name)) for name in ("first", "second")]
        ending.callback(cluster.kill_broker)
        directories = [disk.path / "data" for disk in disks]
        cluster.start_broker(log_dirs=",".join(map(str, directories)))
        for flush, topic in FLUSHED.items():
            cluster.create(topic, SPREAD, flush=flush)
            assert all(shares(path, topic) for path in directories)
        first = {topic: shares(directories[0], topic) for topic in FLUSHED.values()}

        settings = {"acks": -1, "retries": 0, "message_timeout_ms": 300_000}
        with ExitStack() as producing:
            loads = {
                topic: producing.enter_context(under_load(cluster, topic, SPREAD, **settings))
                for topic in FLUSHED.values()
            }
            wait_for(
                lambda: all(
                    len(load.acknowledged) > 400 for pair in loads.values() for load in pair
                ),
                "acknowledgements",
            )
            disks[0].shut_down_under(cluster.pid(BROKER))
            _only_that_directory_is_fenced(cluster, first)
            disks[1].shut_down_under(cluster.pid(BROKER))
            # Nothing is left that it could serve from.
            assert cluster.exit_code(cluster.pid(BROKER)) == ExitCode.IO
            for load in chain(*loads.values()):
                load.give_up()
        for disk in disks:
            disk.unmount()
            disk.mount()
        pretend_another_boot(directories[1])
        assert not any((path / "clean-shutdown").exists() for path in directories)
        cluster.restart_with_same_keys()
        with cluster.wire() as wire:
            for topic, pair in loads.items():
                for partition in range(SPREAD):
                    acknowledged = {
                        offset: value
                        for load in pair
                        for (at, offset), value in load.acknowledged.items()
                        if at == partition
                    }
                    check_what_is_left(wire, topic, partition, acknowledged)


def _only_that_directory_is_fenced(broker: OneBroker, first: Mapping[str, Sequence[int]]) -> None:
    logged = broker.log_size()
    with broker.wire() as wire:
        for topic, partitions in first.items():
            for partition in range(SPREAD):
                result = wire.produce(topic, make_batch(b"x"), partition=partition)
                on_first = partition in partitions
                expected = ErrorCode.KAFKA_STORAGE_ERROR if on_first else ErrorCode.NONE
                assert result.error_code == expected, (topic, partition, result)
                error, data = fetch_raw(wire, topic, partition, 0)
                assert (error, bool(data)) == (expected, not on_first), (topic, partition)
    assert broker.metric(OFFLINE_DIRECTORIES) == 1
    assert ready(broker) is None
    assert "log directory fenced" in broker.log(BROKER), broker.new_log(logged)


def check_what_is_left(
    wire: Wire, topic: str, partition: int, acknowledged: Mapping[int, bytes]
) -> None:
    """All that was acknowledged with flush=group; with flush=os a clean prefix of it."""
    assert acknowledged
    if topic == FLUSHED["group"]:
        # Readable once a round has synced again what recovery found.
        wait_for(lambda: log_end(wire, topic, partition) > max(acknowledged), "all is served")
    stored = {
        offset: value
        for one in read_log(wire, topic, partition)
        for offset, value in enumerate(one.values, one.header.base_offset)
    }
    assert sorted(stored) == list(range(len(stored)))
    if topic == FLUSHED["os"]:
        acknowledged = {at: value for at, value in acknowledged.items() if at < len(stored)}
    assert {offset: stored.get(offset) for offset in acknowledged} == acknowledged
    assert produce(wire, topic, b"afterwards", partition=partition) == len(stored)


# -- whose disk it is


def stamp(path: Path, **changes: str) -> Path:
    """A log directory of ``OTHER_BROKER``, used before."""
    path.mkdir(parents=True)
    lines = {
        "version": "1",
        "cluster.id": "",
        "broker.id": str(OTHER_BROKER),
        "directory.id": "0ba9a2a4-5b7f-4d0e-9a8b-6f3d1c1f2e11",
        "boot.id": "some-boot",
    } | {key.replace("_", "."): value for key, value in changes.items()}
    (path / META).write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return path


def with_file(path: Path, name: str, content: bytes) -> Path:
    """A log directory with one more file in it, or another one."""
    target = path / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return path


def start_other(broker: OneBroker, directory: Path, output: Path) -> "subprocess.Popen[bytes]":
    """Another broker of the same cluster over that directory."""
    argv = [sys.executable, "-P", "-m", "broker", "--broker.id", str(OTHER_BROKER)]
    argv += ["--zookeeper.connect", broker.layout.zookeeper_connect]
    argv += ["--listeners", "CLIENT://127.0.0.1:0", "--grpc.listen", "127.0.0.1:0"]
    argv += ["--ops.listen", "127.0.0.1:0", "--log.dirs", str(directory)]
    with output.open("wb") as file:
        return subprocess.Popen(argv, stdout=file, stderr=file)


def content_of(path: Path) -> dict[str, bytes]:
    return {
        str(found.relative_to(path)): found.read_bytes()
        for found in sorted(path.rglob("*"))
        if found.is_file() and found.name != ".lock"
    }


def newer_files(path: Path) -> list[tuple[Path, str]]:
    """Log directories of a newer release, each by another of its files, and how it is refused."""
    snapshot = b"\x7f\xff" + bytes(16)
    odd = [
        ("recovery-point-offset-checkpoint", b"1\n0\n"),
        ("replication-offset-checkpoint", b"1\n0\n"),
        ("log-start-offset-checkpoint", b"1\n0\n"),
        ("clean-shutdown", b'{"version": 1}'),
        ("failed-disks", b'{"version": 1}'),
        ("t-0/partition.metadata", b"version: 1\nkind: x\n"),
        ("t-0/leader-epoch-checkpoint", b"1\n0\n"),
        ("t-0/00000000000000000000.snapshot", snapshot),
    ]
    made = []
    for number, (name, content) in enumerate(odd):
        directory = stamp(path / str(number))
        owner = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"
        with_file(directory, "t-0/partition.metadata", owner)
        made.append((with_file(directory, name, content), name))
    return made


@pytest.mark.feature("Y09", "B01")
def test_every_file_of_a_newer_release_is_refused_by_name(tmp_path: Path) -> None:
    for directory, name in newer_files(tmp_path):
        before = content_of(directory)
        config = BrokerConfig(broker_id=OTHER_BROKER, log_dirs=(str(directory),))
        with pytest.raises(ServiceError, match=f"{name}.* newer") as refused:
            open_directories(config).unlock()
        assert refused.value.exit_code is ExitCode.IO
        assert content_of(directory).items() >= before.items(), name


@pytest.mark.feature("Y09", "B01")
def test_a_disk_that_is_not_ours_ends_the_process_with_a_reason(
    broker: OneBroker, tmp_path: Path
) -> None:
    cases = {
        "of-another-broker": (stamp(tmp_path / "a", broker_id="8"), "belongs to broker 8, not 7"),
        "of-another-cluster": (stamp(tmp_path / "b", cluster_id="elsewhere"), "elsewhere"),
        "newer-stamp": (stamp(tmp_path / "c", version="2"), "format version 2 is newer"),
        "without-stamp": (with_file(tmp_path / "d", "holiday.jpg", b"x"), "holiday.jpg"),
        "in-use": (broker.data, "another process holds this log directory"),
    }
    before = {name: content_of(path) for name, (path, _) in cases.items()}
    outputs = {name: tmp_path / f"{name}.txt" for name in cases}
    started = {name: start_other(broker, path, outputs[name]) for name, (path, _) in cases.items()}
    try:
        wait_for(
            lambda: all(process.poll() is not None for process in started.values()),
            f"all {len(started)} end of their own accord",
        )
    finally:
        for process in started.values():
            process.kill()
            process.wait()
    for name, (path, words) in cases.items():
        code, output = started[name].returncode, outputs[name].read_text()
        assert words in output, (name, output)
        assert code == ExitCode.IO, (name, code, output)
        assert "Traceback" not in output, (name, output)
        if name not in ("in-use", "of-another-cluster"):
            assert content_of(path) == before[name], name


@pytest.mark.feature("Y09")
def test_an_empty_disk_is_stamped_with_broker_and_cluster(broker: OneBroker) -> None:
    found = dict(line.split("=", 1) for line in (broker.data / META).read_text().splitlines())
    assert (found["version"], found["broker.id"]) == ("1", "1")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert found["cluster.id"] == admin.describe_cluster().result(WAIT_S).cluster_id
    assert found["directory.id"]


# -- whose records they are


def tell_controller(broker: OneBroker, method: str, request: Any) -> Any:
    """As a broker would: the broker is down."""

    async def call() -> Any:
        client = ControllerClient(endpoints=[broker.controller_grpc()])
        try:
            return await client.call(method, request, WAIT_S)
        finally:
            await client.close()

    return asyncio.run(call())


def delete_while_down(broker: OneBroker, *topics: str) -> None:
    named = [controller_pb2.DeleteTopicsRequest.Topic(name=topic) for topic in topics]
    request = controller_pb2.DeleteTopicsRequest(topics=named, timeout_ms=PATIENCE_MS)
    answer = tell_controller(broker, "DeleteTopics", request)
    assert [one.error_code for one in answer.topics] == [0] * len(topics)


def create_while_down(broker: OneBroker, topic: str) -> None:
    kind = controller_pb2.CreateTopicsRequest
    assigned = [kind.Assignment(partition=0, replicas=[1])]
    asked = kind.Topic(name=topic, partition_count=-1, replication_factor=-1, assignments=assigned)
    answer = tell_controller(broker, "CreateTopics", kind(topics=[asked], timeout_ms=PATIENCE_MS))
    assert [one.error_code for one in answer.topics] == [0], answer


def strays_of(broker: OneBroker, topic: str) -> list[Path]:
    return sorted(broker.data.glob(f"{topic}-0*-stray"))


@pytest.mark.feature("A17", "B01")
def test_records_of_a_deleted_or_foreign_topic_are_set_aside_and_never_served(
    broker: OneBroker,
) -> None:
    topics = ("recreated", "deleted", "foreign")
    with broker.wire() as wire:
        for topic in topics:
            broker.create(topic)
            produce(wire, topic, f"old {topic}".encode())
    broker.kill_broker()
    delete_while_down(broker, "recreated", "deleted")
    create_while_down(broker, "recreated")
    metadata = broker.data / "foreign-0" / "partition.metadata"
    metadata.write_text(re.sub("topic_id: .*", f"topic_id: {'A' * 21}Q", metadata.read_text()))
    for _ in range(2):
        broker.start_broker()
        with broker.wire() as wire:
            assert (log_end(wire, "recreated"), log_end(wire, "foreign")) == (0, 0)
            unknown = wire.produce("deleted", make_batch(b"x"))
            assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for topic in topics:
            (stray,) = strays_of(broker, topic)
            assert f"old {topic}".encode() in next(iter(stray.glob("*.log"))).read_bytes()
        broker.kill_broker()
    broker.start_broker()
    with broker.wire() as wire:
        for topic in ("recreated", "foreign"):
            produce(wire, topic, b"new")
            assert values_of(read_log(wire, topic)) == [b"new"]
