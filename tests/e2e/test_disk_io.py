"""What a broker asks of its disk, by the counters that Linux keeps for its process.

``/proc/PID/io`` has, among others: ``rchar`` and ``syscr``, bytes and calls that read files, from
the page cache or not; ``wchar`` and ``syscw``, the same for writes; ``read_bytes``, what came from
the device. sendfile from a file to a socket counts its bytes as read and as written; a plain send
on a socket counts neither. Other work of the process only adds, so the least of several goes is the
cost.
"""

import struct
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
import confluent_kafka.admin
import pytest
from bench.processes import drop_from_page_cache
from e2e.broker_processes import BrokerProcess, running_cluster
from e2e.kafka_wire import Wire, batch
from e2e.wire import ask
from tidemark.codec.record_batch import iterate_headers
from tidemark.codec.records import Record, read_records
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e]

KIB = 1024
GOES = 12
DIGITS_MAX = 64
SEGMENT_BYTES = 1024 * KIB
BATCH_BYTES = 64 * KIB
CALL_BYTES = 32 * KIB
"""Of a large read, for each call of the kernel that reads or writes files."""
QUIET = ("--log.scrub.bytes.per.s", "0", "--log.cleaner.backoff.ms", "100")
OFFSETS = ("--offsets.topic.num.partitions", "1")
SET = confluent_kafka.admin.AlterConfigOpType.SET
GROUP = "counted"
METADATA = "m" * 4_000
"""As long as a client may have it, so that positions fill a segment soon."""


class Io(NamedTuple):
    """Counters of a process, or what some work added to them."""

    rchar: int
    wchar: int
    syscr: int
    syscw: int
    read_bytes: int

    def since(self, before: "Io") -> "Io":
        return Io(*(now - then for now, then in zip(self, before, strict=True)))


def io_of(broker: BrokerProcess) -> Io:
    assert broker.process is not None
    lines = Path(f"/proc/{broker.process.pid}/io").read_text().splitlines()
    found = {name: int(value) for name, value in (line.split(": ") for line in lines)}
    return Io(*(found[name] for name in Io._fields))


def cost_of(broker: BrokerProcess, work: Callable[[], object], goes: int = GOES) -> Io:
    """Least that the broker's counters rise by while the work is done."""
    costs = []
    for _ in range(goes):
        before = io_of(broker)
        work()
        costs.append(io_of(broker).since(before))
    return Io(*(min(column) for column in zip(*costs, strict=True)))


def reads_the_disk(broker: BrokerProcess, work: Callable[[], object]) -> bool:
    """True if the work has read from the disk at least once: the kernel may keep a page that it was
    asked to forget.
    """
    return any(cost_of(broker, work, goes=1).read_bytes for _ in range(GOES))


def drop_pages(directory: Path) -> None:
    """Have the kernel forget the files of a partition."""
    drop_from_page_cache(list(directory.iterdir()))


def is_the_same(cost: Io, other: Io) -> bool:
    """True if as many calls moved as many bytes, but for the digits of an offset."""
    calls = (cost.syscr, cost.syscw, cost.read_bytes)
    moved = (cost.rchar - other.rchar, cost.wchar - other.wchar)
    same_calls = calls == (other.syscr, other.syscw, other.read_bytes)
    return same_calls and all(abs(more) <= DIGITS_MAX for more in moved)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("counted")
    with running_cluster(directory, 1, *QUIET, *OFFSETS) as (started,):
        yield started


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker.port) as connection:
        yield connection


def create(broker: BrokerProcess, topic: str, **configs: str) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    new = confluent_kafka.admin.NewTopic(topic, 1, 1, config=configs)
    admin.create_topics([new])[topic].result(PATIENCE_S)


def fill(wire: Wire, topic: str, batches: int) -> None:
    """Append batches of one record."""
    records = batch(bytes(BATCH_BYTES))
    for _ in range(batches):
        assert wire.produce(topic, records).error_code == ErrorCode.NONE


def read(wire: Wire, topic: str, offset: int, bytes_max: int = 1) -> bytes:
    """Batches from an offset on, at least one."""
    answer = wire.fetch((topic, 0, offset), partition_bytes_max=bytes_max)
    return bytes(answer.topics[0].partitions[0].records or b"")


