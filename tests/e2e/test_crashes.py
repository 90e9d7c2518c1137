"""What a broker promises of its log when it is killed, cut, flipped or stopped: seen from outside.

One cluster for the module. Every test has topics of its own, leaves a broker running behind it, and
decides by ``UNSYNCED`` what the broker may have synced.
"""

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from e2e.disk_fixtures import (
    BROKER,
    MIB,
    WAIT_S,
    Load,
    OneBroker,
    check_log_of,
    fetch_raw,
    log_end,
    make_batch,
    noise,
    one_broker,
    produce,
    read_log,
    under_load,
    values_of,
)
from e2e.kafka_wire import Wire, fetch_body
from e2e.wounds import WOUNDS, flip, starts_of, wound
from tidemark.codec.record_batch import HEADER_BYTES, crc_matches, read_header
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.os_disk import OsDisk, OsFile
from tidemark_wire.v1 import common_pb2, partition_store_pb2, partition_store_pb2_grpc
from waiting import wait_for

pytestmark = pytest.mark.e2e

PARTITIONS: Final = 3
KILLS: Final = 3
CLEAN_SHUTDOWN: Final = "clean-shutdown"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneBroker]:
    with one_broker(tmp_path_factory.mktemp("crashes")) as running:
        yield running


@pytest.fixture
def broker(cluster: OneBroker) -> OneBroker:
    """Running, whatever the test before left."""
    if BROKER not in cluster.running():
        cluster.start_broker()
    return cluster


# -- kill -9 under load


def newest_segment(broker: OneBroker, topic: str, partition: int = 0) -> Path:
    return sorted((broker.data / f"{topic}-{partition}").glob("*.log"))[-1]


def is_in_page_cache(path: Path) -> bool:
    file = OsFile(os.open(path, os.O_RDONLY), str(path), OsDisk(path.parent))
    return file.resident(0, file.size_bytes)


def kill_at_some_moment(broker: OneBroker, dice: random.Random, loads: Sequence[Load]) -> None:
    """After a few more acknowledgements of everyone, and then some."""
    goals = [len(load.acknowledged) + dice.randrange(200, 600) for load in loads]
    wait_for(
        lambda: all(len(one.acknowledged) >= goal for one, goal in zip(loads, goals, strict=True)),
        "the producers get no acknowledgements",
    )
    threading.Event().wait(dice.uniform(0, 0.05))
    broker.kill_broker()


@pytest.mark.feature("B03", "B04", "B05", "K07", "K09", "A17")
def test_no_acknowledged_record_is_lost_by_kill_9(broker: OneBroker) -> None:
    dice = random.Random(9)
    broker.create("killed", PARTITIONS)
    broker.create("retried", PARTITIONS)
    lossy = {"acks": 1, "retries": 0, "message_timeout_ms": 300_000}
    retrying = {"enable_idempotence": True, "message_timeout_ms": 300_000}
    with (
        under_load(broker, "killed", PARTITIONS, **lossy) as plain,
        under_load(broker, "retried", PARTITIONS, **retrying) as idempotent,
    ):
        for _ in range(KILLS):
            kill_at_some_moment(broker, dice, [*plain, *idempotent])
            assert is_in_page_cache(newest_segment(broker, "killed"))
            broker.start_broker()
        before = sum(len(load.acknowledged) for load in idempotent)
        wait_for(
            lambda: sum(len(load.acknowledged) for load in idempotent) > before,
            "the idempotent producers do not go on",
        )
    with broker.wire() as wire:
        check_log_of(plain, wire)
        check_log_of(plain, wire)  # reading takes nothing away
        check_log_of(idempotent, wire)
    for load in idempotent:
        assert not load.failed
        assert {(at, value) for (at, _), value in load.acknowledged.items()} == load.sent


# -- torn tails and bit flips beyond the recovery point


def fill(wire: Wire, topic: str, partition: int, dice: random.Random, batches: int = 6) -> None:
    for number in range(batches):
        values = [
            noise(dice, f"{topic}-{partition}/{number}.{at}", dice.randrange(10, 2_000))
            for at in range(dice.randrange(1, 5))
        ]
        produce(wire, topic, *values, partition=partition)


