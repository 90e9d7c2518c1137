"""A broker by its wire alone: what each hot API answers, version by version, and what hostile bytes
do.
"""

import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.broker_harness import RunningBroker, running_broker, topic_id_of, topic_image
from e2e.kafka_wire import Wire, batch, end_of, fetch_body, produce_body, records_of
from tidemark.codec.record_batch import iterate_headers, read_header
from tidemark.codec.records import build_batch, read_records
from tidemark.kafka import api_versions, fetch, produce
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from tidemark.model.metadata import ClusterDelta, TopicImage
from tidemark.runtime.clock import Clock

pytestmark = pytest.mark.e2e

TOPICS: dict[str, int | TopicImage] = {
    "t": 4,
    "group": topic_image("group", 1, {"flush": "group"}),
    "stamped": topic_image("stamped", 1, {"message.timestamp.type": "LogAppendTime"}),
    "compact": topic_image("compact", 1, {"cleanup.policy": "compact"}),
    "zipped": topic_image("zipped", 1, {"compression.type": "zstd"}),
    "small": topic_image("small", 1, {"max.message.bytes": "1000"}),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker"), TOPICS) as running:
        yield running


@pytest.fixture
def wire(broker: RunningBroker) -> Iterator[Wire]:
    with Wire(broker.port) as connection:
        yield connection


# -- produce and fetch


@pytest.mark.feature("A20", "B07", "C07")
@pytest.mark.parametrize("version", range(3, 14))
def test_every_produce_version_appends(wire: Wire, broker: RunningBroker, version: int) -> None:
    topic = "" if version >= 13 else "t"
    before = end_of(wire, "t")
    result = wire.produce(topic, batch(b"a", b"b"), version=version, topic_id=topic_id_of("t"))
    assert (result.error_code, result.base_offset) == (0, before)
    assert end_of(wire, "t") == before + 2


@pytest.mark.feature("A02", "D01", "D03")
@pytest.mark.parametrize("version", range(4, 19))
def test_every_fetch_version_reads_what_was_written(wire: Wire, version: int) -> None:
    start = wire.produce("t", batch(b"one", b"two"), partition=1).base_offset
    topic = "" if version >= 13 else "t"
    response = wire.fetch((topic, 1, start), version=version, topic_id=topic_id_of("t"))
    (one,) = response.topics[0].partitions
    assert one.result.error_code == 0
    assert records_of(response)[:2] == [b"one", b"two"]
    assert one.result.high_watermark >= start + 2


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_produce_versions_hear_unsupported_version(wire: Wire, version: int) -> None:
    body = produce_body("t", batch(b"x"), version=3)[2:]  # version 3 without transactional id
    answer = wire.ask(ApiKey.PRODUCE, version, body)
    topics, name_size = struct.unpack_from(">ih", answer, 0)
    assert (topics, name_size) == (1, 1)
    _, partition, error = struct.unpack_from(">iih", answer, 7)
    assert (partition, error) == (0, ErrorCode.UNSUPPORTED_VERSION)


@pytest.mark.feature("C06")
def test_acks_0_has_no_answer_and_an_error_closes(wire: Wire, broker: RunningBroker) -> None:
    before = end_of(wire, "t", 2)
    wire.send(ApiKey.PRODUCE, 9, produce_body("t", batch(b"quiet"), partition=2, acks=0))
    assert end_of(wire, "t", 2) == before + 1
    wire.send(ApiKey.PRODUCE, 9, produce_body("none", batch(b"x"), acks=0))
    assert wire.is_closed()


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (b"\0" * 20, ErrorCode.INVALID_RECORD),
        (batch(b"a") + batch(b"b"), ErrorCode.INVALID_RECORD),
        (batch(b"abc")[:-1], ErrorCode.INVALID_RECORD),
        (flipped(batch(b"abc"), 66), ErrorCode.CORRUPT_MESSAGE),
        (flipped(batch(b"abc"), 30), ErrorCode.CORRUPT_MESSAGE),
        (b"\0" * 16 + b"\1" + b"\0" * 60, ErrorCode.INVALID_RECORD),
    ],
    ids=[
        *("null", "empty", "shorter than a header", "two batches", "cut", "a flipped record"),
        *("a flipped header", "magic 1"),
    ],
)
def test_bad_records_are_refused_and_nothing_is_appended(
    wire: Wire, records: bytes | None, code: ErrorCode
) -> None:
    before = end_of(wire, "t")
    result = wire.produce("t", records)
    assert ErrorCode(result.error_code) is code
    assert result.base_offset == -1
    assert end_of(wire, "t") == before


