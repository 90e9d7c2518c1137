"""Reading from outside: any offset, long polls, sessions, topic ids, leaders, offsets by time."""

import select
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import confluent_kafka
import kafka
import pytest
from e2e.client_matrix import CLIENTS, CODECS, installed
from e2e.clusters import Cluster
from e2e.kafka_wire import Wire, fetch_body, produce_body
from e2e.wire import (
    ask,
    batches_of,
    connect,
    create_topic,
    leader_of,
    stored,
    stored_records,
    to_another,
    to_leader,
)
from tidemark.client import sync
from tidemark.codec.record_batch import iterate_headers, set_base_offset_and_epoch
from tidemark.codec.records import build_batch
from tidemark.kafka import list_offsets
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.fetch import FetchResponse, read_fetch_response
from tidemark.kafka.produce import ProduceResponse, read_produce_response
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import LeaderEpoch, Offset
from tidemark.runtime.clock import Clock
from waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e]

Names = Callable[[str], str]
PARKED_MS = 15_000
FETCH_VERSION = 12
WAIT_S = PATIENCE_S


def now_ms() -> int:
    return Clock().wall_ms()


def batch(*values: bytes, codec: int = 0) -> bytes:
    """Records of this moment, without keys."""
    return build_batch([(now_ms(), None, value, ()) for value in values], compression=codec)


def append(wire: Wire, topic: str, *values: bytes, partition: int = 0) -> int:
    """The offset of the first."""
    result = wire.produce(topic, batch(*values), partition=partition)
    assert result.error_code == ErrorCode.NONE
    return int(result.base_offset)


def error_of(response: FetchResponse) -> ErrorCode:
    (of_topic,) = response.topics
    return ErrorCode(of_topic.partitions[0].result.error_code)


def values_of(response: FetchResponse) -> dict[tuple[str, int], list[bytes | None]]:
    """What a fetch brought, by partition."""
    return {
        (of_topic.topic, one.result.partition): [
            record.value for found in batches_of(one) for record in found.records
        ]
        for of_topic in response.topics
        for one in of_topic.partitions
    }


@pytest.mark.feature("A02", "A18", "D01", "D05")
@pytest.mark.parametrize("name", ["confluent-kafka", "kafka-python", "tidemark"])
def test_a_reader_rewinds_and_reads_again(cluster: Cluster, topic_name: Names, name: str) -> None:
    topic = topic_name("rewound")
    create_topic(cluster, topic)
    with to_leader(cluster, topic) as wire:
        for first in range(0, 30, 3):
            append(wire, topic, *(b"%d" % number for number in range(first, first + 3)))
    with READERS[name](cluster.bootstrap, topic) as read_from:
        assert read_from(0, 30) == list(range(30))
        assert read_from(4, 2) == [4, 5]  # within a batch
        assert read_from(29, 1) == [29]
        assert read_from(0, 30) == list(range(30))


ReadFrom = Callable[[int, int], list[int]]


def collected(count: int, read_more: Callable[[list[int]], None]) -> list[int]:
    """So many values, by as many polls as it takes."""
    found: list[int] = []

    def is_all() -> bool:
        read_more(found)
        return len(found) >= count

    wait_for(is_all, lambda: f"{len(found)} of {count} read")
    return found


@contextmanager
def confluent_reader(bootstrap: str, topic: str) -> Iterator[ReadFrom]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(settings | {"fetch.wait.max.ms": 50})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])

    def read_from(offset: int, count: int) -> list[int]:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, offset)])
        return [int(one.value() or b"") for one in consumer.consume(count, WAIT_S)]

    yield read_from
    consumer.close()


@contextmanager
def python_reader(bootstrap: str, topic: str) -> Iterator[ReadFrom]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap.split(","), fetch_max_wait_ms=50)
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])

    def read_from(offset: int, count: int) -> list[int]:
        consumer.seek(partition, offset)

        def read_more(found: list[int]) -> None:
            for records in consumer.poll(500, max_records=count - len(found)).values():
                found += [int(record.value) for record in records]

        return collected(count, read_more)

    yield read_from
    consumer.close()


@contextmanager
def tidemark_reader(bootstrap: str, topic: str) -> Iterator[ReadFrom]:
    with sync.Consumer(bootstrap) as consumer:
        consumer.assign([(topic, 0)])

        def read_from(offset: int, count: int) -> list[int]:
            consumer.seek((topic, 0), offset)

            def read_more(found: list[int]) -> None:
                records = consumer.poll(count - len(found))
                found += [int(record.value or b"") for record in records]

            return collected(count, read_more)

        yield read_from