@pytest.mark.feature("B03")
def test_a_torn_tail_is_gone_and_what_is_before_it_is_served(broker: OneBroker) -> None:
    dice = random.Random(2)
    broker.create("torn", len(WOUNDS))
    with broker.wire() as wire:
        for partition in range(len(WOUNDS)):
            fill(wire, "torn", partition, dice)
    broker.kill_broker()
    expected = [
        wound(newest_segment(broker, "torn", partition), one, dice)
        for partition, one in enumerate(WOUNDS)
    ]
    logged = broker.log_size()
    broker.start_broker()
    with broker.wire() as wire:
        for partition, one in enumerate(WOUNDS):
            served = read_log(wire, "torn", partition)
            assert b"".join(batch.raw for batch in served) == expected[partition], one.name
            end = log_end(wire, "torn", partition)
            assert end == (served[-1].header.last_offset + 1 if served else 0), one.name
            assert produce(wire, "torn", b"afterwards", partition=partition) == end
            assert values_of(read_log(wire, "torn", partition))[-1] == b"afterwards"
    told = broker.new_log(logged)
    for partition, one in enumerate(WOUNDS):
        if not one.name.startswith(("cut_between", "cut_to_nothing")):
            assert f"torn-{partition}/00000000000000000000.log at byte" in told, one.name


@pytest.mark.feature("B03")
def test_behind_a_flip_in_an_unsynced_segment_no_later_segment_is_served(broker: OneBroker) -> None:
    dice = random.Random(3)
    broker.create("rolled", segment_bytes=MIB)
    with broker.wire() as wire:
        for number in range(12):
            produce(wire, "rolled", noise(dice, str(number), 300_000))
        whole = b"".join(one.raw for one in read_log(wire, "rolled"))
    broker.kill_broker()
    segments = sorted((broker.data / "rolled-0").glob("*.log"))
    assert len(segments) >= 4
    content = bytearray(segments[1].read_bytes())
    starts = starts_of(content)
    flip(content, starts[1] + HEADER_BYTES + 1_000, dice)
    segments[1].write_bytes(content)
    broker.start_broker()
    kept_bytes = segments[0].stat().st_size + starts[1]
    with broker.wire() as wire:
        served = read_log(wire, "rolled")
        assert b"".join(one.raw for one in served) == whole[:kept_bytes]
        assert produce(wire, "rolled", b"afterwards") == served[-1].header.last_offset + 1
    broker.kill_broker()
    broker.start_broker()
    with broker.wire() as wire:
        assert values_of(read_log(wire, "rolled")) == [*values_of(served), b"afterwards"]


# -- bit flips below the recovery point


def grpc_fetch(broker: OneBroker, topic: str, offset: int) -> Any:
    request = partition_store_pb2.FetchRequest(
        correlation_id=1,
        partition=common_pb2.TopicPartition(topic=topic, partition=0),
        current_leader_epoch=-1,
        fetch_offset=offset,
        bytes_max=1,
    )
    with grpc.insecure_channel(broker.grpc()) as channel:
        stub = partition_store_pb2_grpc.PartitionStoreStub(channel)
        return next(stub.Fetch(iter([request]), timeout=WAIT_S))


def crash_with_everything_synced(broker: OneBroker) -> None:
    """The recovery point is the log's end, and the next start has to look for a torn tail."""
    assert broker.stop_broker() == ExitCode.OK
    (broker.data / CLEAN_SHUTDOWN).unlink()


def flip_in(path: Path, at: int) -> bytes:
    """Flip one bit of a file; what it holds now."""
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)
    return bytes(content)


def told_of_damage(broker: OneBroker, logged: int, path: str) -> bool:
    """Whether a line of the log since ``logged`` says so."""
    lines = broker.new_log(logged).splitlines()
    return any("ERROR" in line and "damage found" in line and path in line for line in lines)


def nobody_takes_it_for_a_batch(wire: Wire, topic: str, offset: int) -> bool:
    """The broker refuses to read there, or what it gives is cut short or fails its CRC."""
    error, data = fetch_raw(wire, topic, 0, offset)
    if error != ErrorCode.NONE:
        return error in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.CORRUPT_MESSAGE)
    header = read_header(data)
    whole = memoryview(data)[: header.size_bytes]
    return len(whole) < header.size_bytes or not crc_matches(whole, header)