def test_other_refusals(wire: Wire) -> None:
    assert wire.produce("t", batch(b"x"), partition=99).error_code == 3
    assert wire.produce("none", batch(b"x")).error_code == 3
    unknown_id = wire.produce("", batch(b"x"), version=13, topic_id=os.urandom(16))
    assert unknown_id.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert wire.produce("t", batch(b"x"), acks=5).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    large = wire.produce("small", batch(b"x" * 2_000))
    assert large.error_code == ErrorCode.MESSAGE_TOO_LARGE
    zstd = wire.produce("t", batch(b"x", compression=4), version=6)
    assert zstd.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.feature("Y10", "C08")
@pytest.mark.parametrize("acks", [1, -1])
def test_group_commit_answers_once_synced(wire: Wire, broker: RunningBroker, acks: int) -> None:
    result = wire.produce("group", batch(b"safe"), acks=acks)
    assert result.error_code == 0
    log = broker.server.partitions.table.by_name["group", 0].log
    assert broker.call(lambda: log.synced_end) > result.base_offset


def test_log_append_time_is_the_brokers(wire: Wire) -> None:
    result = wire.produce("stamped", batch(b"x", timestamp=5))
    assert result.log_append_time_ms > 1_600_000_000_000
    response = wire.fetch(("stamped", 0, result.base_offset))
    data = response.topics[0].partitions[0].records
    header = read_header(data)
    assert header.is_log_append_time
    assert read_records(data, header)[0].timestamp == result.log_append_time_ms


@pytest.mark.feature("A19")
def test_a_compacted_topic_wants_keys(wire: Wire) -> None:
    refused = wire.produce("compact", batch(b"no key"))
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert "key" in (refused.error_message or "")
    assert wire.produce("compact", batch(b"v", key=b"k")).base_offset == 0


@pytest.mark.parametrize("version", range(3, 14))
def test_every_record_that_is_refused_is_named(wire: Wire, version: int) -> None:
    records = [(Clock().wall_ms(), key, b"v", ()) for key in (b"k", None, b"k", None)]
    topic = "" if version >= 13 else "compact"
    refused = wire.produce(
        topic, build_batch(records), version=version, topic_id=topic_id_of("compact")
    )
    why = "the record has no key, which a compacted topic needs"
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert refused.record_errors == (((1, why), (3, why)) if version >= 8 else ())
    assert (refused.error_message is not None) == (version >= 8)


def test_recompression_keeps_the_order_of_requests(wire: Wire) -> None:
    batches = [
        batch(*[b"%d-%d" % (number, index) for index in range(20)], compression=number % 2 * 4)
        for number in range(12)
    ]
    numbers = [wire.send(ApiKey.PRODUCE, 9, produce_body("zipped", one)) for one in batches]
    offsets = []
    for number in numbers:
        body = wire.receive(ApiKey.PRODUCE, 9, number)
        offsets.append(produce.read_produce_response(body, 9).topics[0][2][0].base_offset)
    assert offsets == [20 * index for index in range(12)]
    response = wire.fetch(("zipped", 0, 0))
    data = response.topics[0].partitions[0].records
    assert {header.compression for _, header in iterate_headers(data)} == {4}
    assert records_of(response)[::20] == [b"%d-0" % number for number in range(12)]


@pytest.mark.feature("K04", "K05", "K06", "K07")
def test_a_repeated_batch_is_acknowledged_with_its_first_offset(wire: Wire) -> None:
    fields: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0}
    one = batch(b"a", base_sequence=0, **fields)
    first = wire.produce("t", one, partition=3).base_offset
    assert wire.produce("t", one, partition=3).base_offset == first
    gap = wire.produce("t", batch(b"z", base_sequence=7, **fields), partition=3)
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert wire.produce("t", batch(b"b", base_sequence=1, **fields), partition=3).error_code == 0


