"""Batches that are small and unfold to much: what they cost the broker and its workers, and that
other clients are served meanwhile.

Memory is measured as each process's peak; time as CPU seconds, with bounds that a slow machine
keeps. A batch of five million records was once a list of as many tuples.
"""

import asyncio
import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from crc32c import crc32c
from e2e.broker_processes import BrokerProcess, running_cluster
from e2e.kafka_wire import Wire, batch, end_of, produce_body
from e2e.processes import paused
from e2e.test_partition_store import append, append_request, store
from tidemark.codec.compression import CODEC_NAMES, GZIP, LZ4, SNAPPY, ZSTD, compress
from tidemark.codec.record_batch import CRC_START, MAGIC_V2, BatchHeader, write_header
from tidemark.codec.records import encode_record
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.produce import ProducePartitionResult, read_produce_response
from tidemark.model.errors import ErrorCode
from tidemark.runtime.clock import Clock
from tidemark_wire.v1 import common_pb2
from waiting import PATIENCE_S, cpu_s, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

MB = 1_000_000
RECORDS = 5_000_000
VALUE_BYTES = 120 * MB
PEAK_GROWTH_MAX = 150 * MB
CPU_S_MAX = 40
GOES = 3
PEAK_BEGINS_ANEW = "5"
"""What Linux takes for that in /proc/PID/clear_refs."""
NOW_MS = Clock().wall_ms()
MESSAGE_BYTES_MAX = 20 * MB
KINDS = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "recompressing": {"compression.type": "gzip"},
    "unfolding": {"compression.type": "uncompressed"},
}
every_codec = pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=CODEC_NAMES.get)
every_kind = pytest.mark.parametrize("kind", KINDS)


class Cost(NamedTuple):
    """What a process has taken."""

    peak_bytes: int
    """Of resident memory."""
    cpu_s: float

    @classmethod
    def of(cls, pid: int) -> "Cost":
        status = Path(f"/proc/{pid}/status").read_text()
        found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
        assert found is not None
        return cls(int(found[1]) * 1_024, cpu_s(pid))


NEW_WORKER = Cost(80 * MB, 0.0)


@contextmanager
def costing_little(broker: BrokerProcess) -> Iterator[None]:
    """Neither the broker nor a worker of its takes more than a few bytes may cost."""
    for pid in processes_of(broker):
        Path(f"/proc/{pid}/clear_refs").write_text(PEAK_BEGINS_ANEW)
    before = {pid: Cost.of(pid) for pid in processes_of(broker)}
    yield
    for pid in processes_of(broker):
        then, now = before.get(pid, NEW_WORKER), Cost.of(pid)
        assert now.peak_bytes - then.peak_bytes < PEAK_GROWTH_MAX, (pid == broker.pid, then, now)
        assert now.cpu_s - then.cpu_s < CPU_S_MAX, (pid == broker.pid, then, now)


def processes_of(broker: BrokerProcess) -> list[int]:
    """The broker and its workers."""
    tasks = Path(f"/proc/{broker.pid}/task").glob("*/children")
    return [broker.pid, *(int(pid) for task in tasks for pid in task.read_text().split())]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as (started,):
        yield started


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker.port) as connection:
        yield connection


_numbers = itertools.count(1)


def topic_of(broker: BrokerProcess, kind: str) -> str:
    name = f"{kind}-{next(_numbers)}"
    config = {**KINDS[kind], "max.message.bytes": str(MESSAGE_BYTES_MAX)}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(PATIENCE_S)
    return name


def claiming(codec: int, records: int, stored: bytes) -> bytes:
    """A batch of which the header says what it likes."""
    length = 49 + len(stored)
    fields = (0, length, -1, MAGIC_V2, 0, codec, records - 1, NOW_MS, NOW_MS, -1, -1, -1, records)
    header = BatchHeader(*fields)
    crc = crc32c(stored, crc32c(write_header(header)[CRC_START:]))
    return write_header(header._replace(crc=crc)) + stored


def refused_at_little_cost(
    broker: BrokerProcess, wire: Wire, kind: str, sent: bytes
) -> ProducePartitionResult:
    """The answer to a bomb: nothing of it is in the log, and the next batch is taken."""
    topic = topic_of(broker, kind)
    with costing_little(broker):
        answered = wire.produce(topic, sent)
        assert end_of(wire, topic) == 0
        assert wire.produce(topic, batch(b"x", key=b"k")).error_code == 0
    return answered


@every_codec
@every_kind
def test_decompression_bomb_a_count_that_no_codec_reaches_is_refused_unread(
    broker: BrokerProcess, wire: Wire, kind: str, codec: int
) -> None:
    stored = compress(codec, encode_record(0, 0, b"", None) * 100_000)
    refused = refused_at_little_cost(broker, wire, kind, claiming(codec, RECORDS, stored))
    assert refused.error_code in (ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)