def consume_checked(broker: OneBroker, topic: str, offset: int) -> Message | KafkaException:
    """What a Kafka client that checks CRCs makes of a batch."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, offset)])
        message = consumer.poll(WAIT_S)
        assert message is not None, "neither a record nor an error"
        error = message.error()
        return message if error is None else KafkaException(error)
    except KafkaException as error:
        return error
    finally:
        consumer.close()


def sealed_and_flipped(broker: OneBroker, topics: dict[str, Callable[[int, int], int]]) -> None:
    """``topics``: for each, which byte of the second batch is flipped, from its (start, end)."""
    for topic, choose in topics.items():
        path = sorted((broker.data / f"{topic}-0").glob("*.log"))[0]
        starts = starts_of(path.read_bytes())
        flip_in(path, choose(starts[1], starts[2]))


def segment_bytes(broker: OneBroker, topic: str) -> dict[str, bytes]:
    found = sorted((broker.data / f"{topic}-0").glob("*.log"))
    return {path.name: path.read_bytes() for path in found}


@pytest.mark.feature("B01", "B03")
def test_damage_below_the_recovery_point_is_told_and_never_truncated(broker: OneBroker) -> None:
    dice = random.Random(4)
    broker.create("flipped", segment_bytes=MIB)
    broker.create("unframed", segment_bytes=MIB)
    with broker.wire() as wire:
        for topic in ("flipped", "unframed"):
            for number in range(9):
                produce(wire, topic, noise(dice, f"{topic}{number}", 300_000))
        before = {topic: read_log(wire, topic) for topic in ("flipped", "unframed")}
    crash_with_everything_synced(broker)
    sealed_and_flipped(
        broker,
        {"flipped": lambda start, end: (start + end) // 2, "unframed": lambda start, _: start + 10},
    )
    files = {topic: segment_bytes(broker, topic) for topic in before}
    logged = broker.log_size()
    broker.start_broker(log_scrub_bytes_per_s=1024 * MIB)

    with broker.wire() as wire:
        assert [log_end(wire, topic) for topic in before] == [9, 9]
        # A Kafka reader gets the bytes as they are, and its own CRC says no.
        error, data = fetch_raw(wire, "flipped", 0, 1)
        assert error == ErrorCode.NONE
        header = read_header(data)
        assert header.base_offset == 1
        assert not crc_matches(memoryview(data)[: header.size_bytes], header)
        refused = consume_checked(broker, "flipped", 1)
        assert isinstance(refused, KafkaException), "damaged bytes were taken for a record"
        # Where a batch's length is wrong, the bytes behind it are no batch that has a true CRC.
        assert nobody_takes_it_for_a_batch(wire, "unframed", 1)
        for topic in before:
            whole = before[topic]
            first_of_next = [one.header.base_offset for one in whole][3]
            assert read_log(wire, topic, start=first_of_next) == whole[3:]
            assert produce(wire, topic, b"afterwards") == 9

    for topic in before:
        path = f"{topic}-0/00000000000000000000.log"
        wait_for(partial(told_of_damage, broker, logged, path), f"{path} is told")
    assert broker.metric("tidemark_log_damage_found_total") >= 2
    assert grpc_fetch(broker, "flipped", 0).error_code == ErrorCode.NONE
    assert grpc_fetch(broker, "flipped", 1).error_code == ErrorCode.CORRUPT_MESSAGE
    assert grpc_fetch(broker, "unframed", 1).error_code != ErrorCode.NONE
    for topic, known in files.items():
        now = segment_bytes(broker, topic)
        assert all(now[name].startswith(content) for name, content in known.items()), topic


@pytest.mark.feature("B01", "B03")
def test_recovery_and_compaction_tell_of_damage_and_leave_it_alone(broker: OneBroker) -> None:
    dice = random.Random(5)
    compacting: dict[str, Any] = {
        "cleanup_policy": "compact",
        "segment_bytes": MIB,
        "min_cleanable_dirty_ratio": "0.01",
    }
    broker.create("compacted", **compacting)
    broker.create("headless")
    with broker.wire() as wire:
        for number in range(9):
            produce(wire, "compacted", noise(dice, str(number), 300_000), key=b"one key")
        for number in range(6):
            produce(wire, "headless", noise(dice, str(number), 3_000))
    crash_with_everything_synced(broker)
    sealed_and_flipped(broker, {"compacted": lambda start, end: (start + end) // 2})
    headless = newest_segment(broker, "headless")
    flip_in(headless, starts_of(headless.read_bytes())[-1] + 9)  # the last batch's length
    size_bytes = headless.stat().st_size
    damaged = segment_bytes(broker, "compacted")
    logged = broker.log_size()
    broker.start_broker(log_cleaner_backoff_ms=100, log_scrub_bytes_per_s=0)

    for path in ("headless-0/", "compacted-0/"):
        wait_for(partial(told_of_damage, broker, logged, path), f"{path} is told")
    assert broker.metric("tidemark_log_damage_found_total") >= 2
    with broker.wire() as wire:
        assert segment_bytes(broker, "compacted") == damaged
        assert log_end(wire, "headless") == 6
        assert values_of(read_log(wire, "compacted", start=8))[0]
        # Where the log ends is not known, so that nothing may be written behind it.
        refused = wire.produce("headless", make_batch(b"no"))
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert fetch_raw(wire, "headless", 0, 0)[0] == ErrorCode.NONE
        assert nobody_takes_it_for_a_batch(wire, "headless", 5)
    assert headless.stat().st_size == size_bytes


# -- stopping


@pytest.mark.feature("B05", "K09")
def test_sigterm_under_load_stops_cleanly_and_the_restart_scans_nothing(broker: OneBroker) -> None:
    broker.create("stopped", PARTITIONS)
    broker.create("unscanned")
    with broker.wire() as wire:
        end = produce(wire, "unscanned", b"kept as it is") + 1
    settings = {"enable_idempotence": True, "message_timeout_ms": 300_000}
    with under_load(broker, "stopped", PARTITIONS, **settings) as loads:
        wait_for(lambda: all(len(load.acknowledged) > 200 for load in loads), "acknowledgements")
        assert broker.stop_broker() == ExitCode.OK
        assert (broker.data / CLEAN_SHUTDOWN).exists()
        # A scan would find this and cut it off: after a crash it does.
        flip_in(newest_segment(broker, "unscanned"), HEADER_BYTES + 5)
        logged = broker.log_size()
        broker.start_broker()
        assert not (broker.data / CLEAN_SHUTDOWN).exists()
    assert "clean=True" in broker.new_log(logged)
    with broker.wire() as wire:
        check_log_of(loads, wire)
        assert log_end(wire, "unscanned") == end
    assert all(not load.failed for load in loads)


@contextmanager
def reader_that_does_not_read(broker: OneBroker, topic: str) -> Iterator[Wire]:
    """Asks for more than the socket's buffers hold, and takes nothing of it."""
    with broker.wire() as wire:
        for _ in range(8):
            body = fetch_body((topic, 0, 0), partition_bytes_max=16 * MIB)
            wire.send(ApiKey.FETCH, 12, body)
        yield wire