# -- long polls, sessions, bounds of a fetch


@pytest.mark.feature("D04")
def test_a_long_poll_waits_for_bytes_over_several_partitions(
    wire: Wire, broker: RunningBroker
) -> None:
    wanted = [("t", partition, end_of(wire, "t", partition)) for partition in (0, 1)]
    number = wire.send(ApiKey.FETCH, 12, fetch_body(*wanted, wait_ms=2**31 - 1, bytes_min=120))
    with Wire(broker.port) as other:
        other.produce("t", batch(b"x"), partition=0)
        time.sleep(0.05)
        other.produce("t", batch(b"y"), partition=1)
    response = fetch.read_fetch_response(wire.receive(ApiKey.FETCH, 12, number), 12)
    assert sorted(records_of(response), key=str) == [b"x", b"y"]


@pytest.mark.feature("D04")
def test_a_long_poll_ends_at_its_deadline(wire: Wire) -> None:
    end = end_of(wire, "t")
    began = time.monotonic()
    response = wire.fetch(("t", 0, end), wait_ms=100)
    assert records_of(response) == []
    assert time.monotonic() - began >= 0.09


def test_answers_come_in_the_order_of_requests(wire: Wire) -> None:
    end = end_of(wire, "t")
    parked = wire.send(ApiKey.FETCH, 12, fetch_body(("t", 0, end), wait_ms=150))
    behind = [wire.send(ApiKey.PRODUCE, 9, produce_body("t", batch(b"x"), partition=2))]
    behind += [wire.send(ApiKey.API_VERSIONS, 0, b"")]
    wire.receive(ApiKey.FETCH, 12, parked)
    wire.receive(ApiKey.PRODUCE, 9, behind[0])
    wire.receive(ApiKey.API_VERSIONS, 0, behind[1])


def test_a_session_answers_changes_only(wire: Wire) -> None:
    ends = [("t", partition, end_of(wire, "t", partition)) for partition in range(3)]
    opened = wire.fetch(*ends, session=(0, 0))
    assert opened.session_id != 0
    assert len(opened.topics) >= 1
    quiet = wire.fetch(session=(opened.session_id, 1))
    assert quiet.topics == []
    wire.produce("t", batch(b"news"), partition=1)
    news = wire.fetch(session=(opened.session_id, 2))
    assert records_of(news) == [b"news"]
    assert [one.result.partition for one in news.topics[0].partitions] == [1]
    wrong = wire.fetch(session=(opened.session_id, 2))
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    wire.fetch(session=(opened.session_id, -1))
    gone = wire.fetch(session=(opened.session_id, 3))
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.feature("D03")
def test_bytes_max_bounds_all_but_the_first_batch(wire: Wire) -> None:
    large = batch(b"x" * 5_000)
    starts = [
        ("t", partition, wire.produce("t", large, partition=partition).base_offset)
        for partition in (0, 1)
    ]
    response = wire.fetch(*starts, bytes_max=100)
    sizes = [one.result.records_bytes for topic in response.topics for one in topic.partitions]
    assert sizes == [len(large), 0]
    whole = wire.fetch(*starts, partition_bytes_max=1)
    sizes = [one.result.records_bytes for topic in whole.topics for one in topic.partitions]
    assert sizes == [len(large), len(large)] or sizes == [len(large), 0]