def read_batch(wire: Wire, topic: str, offset: int) -> None:
    assert len(read(wire, topic, offset)) > BATCH_BYTES


@pytest.mark.feature("B09")
def test_a_caught_up_consumer_causes_no_disk_read(broker: BrokerProcess, wire: Wire) -> None:
    create(broker, "followed")
    with Wire(broker.port) as consumer:
        offsets = count()

        def follow() -> None:
            for offset in islice(offsets, 10):
                fill(wire, "followed", 1)
                read_batch(consumer, "followed", offset)

        assert cost_of(broker, follow).read_bytes == 0

        def read_what_is_cold() -> None:
            drop_pages(broker.data / "followed-0")
            read_batch(consumer, "followed", 0)

        assert reads_the_disk(broker, read_what_is_cold), "a disk read is seen"


@pytest.mark.feature("B08")
def test_a_fetch_goes_from_the_page_cache_to_the_socket_by_sendfile(
    broker: BrokerProcess, wire: Wire
) -> None:
    create(broker, "sent")
    fill(wire, "sent", 12)
    size = len(read(wire, "sent", 0, 1 << 20))
    assert size > 10 * BATCH_BYTES
    fetch = cost_of(broker, lambda: read(wire, "sent", 0, 1 << 20))
    assert fetch.wchar >= size, "the kernel moved the bytes from file to socket"
    assert fetch.rchar < 2 * size, "and the process did not read them beside that"
    assert cost_of(broker, lambda: wire.metadata()).wchar == 0, "what is copied is not counted"


@pytest.mark.feature("B12")
def test_a_large_read_takes_few_calls_of_the_kernel(broker: BrokerProcess, wire: Wire) -> None:
    """So that its bytes cost what the kernel takes to send them. The processor's time beside a bare
    loop of sendfile is measured by `make bench`: here other work of the machine would change it.
    """
    create(broker, "large")
    fill(wire, "large", 20)
    size = len(read(wire, "large", 0, 1 << 20))
    assert size > 14 * BATCH_BYTES
    fetch = cost_of(broker, lambda: read(wire, "large", 0, 1 << 20))
    assert fetch.syscr + fetch.syscw <= size // CALL_BYTES
    assert fetch.rchar - size < KIB, "the process reads the index, and no batch"


@pytest.mark.feature("B02", "B11")
def test_reads_and_appends_cost_the_same_in_a_short_and_in_a_long_log(
    broker: BrokerProcess, wire: Wire
) -> None:
    batches = {"short": 20, "long": 600}
    for topic, number in batches.items():
        create(broker, topic, **{"segment.bytes": str(SEGMENT_BYTES)})
        fill(wire, topic, number)
    segments = {topic: len(list((broker.data / f"{topic}-0").glob("*.log"))) for topic in batches}
    assert segments["long"] > 10 * segments["short"]

    def cost_of_read(topic: str, offset: int) -> Io:
        return cost_of(broker, lambda: read_batch(wire, topic, offset))

    short = cost_of_read("short", 5)
    assert short.rchar >= BATCH_BYTES
    for offset in (5, 301, 580):
        assert is_the_same(cost_of_read("long", offset), short), f"from offset {offset}"
    append = cost_of(broker, lambda: fill(wire, "short", 1))
    assert append.wchar >= BATCH_BYTES
    assert is_the_same(cost_of(broker, lambda: fill(wire, "long", 1)), append)


@pytest.mark.feature("B11")
def test_the_first_read_after_a_start_does_not_walk_a_long_log(broker: BrokerProcess) -> None:
    """Of segments whose files and indexes are not open yet."""
    with Wire(broker.port) as wire:
        create(broker, "reopened", **{"segment.bytes": str(SEGMENT_BYTES)})
        fill(wire, "reopened", 300)
    broker.kill()
    broker.start()
    broker.wait_ready()
    with Wire(broker.port) as wire:
        wait_for(lambda: wire.offset("reopened", 0, -1).offset == 300, "not served again")
        offsets = iter(range(5, 300, 15))  # each in another segment
        cost = cost_of(broker, lambda: read_batch(wire, "reopened", next(offsets)))
    assert BATCH_BYTES <= cost.rchar < 2 * BATCH_BYTES
    assert cost.syscr < 20