AT_ONCE_S = 60.0
"""Half of the time that a drain may take."""


def test_a_drain_has_a_deadline_and_a_second_sigterm_cuts_it_off(broker: OneBroker) -> None:
    dice = random.Random(6)
    broker.create("large")
    with broker.wire() as wire:
        for number in range(16):
            produce(wire, "large", noise(dice, str(number), 900_000))
        whole = values_of(read_log(wire, "large"))
    with reader_that_does_not_read(broker, "large"):
        pid, logged = broker.pid(BROKER), broker.log_size()
        os.kill(pid, signal.SIGTERM)
        wait_for(lambda: "draining" in broker.new_log(logged), "the drain begins")
        os.kill(pid, signal.SIGTERM)
        assert broker.exit_code(pid, seconds=AT_ONCE_S) == ExitCode.TEMPORARY
    broker.start_broker(shutdown_deadline_ms=3_000)
    with reader_that_does_not_read(broker, "large"):
        pid = broker.pid(BROKER)
        os.kill(pid, signal.SIGTERM)
        assert broker.exit_code(pid, seconds=AT_ONCE_S) in (ExitCode.OK, ExitCode.TEMPORARY)
    broker.start_broker()
    with broker.wire() as wire:
        assert values_of(read_log(wire, "large")) == whole