def test_offsets_outside_the_log_and_wrong_epochs(wire: Wire) -> None:
    end = end_of(wire, "t")
    for offset, epoch, code in (
        (end + 1, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-1, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (end, 9, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (end, 0, ErrorCode.NONE),
    ):
        response = wire.fetch(("t", 0, offset), leader_epoch=epoch, wait_ms=0)
        assert response.topics[0].partitions[0].result.error_code == code, (offset, epoch)


# -- the other hot APIs


def test_list_offsets_by_mark_and_time(broker: RunningBroker, tmp_path: Path) -> None:
    with running_broker(tmp_path, {"times": 1}) as own, Wire(own.port) as wire:
        day = Clock().wall_ms() - 3_600_000
        wire.produce("times", batch(b"a", timestamp=day))
        wire.produce("times", batch(b"c", b"d", timestamp=day + 9_000))
        wire.produce("times", batch(b"b", timestamp=day + 5_000))
        assert wire.offset("times", 0, -1).offset == 4
        assert wire.offset("times", 0, -2).offset == 0
        assert wire.offset("times", 0, -4, version=8).offset == 0
        latest = wire.offset("times", 0, -3)
        assert (latest.offset, latest.timestamp) == (1, day + 9_000)
        found = wire.offset("times", 0, day + 1)
        assert (found.offset, found.timestamp, found.leader_epoch) == (1, day + 9_000, 0)
        assert wire.offset("times", 0, day + 9_001).offset == -1
        assert wire.offset("none", 0, -1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.feature("Y01")
@pytest.mark.parametrize("version", range(5))
def test_api_versions_names_what_is_served(wire: Wire, version: int) -> None:
    request = api_versions.ApiVersionsRequest("tests", "1.0")
    body = wire.ask(
        ApiKey.API_VERSIONS, version, api_versions.write_api_versions_request(version, request)
    )
    response = api_versions.read_api_versions_response(body, version)
    served = {one.api_key: (one.min_version, one.max_version) for one in response.api_versions}
    assert response.error_code == 0
    assert served[ApiKey.PRODUCE] == (0, 13)
    assert served[ApiKey.FETCH] == (4, 18)
    assert served[ApiKey.END_TXN] == (0, 5)
    assert served[ApiKey.CREATE_ACLS] == (1, 3)
    assert ApiKey.READ_SHARE_GROUP_STATE not in served, "that is gRPC between services"
    features = [tuple(one) for one in response.finalized_features]
    finalized = [
        ("group.version", 1, 1),
        ("share.version", 1, 1),
        ("transaction.version", 2, 2),
    ]
    assert features == (finalized if version >= 3 else [])


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(wire: Wire) -> None:
    number = wire.send(ApiKey.API_VERSIONS, 99, b"")
    frame = memoryview(wire.receive_frame())
    assert struct.unpack_from(">i", frame)[0] == number
    response = api_versions.read_api_versions_response(frame[4:], 0)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert len(response.api_versions) > 10


@pytest.mark.feature("A13")
@pytest.mark.parametrize("version", range(14))
def test_metadata_names_brokers_topics_and_leaders(
    wire: Wire, broker: RunningBroker, version: int
) -> None:
    response = wire.metadata("t", version=version)
    assert [(one.node_id, one.port) for one in response.brokers] == [(1, broker.port)]
    (topic,) = response.topics
    assert (topic.error_code, topic.topic, len(topic.partitions)) == (0, "t", 4)
    assert {one.leader_id for one in topic.partitions} == {1}


@pytest.mark.feature("Y01")
def test_metadata_describe_a_topic_once_however_often_it_is_named(wire: Wire) -> None:
    wire.metadata("named-often", create=True)
    found = wire.metadata(*["named-often"] * 1_000, "nothing", "nothing").topics
    assert [one.topic for one in found] == ["named-often", "nothing"]


def test_metadata_of_what_is_not_there(wire: Wire) -> None:
    unknown, bad = wire.metadata("nothing", "no good").topics
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert bad.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    made = wire.metadata("made-by-asking", create=True).topics[0]
    assert (made.error_code, len(made.partitions)) == (0, 1)


def test_a_deleted_and_recreated_topic_never_serves_the_old_data(
    wire: Wire, broker: RunningBroker
) -> None:
    old = topic_image("phoenix", 1)
    broker.publish(ClusterDelta(topics_changed=(old,)))
    wire.produce("phoenix", batch(b"old"))
    new = topic_image("phoenix", 1, generation=1)
    broker.publish(ClusterDelta(topics_changed=(new,), topics_deleted=(old.topic_id,)))
    assert end_of(wire, "phoenix") == 0
    stale = wire.fetch(("", 0, 0), version=13, topic_id=old.topic_id)
    code = stale.topics[0].partitions[0].result.error_code
    assert code == ErrorCode.UNKNOWN_TOPIC_ID