@every_codec
@every_kind
def test_decompression_bomb_more_records_than_a_batch_may_have_are_refused_unread(
    broker: BrokerProcess, wire: Wire, kind: str, codec: int
) -> None:
    stored = compress(codec, encode_record(0, 0, b"", None) * RECORDS) + bytes(RECORDS // 8)
    refused = refused_at_little_cost(broker, wire, kind, claiming(codec, RECORDS, stored))
    assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert "batch.records.max" in (refused.error_message or "")


@every_codec
@every_kind
def test_decompression_bomb_a_value_that_unfolds_to_much_is_held_by_the_piece(
    broker: BrokerProcess, wire: Wire, kind: str, codec: int
) -> None:
    topic = topic_of(broker, kind)
    record = encode_record(0, 0, b"k", bytes(VALUE_BYTES))
    sent = claiming(codec, 1, compress(codec, record))
    del record
    with costing_little(broker):
        answered = wire.produce(topic, sent)
        wanted = ErrorCode.MESSAGE_TOO_LARGE if kind == "unfolding" else ErrorCode.NONE
        assert answered.error_code == wanted, answered
        if answered.error_code == ErrorCode.NONE:
            assert wire.offset(topic, 0, 0).offset == 0


@every_codec
def test_a_lookup_by_time_does_not_walk_a_batch_of_lies(
    broker: BrokerProcess, wire: Wire, codec: int
) -> None:
    """A plain topic stores what its header makes believable; the lookup finds the lie."""
    topic = topic_of(broker, "plain")
    records = 900_000
    stored = compress(codec, encode_record(-5, 0, b"", None) * records) + bytes(records // 8)
    with costing_little(broker):
        assert wire.produce(topic, claiming(codec, records, stored)).error_code == 0
        for time_ms in (NOW_MS, NOW_MS - 1):
            assert wire.offset(topic, 0, time_ms).error_code == ErrorCode.CORRUPT_MESSAGE


def test_grpc_refuses_the_same(broker: BrokerProcess) -> None:
    topic = topic_of(broker, "compacted")
    partition = common_pb2.TopicPartition(topic=topic, partition=0)
    stored = compress(ZSTD, encode_record(0, 0, b"", None) * RECORDS)
    sent = [claiming(ZSTD, RECORDS, stored), claiming(ZSTD, RECORDS, stored + bytes(RECORDS // 8))]

    async def scenario() -> list[int]:
        async with store(broker.grpc) as stub:
            requests = [append_request(partition, n, one, 1) for n, one in enumerate(sent)]
            return [one.error_code for one in await append(stub, requests)]

    with costing_little(broker):
        refused = asyncio.run(scenario())
    assert refused == [ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE]


def honest(records: int) -> bytes:
    """So many records of a compacted topic, as a producer may send them."""
    payload = b"".join(encode_record(0, number, b"%d" % number, None) for number in range(records))
    return claiming(ZSTD, records, compress(ZSTD, payload))


def test_another_clients_batch_does_not_wait_for_a_queue_of_heavy_ones(
    broker: BrokerProcess, wire: Wire
) -> None:
    topic = topic_of(broker, "compacted")
    heavy = produce_body(topic, honest(150_000))
    assert any(overtakes(broker, wire, topic, heavy) for _ in range(GOES))


def overtakes(broker: BrokerProcess, wire: Wire, topic: str, heavy: bytes) -> bool:
    """True if a small batch is appended before the last of some heavy ones that came before it. A
    client that is slow to send it may find them done.
    """
    with Wire(broker.port) as crowd:
        first, *others = [crowd.send(ApiKey.PRODUCE, 9, heavy) for _ in range(6)]
        offsets = [produced_at(crowd, first)]  # the broker has the others by now
        result = wire.produce(topic, batch(b"x", key=b"k"))
        assert result.error_code == 0
        offsets += [produced_at(crowd, number) for number in others]
    assert offsets == sorted(offsets)
    return result.base_offset < offsets[-1]


def produced_at(wire: Wire, number: int) -> int:
    result = read_produce_response(wire.receive(ApiKey.PRODUCE, 9, number), 9).topics[0][2][0]
    assert result.error_code == ErrorCode.NONE
    return result.base_offset


def test_a_batch_that_is_not_checked_in_time_is_refused_and_the_next_are_served(
    tmp_path: Path,
) -> None:
    """Its worker stands still; the next one imports what it needs within the deadline."""
    options = ("--batch.inspection.deadline.ms", "5000")
    with running_cluster(tmp_path, 1, *options) as (broker,), Wire(broker.port) as wire:
        topic = topic_of(broker, "compacted")
        wait_for(lambda: wire.produce(topic, batch(b"x", key=b"k")).error_code == 0, "served")
        _, *workers = processes_of(broker)
        with paused(*workers):
            late = wire.produce(topic, batch(b"late", key=b"k"))
        assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert "batch.inspection.deadline.ms" in (late.error_message or "")
        wait_for(lambda: wire.produce(topic, batch(b"x", key=b"k")).error_code == 0, "served again")
        assert end_of(wire, topic) == 2
        _, metrics = broker.http("/metrics")
        assert "tidemark_inspections_given_up_total 0.0" not in metrics