READERS = {
    "confluent-kafka": confluent_reader,
    "kafka-python": python_reader,
    "tidemark": tidemark_reader,
}


@pytest.mark.feature("A02", "D01", "D05", "B02")
def test_readers_at_different_offsets_do_not_disturb_one_another(
    cluster: Cluster, topic_name: Names
) -> None:
    topic = topic_name("several")
    create_topic(cluster, topic)
    with to_leader(cluster, topic) as writer, to_leader(cluster, topic) as another:
        for number in range(20):
            append(writer, topic, b"%d" % number)
            assert stored_records(another, topic, offset=number // 2)[0].offset == number // 2
        assert [record.offset for record in stored_records(writer, topic, offset=7)] == [
            *range(7, 20)
        ]


@pytest.mark.feature("D02", "D03")
def test_a_reader_that_fell_behind_catches_up_in_large_steps(
    cluster: Cluster, topic_name: Names
) -> None:
    topic = topic_name("behind")
    create_topic(cluster, topic)
    value = b"v" * 10_000
    with to_leader(cluster, topic) as wire:
        append(wire, topic, b"seen")
        assert len(stored(wire, topic)) == 1
        for _ in range(60):
            append(wire, topic, value)
        (of_topic,) = wire.fetch((topic, 0, 1), partition_bytes_max=200_000).topics
        first_step = batches_of(of_topic.partitions[0])
        assert 15 <= len(first_step) <= 20  # all there is, up to the size that was asked for
        assert len(stored(wire, topic, offset=1)) == 60
        (of_topic,) = wire.fetch((topic, 0, 1), partition_bytes_max=1).topics
        assert len(batches_of(of_topic.partitions[0])) == 1  # a large batch never blocks a reader


@pytest.mark.feature("D04")
def test_a_fetch_parks_until_enough_bytes_arrived_in_any_partition(
    cluster: Cluster, topic_name: Names
) -> None:
    topic = topic_name("parked")
    create_topic(cluster, topic, leaders=[1, 1])
    with connect(cluster.kafka(1)) as reader, connect(cluster.kafka(1)) as writer:
        body = fetch_body(
            (topic, 0, 0), (topic, 1, 0), wait_ms=PARKED_MS, bytes_min=1_000, version=FETCH_VERSION
        )
        number = reader.send(ApiKey.FETCH, FETCH_VERSION, body)
        append(writer, topic, b"too little")
        assert is_silent(reader)
        append(writer, topic, b"+" * 600, partition=1)
        assert is_silent(reader)
        append(writer, topic, b"=" * 600)
        answer = reader.receive(ApiKey.FETCH, FETCH_VERSION, number)
    assert values_of(read_fetch_response(answer, FETCH_VERSION)) == {
        (topic, 0): [b"too little", b"=" * 600],
        (topic, 1): [b"+" * 600],
    }


def is_silent(wire: Wire) -> bool:
    """Whether nothing has arrived that was not read."""
    return not select.select([wire.socket], [], [], 0)[0]


@pytest.mark.feature("D04")
def test_a_parked_fetch_does_not_outlast_its_wait(cluster: Cluster, topic_name: Names) -> None:
    topic = topic_name("patience")
    create_topic(cluster, topic)
    with to_leader(cluster, topic) as wire:
        append(wire, topic, b"x")
        response = wire.fetch((topic, 0, 0), wait_ms=50, bytes_min=1_000_000)
        assert values_of(response) == {(topic, 0): [b"x"]}
        assert values_of(wire.fetch((topic, 0, 1), wait_ms=50)) == {(topic, 0): []}


@pytest.mark.feature("D04", "D06")
@pytest.mark.parametrize("name", [name for name in CLIENTS if name != "kcat"])
def test_a_waiting_client_gets_what_is_written_while_it_waits(
    cluster: Cluster, topic_name: Names, name: str
) -> None:
    client, topic = installed(name), topic_name("tail")
    create_topic(cluster, topic)
    with to_leader(cluster, topic) as wire, ThreadPoolExecutor(1) as thread:
        append(wire, topic, b"0")
        reading = thread.submit(client.read, client.bootstrap(cluster), topic, {0: 6})
        for number in range(1, 6):
            append(wire, topic, b"%d" % number)
        found = reading.result(WAIT_S)
    assert [one.value for one in found] == [b"%d" % number for number in range(6)]


@pytest.mark.feature("D06")
def test_nothing_is_read_at_the_high_watermark_and_beyond_it_is_an_error(
    cluster: Cluster, topic_name: Names
) -> None:
    topic = topic_name("end")
    create_topic(cluster, topic)
    with to_leader(cluster, topic) as wire:
        append(wire, topic, b"a", b"b")
        (of_topic,) = wire.fetch((topic, 0, 2)).topics
        result = of_topic.partitions[0].result
        assert (result.error_code, result.high_watermark, result.log_start_offset) == (0, 2, 0)
        assert not of_topic.partitions[0].records
        assert error_of(wire.fetch((topic, 0, 3))) is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.feature("A20", "B07")
@pytest.mark.parametrize("codec", range(len(CODECS)))
def test_what_is_fetched_is_what_was_produced_but_for_offset_and_leader_epoch(
    cluster: Cluster, topic_name: Names, codec: int
) -> None:
    topic = topic_name("bytes")
    create_topic(cluster, topic)
    produced = [
        batch(b"one", b"two" * 500, codec=codec),
        build_batch([(now_ms(), b"k", None, (("h", b"v"),))], compression=codec),
    ]
    with to_leader(cluster, topic) as wire:
        for data in produced:
            assert wire.produce(topic, data).error_code == ErrorCode.NONE
        found = stored(wire, topic)
    expected = []
    for data, base_offset in zip(produced, (0, 2), strict=True):
        patched = bytearray(data)
        set_base_offset_and_epoch(patched, 0, Offset(base_offset), LeaderEpoch(0))
        expected.append(bytes(patched))
    assert [one.data for one in found] == expected


def produced_to(wire: Wire, version: int, topic: str, topic_id: bytes) -> ProduceResponse:
    name, named_id = ("", topic_id) if version >= 13 else (topic, bytes(16))
    body = produce_body(name, batch(b"x"), version=version, topic_id=named_id)
    return read_produce_response(wire.ask(ApiKey.PRODUCE, version, body), version)


def fetched_from(wire: Wire, version: int, topic: str, topic_id: bytes) -> FetchResponse:
    name, named_id = ("", topic_id) if version >= 13 else (topic, bytes(16))
    body = fetch_body((name, 0, 0), version=version, topic_id=named_id)
    return read_fetch_response(wire.ask(ApiKey.FETCH, version, body), version)


@pytest.mark.feature("A15", "A06", "C01")
@pytest.mark.parametrize("version", [3, 7, 9, 10, 12, 13])
def test_whoever_does_not_lead_refuses_writes_and_says_who_leads(
    cluster: Cluster, topic_name: Names, version: int
) -> None:
    topic = topic_name("misdirected")
    topic_id = create_topic(cluster, topic)
    leader = leader_of(cluster, topic)
    with to_another(cluster, topic) as wire:
        response = produced_to(wire, version, topic, topic_id)
    (result,) = response.topics[0][2]
    assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    if version >= 10:  # KIP-951
        assert result.current_leader == (leader, 0)
        (hint,) = response.node_endpoints
        assert (hint.node_id, f"{hint.host}:{hint.port}") == (leader, cluster.kafka(leader))
    with to_leader(cluster, topic) as wire:
        assert stored(wire, topic) == []


@pytest.mark.feature("A15", "A06")
@pytest.mark.parametrize("version", [4, 11, 12, 13, 16, 18])
def test_whoever_does_not_lead_refuses_reads_and_says_who_leads(
    cluster: Cluster, topic_name: Names, version: int
) -> None:
    topic = topic_name("misdirected")
    topic_id = create_topic(cluster, topic)
    leader = leader_of(cluster, topic)
    with to_another(cluster, topic) as wire:
        response = fetched_from(wire, version, topic, topic_id)
        offsets = wire.offset(topic, 0, list_offsets.LATEST_TIMESTAMP)
    assert error_of(response) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert offsets.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    if version >= 16:  # KIP-951
        assert response.topics[0].partitions[0].result.current_leader == (leader, 0)
        (hint,) = response.node_endpoints
        assert (hint.node_id, f"{hint.host}:{hint.port}") == (leader, cluster.kafka(leader))


@pytest.mark.feature("Y01")
@pytest.mark.parametrize("version", [13, 15, 18])
def test_topics_are_written_and_read_by_id(
    cluster: Cluster, topic_name: Names, version: int
) -> None:
    topic = topic_name("by-id")
    topic_id = create_topic(cluster, topic)
    with to_leader(cluster, topic) as wire:
        assert wire.metadata(topic).topics[0].topic_id == topic_id
        (written,) = produced_to(wire, 13, topic, topic_id).topics
        assert (written[1], written[2][0].error_code) == (topic_id, ErrorCode.NONE)
        response = fetched_from(wire, version, topic, topic_id)
        assert response.topics[0].topic_id == topic_id
        assert values_of(response) == {("", 0): [b"x"]}
        unknown = bytes(reversed(topic_id))
        assert error_of(fetched_from(wire, version, topic, unknown)) is ErrorCode.UNKNOWN_TOPIC_ID
        (refused,) = produced_to(wire, 13, topic, unknown).topics
        assert refused[2][0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.feature("Y01")
def test_a_fetch_session_tells_only_what_changed(cluster: Cluster, topic_name: Names) -> None:
    topic = topic_name("session")
    create_topic(cluster, topic, leaders=[1, 1, 1])
    with connect(cluster.kafka(1)) as wire:
        whole = wire.fetch(*((topic, number, 0) for number in range(3)), session=(0, 0))
        session = whole.session_id
        assert session != 0
        assert sorted(values_of(whole)) == [(topic, 0), (topic, 1), (topic, 2)]
        assert values_of(wire.fetch(session=(session, 1))) == {}
        append(wire, topic, b"new", partition=1)
        assert values_of(wire.fetch(session=(session, 2))) == {(topic, 1): [b"new"]}
        moved = wire.fetch((topic, 1, 1), session=(session, 3))
        assert not any(values_of(moved).values())
        append(wire, topic, b"unseen", partition=2)
        append(wire, topic, b"newer", partition=1)
        forgetting = wire.fetch(session=(session, 4), forgotten=((topic, 2),))
        assert values_of(forgetting) == {(topic, 1): [b"newer"]}


@pytest.mark.feature("Y01")
def test_a_fetch_session_has_an_order_and_an_end(cluster: Cluster, topic_name: Names) -> None:
    topic = topic_name("session")
    create_topic(cluster, topic, leaders=[1])
    with connect(cluster.kafka(1)) as wire:
        session = wire.fetch((topic, 0, 0), session=(0, 0)).session_id
        early = wire.fetch(session=(session, 5))
        assert early.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert wire.fetch(session=(session, 1)).error_code == ErrorCode.NONE
        ended = wire.fetch((topic, 0, 0), session=(session, -1))
        assert (ended.error_code, ended.session_id) == (ErrorCode.NONE, 0)
        gone = wire.fetch(session=(session, 2))
        assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.fixture
def timed(cluster: Cluster, topic_name: Names) -> tuple[str, int]:
    """A topic of three batches, in several codecs, and the time of its first record: offset n is
    n * 10 ms later, but for the last, which is as old as the first.
    """
    topic, start = topic_name("timed"), now_ms() - 3_600_000
    create_topic(cluster, topic)
    with to_leader(cluster, topic) as wire:
        for first, codec in ((0, 0), (3, 4), (6, 1)):
            times = [start + 10 * offset for offset in range(first, first + 3)]
            if first == 6:
                times[-1] = start
            data = build_batch([(time, None, b"v", ()) for time in times], compression=codec)
            assert wire.produce(topic, data).base_offset == first
    return topic, start


@pytest.mark.feature("A02")
@pytest.mark.parametrize("version", [1, 3, 4, 6, 7, 9, 11])
def test_offsets_by_mark_and_by_time(
    cluster: Cluster, timed: tuple[str, int], version: int
) -> None:
    topic, start = timed
    asked = {
        list_offsets.EARLIEST_TIMESTAMP: (0, -1),
        list_offsets.LATEST_TIMESTAMP: (9, -1),
        start - 5_000: (0, start),
        start + 20: (2, start + 20),
        start + 21: (3, start + 30),
        start + 41: (5, start + 50),
        start + 70: (7, start + 70),
        start + 71: (-1, -1),
    }
    if version >= 7:
        asked[list_offsets.MAX_TIMESTAMP] = (7, start + 70)
    if version >= 8:
        asked[list_offsets.EARLIEST_LOCAL_TIMESTAMP] = (0, -1)
    with to_leader(cluster, topic) as wire:
        for timestamp, expected in asked.items():
            found = wire.offset(topic, 0, timestamp, version=version)
            assert found.error_code == ErrorCode.NONE
            assert (found.offset, found.timestamp) == expected, timestamp - start


TIERED = list_offsets.LATEST_TIERED_TIMESTAMP
UPLOADED = list_offsets.EARLIEST_PENDING_UPLOAD_TIMESTAMP


@pytest.mark.feature("S27")
@pytest.mark.parametrize(
    ("mark", "version", "code"),
    [
        (TIERED, 8, ErrorCode.UNSUPPORTED_VERSION),
        (TIERED, 9, ErrorCode.NONE),
        (UPLOADED, 10, ErrorCode.UNSUPPORTED_VERSION),
        (UPLOADED, 11, ErrorCode.NONE),
        (-7, 11, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_there_is_no_tiered_offset(
    cluster: Cluster, timed: tuple[str, int], mark: int, version: int, code: ErrorCode
) -> None:
    topic, _ = timed
    with to_leader(cluster, topic) as wire:
        found = wire.offset(topic, 0, mark, version=version)
    assert found.error_code == code
    assert (found.offset, found.timestamp) == (-1, -1)


@pytest.mark.feature("A02", "A18")
def test_clients_find_offsets_by_time(cluster: Cluster, timed: tuple[str, int]) -> None:
    topic, start = timed
    with sync.Consumer(cluster.bootstrap) as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek_to_timestamp(start + 21)
        assert consumer.position((topic, 0)) == 3
    python = kafka.KafkaConsumer(bootstrap_servers=cluster.bootstrap.split(","))
    partition = kafka.TopicPartition(topic, 0)
    assert python.offsets_for_times({partition: start + 21})[partition].offset == 3
    assert python.beginning_offsets([partition]) == {partition: 0}
    assert python.end_offsets([partition]) == {partition: 9}
    python.close()
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "none"}
    confluent = confluent_kafka.Consumer(settings)
    asked = confluent_kafka.TopicPartition(topic, 0, start + 21)
    assert confluent.offsets_for_times([asked], timeout=WAIT_S)[0].offset == 3
    assert confluent.get_watermark_offsets(asked, timeout=WAIT_S) == (0, 9)
    confluent.close()


def test_a_leader_epoch_ends_where_the_log_does(cluster: Cluster, topic_name: Names) -> None:
    topic = topic_name("epoch")
    create_topic(cluster, topic)

    def end_of(wire: Wire, epoch: int, current: int = 0) -> tuple[int, int, int]:
        partition = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
        fields = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [partition]}]}
        answer = ask(wire, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, fields)
        found = answer.topics[0].partitions[0]
        return found.error_code, found.leader_epoch, found.end_offset

    with to_leader(cluster, topic) as wire:
        append(wire, topic, b"a", b"b")
        assert end_of(wire, 0) == (ErrorCode.NONE, 0, 2)
        assert end_of(wire, 5) == (ErrorCode.NONE, -1, -1)
        assert end_of(wire, 0, current=7)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
        fenced = wire.fetch((topic, 0, 0), leader_epoch=3)
        assert error_of(fenced) is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_headers_of_a_fetch_line_up_with_its_batches(cluster: Cluster, topic_name: Names) -> None:
    topic = topic_name("whole")
    create_topic(cluster, topic)
    with to_leader(cluster, topic) as wire:
        for number in range(10):
            append(wire, topic, b"%d" % number * 100)
        (of_topic,) = wire.fetch((topic, 0, 5)).topics
        records = of_topic.partitions[0].records
        assert records is not None
        found = [header.base_offset for _, header in iterate_headers(records)]
    assert found == [5, 6, 7, 8, 9]


@pytest.mark.feature("B10", "B02")
def test_readers_leave_nothing_behind_on_the_broker(cluster: Cluster, topic_name: Names) -> None:
    topic = topic_name("many-readers")
    create_topic(cluster, topic)
    with to_leader(cluster, topic) as wire:
        append(wire, topic, *(b"%d" % number for number in range(30)))
    leader = leader_of(cluster, topic)
    directory = cluster.data_directory(leader) / f"{topic}-0"
    before = sorted(path.name for path in directory.iterdir())
    with READERS["confluent-kafka"](cluster.bootstrap, topic) as one:
        assert one(3, 5) == [3, 4, 5, 6, 7]
        with READERS["kafka-python"](cluster.bootstrap, topic) as other:
            assert other(20, 3) == [20, 21, 22]
            assert sorted(path.name for path in directory.iterdir()) == before