# -- positions of groups


def commit(wire: Wire, offset: int, topic: str = "positions") -> None:
    """A position, by a client that is in no group: as the simple consumer does."""
    fields = {
        "group_id": GROUP,
        "generation_id_or_member_epoch": -1,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": 0,
                        "committed_offset": offset,
                        "committed_metadata": METADATA,
                    }
                ],
            }
        ],
    }

    def is_taken() -> bool:
        ask(wire, ApiKey.FIND_COORDINATOR, 3, {"key": GROUP, "key_type": 0})
        answer = ask(wire, ApiKey.OFFSET_COMMIT, 8, fields)
        return bool(answer.topics[0].partitions[0].error_code == ErrorCode.NONE)

    wait_for(is_taken, lambda: f"offset {offset} is not committed")


def committed(wire: Wire, topic: str = "positions") -> int:
    """The position; -1 while the coordinator loads it, or if there is none."""
    wanted = [{"name": topic, "partition_indexes": [0]}]
    fields = {"groups": [{"group_id": GROUP, "topics": wanted}], "require_stable": True}
    group = ask(wire, ApiKey.OFFSET_FETCH, 8, fields).groups[0]
    return -1 if group.error_code else int(group.topics[0].partitions[0].committed_offset)


def records_of_positions(wire: Wire) -> list[Record]:
    """All that ``__consumer_offsets`` has."""
    found: list[Record] = []
    offset = 0
    while content := read(wire, "__consumer_offsets", offset, 1 << 20):
        for position, header in iterate_headers(content):
            whole = memoryview(content)[position : position + header.size_bytes]
            found += read_records(whole, header)
            offset = header.last_offset + 1
    return found


def compact_soon(broker: BrokerProcess) -> None:
    """Give ``__consumer_offsets`` the smallest segments: what is compacted is a whole one."""
    topic = confluent_kafka.admin.ConfigResource(
        confluent_kafka.admin.ResourceType.TOPIC,
        "__consumer_offsets",
        incremental_configs=[
            confluent_kafka.admin.ConfigEntry(name, str(SEGMENT_BYTES), incremental_operation=SET)
            for name in ("segment.bytes", "max.message.bytes")
        ],
    )
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    described = admin.describe_configs([topic])[topic].result(PATIENCE_S)
    assert described["cleanup.policy"].value == "compact"
    admin.incremental_alter_configs([topic])[topic].result(PATIENCE_S)


@pytest.mark.feature("E08")
def test_a_position_is_fetched_from_memory(broker: BrokerProcess, wire: Wire) -> None:
    create(broker, "positions")
    commit(wire, 7)
    log = broker.data / "__consumer_offsets-0"

    def fetch_it() -> None:
        drop_pages(log)
        assert committed(wire) == 7

    cost = cost_of(broker, fetch_it)
    assert cost.read_bytes == 0
    assert cost.rchar < 64, "less than a record"

    def read_the_log() -> None:
        drop_pages(log)
        assert records_of_positions(wire)

    assert reads_the_disk(broker, read_the_log), "a read of that log is seen"


@pytest.mark.feature("E04", "E07", "E13")
def test_positions_are_records_of_a_compacted_topic_and_the_last_ones_load_to_the_same(
    broker: BrokerProcess,
) -> None:
    key = (
        struct.pack(">h", 1)
        + b"".join(struct.pack(">h", len(text)) + text for text in (GROUP.encode(), b"compacted"))
        + struct.pack(">i", 0)
    )

    def own(wire: Wire) -> list[Record]:
        return [one for one in records_of_positions(wire) if one.key == key]

    create(broker, "compacted")
    with Wire(broker.port) as wire:
        commit(wire, 0, "compacted")
        compact_soon(broker)
        for offset in range(1, 401):
            commit(wire, offset, "compacted")
        wait_for(lambda: len(own(wire)) < 200, lambda: f"{len(own(wire))} records are left")
    broker.kill()
    broker.start()
    broker.wait_ready()
    with Wire(broker.port) as wire:
        wait_for(lambda: committed(wire, "compacted") == 400, lambda: "the position is lost")
        (value,) = {one.value for one in own(wire)[-1:]}
        assert value is not None
        assert struct.unpack_from(">q", value, 2) == (400,)
