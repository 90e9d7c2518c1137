"""Requests of one connection take effect in the order in which they were sent, all in one write."""

import itertools
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from broker.core.parked import READ, WRITE
from e2e.broker_harness import RunningBroker, running_broker, topic_image
from e2e.kafka_wire import NO_ID, Wire, batch, fetch_body, produce_body, records_of
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.kafka import fetch, list_offsets, long_tail, metadata, produce
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.headers import read_response_header, request_header
from tidemark.model.errors import ErrorCode
from waiting import wait_for

pytestmark = pytest.mark.e2e

LATEST, EARLIEST = -1, -2
COMPACTED = {"cleanup.policy": "compact"}
"""A worker looks at each batch's keys before it is appended."""
ROUNDS = 10


class Request(NamedTuple):
    """One request, and what is asked of its answer."""

    api_key: ApiKey
    version: int
    body: bytes
    read: Callable[[memoryview], Any]


def burst(port: int, requests: list[Request]) -> list[Any]:
    """Send all in one write; what their answers say, in order."""
    with Wire(port) as wire:
        return [answer(wire, one) for one in send(wire, requests)]


def send(wire: Wire, requests: list[Request]) -> list[Request]:
    frames = [request_header(one.api_key, one.version, 7, "burst") + one.body for one in requests]
    wire.socket.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
    return requests


def answer(wire: Wire, request: Request) -> Any:
    frame = memoryview(wire.receive_frame())
    _, position = read_response_header(frame, request.api_key, request.version)
    return request.read(frame[position:])


def tail(
    api_key: ApiKey, version: int, fields: dict[str, Any], read: Callable[[Any], Any]
) -> Request:
    body = long_tail.write_request(api_key, version, fields)
    return Request(
        api_key, version, body, lambda data: read(long_tail.read_response(api_key, version, data))
    )


def write(topic: str, *, acks: int = 1) -> Request:
    body = produce_body(topic, batch(b"value", key=b"key"), acks=acks, timeout_ms=30_000)

    def base_offset(data: memoryview) -> int:
        result = produce.read_produce_response(data, 9).topics[0][2][0]
        assert result.error_code == 0
        return result.base_offset

    return Request(ApiKey.PRODUCE, 9, body, base_offset)


def offset_of(topic: str, mark: int) -> Request:
    asked = [list_offsets.ListOffsetsPartition(0, mark)]
    request = list_offsets.ListOffsetsRequest(-1, 0, [list_offsets.ListOffsetsTopic(topic, asked)])
    return Request(
        ApiKey.LIST_OFFSETS,
        7,
        list_offsets.write_list_offsets_request(7, request),
        lambda data: list_offsets.read_list_offsets_response(data, 7).topics[0][1][0].offset,
    )


def delete_records(topic: str, offset: int) -> Request:
    partition = {"partition_index": 0, "offset": offset}
    fields = {"topics": [{"name": topic, "partitions": [partition]}], "timeout": 5_000}
    return tail(
        ApiKey.DELETE_RECORDS, 2, fields, lambda it: it.topics[0].partitions[0].low_watermark
    )


def create(topic: str) -> Request:
    made = {"name": topic, "num_partitions": 1, "replication_factor": 1}
    topics = [made | {"assignments": [], "configs": []}]
    fields = {"topics": topics, "timeout": 5_000, "validate_only": False}
    return tail(ApiKey.CREATE_TOPICS, 5, fields, lambda it: it.topics[0].error_code)


def describe(topic: str) -> Request:
    request = metadata.MetadataRequest(
        [metadata.MetadataQuery(topic)], allow_auto_topic_creation=False
    )
    return Request(
        ApiKey.METADATA,
        12,
        metadata.write_metadata_request(12, request),
        lambda data: metadata.read_metadata_response(data, 12).topics[0].error_code,
    )


def read_all(topic: str, offset: int, *, wait_ms: int = 0) -> Request:
    body = fetch_body((topic, 0, offset), wait_ms=wait_ms, topic_id=NO_ID)
    return Request(
        ApiKey.FETCH, 12, body, lambda data: len(records_of(fetch.read_fetch_response(data, 12)))
    )


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    topics = {"cut": 1, "quiet": 1, "plain": 1}
    compacted = {name: topic_image(name, 1, COMPACTED) for name in ("keyed", "compacted")}
    slow = topic_image("slow", 1, {"flush": "group"})
    with running_broker(
        tmp_path_factory.mktemp("broker"), topics | compacted | {"slow": slow}
    ) as running:
        yield running


def test_offsets_are_those_after_records_were_deleted(broker: RunningBroker) -> None:
    for number in range(1, ROUNDS + 1):
        requests = [write("cut"), delete_records("cut", number), offset_of("cut", EARLIEST)]
        assert burst(broker.port, requests) == [number - 1, number, number]


def test_metadata_knows_the_topic_that_was_just_created(broker: RunningBroker) -> None:
    for number in range(ROUNDS):
        name = f"made-{number}"
        assert burst(broker.port, [create(name), describe(name), write(name)]) == [0, 0, 0]


def test_what_a_worker_looks_at_is_there_for_the_next_request(broker: RunningBroker) -> None:
    for number in range(ROUNDS):
        requests = [
            write("keyed"),
            offset_of("keyed", LATEST),
            write("keyed"),
            read_all("keyed", 0),
        ]
        found = burst(broker.port, requests)
        assert found == [2 * number, 2 * number + 1, 2 * number + 1, 2 * number + 2]


def test_a_long_poll_holds_up_no_effect(broker: RunningBroker) -> None:
    with Wire(broker.port) as wire:
        waiting, *_ = requests = send(
            wire, [read_all("quiet", 0, wait_ms=600_000), create("later"), write("later")]
        )
        wait_for(
            lambda: broker.call(lambda: "later" in broker.server.metadata.image.topics),
            "the topic is made",
        )
        assert broker.server.partitions.parked.requests.counts[READ] == 1
        burst(broker.port, [write("quiet")])
        assert [answer(wire, one) for one in requests] == [1, 0, 0]
        assert waiting.api_key is ApiKey.FETCH


def test_a_write_that_waits_for_its_acknowledgement_holds_up_no_effect(
    broker: RunningBroker,
) -> None:
    with Wire(broker.port) as wire:
        requests = send(wire, [write("slow", acks=-1), create("meanwhile")])
        assert [answer(wire, one) for one in requests] == [0, 0]
    assert broker.server.partitions.parked.requests.counts[WRITE] == 0


def test_a_client_that_sends_and_ends_is_answered_in_full(broker: RunningBroker) -> None:
    with Wire(broker.port) as wire:
        requests = send(wire, [create("ended"), describe("ended"), describe("ended")])
        wire.socket.shutdown(1)
        assert [answer(wire, one) for one in requests] == [0, 0, 0]
        assert wire.is_closed()


KINDS = (
    *("plain", "compacted", "delete", "create", "describe"),
    *("earliest", "latest", "latest compacted", "read", "read compacted"),
)
STEPS = st.lists(st.sampled_from(KINDS), min_size=2, max_size=40)


class Expected:
    """What requests come to, served one at a time."""

    def __init__(self) -> None:
        self.start = self.end = self.compacted = 0
        self._numbers = itertools.count()
        self._made: dict[str, bool] = {}
        self._name = "none"

    def step(self, kind: str) -> tuple[Request, Any]:
        """One request, and what its answer must say."""
        if kind == "plain":
            self.end += 1
            return write("plain"), self.end - 1
        if kind == "compacted":
            self.compacted += 1
            return write("compacted"), self.compacted - 1
        if kind == "delete":
            self.start = (self.start + self.end + 1) // 2
            return delete_records("plain", self.start), self.start
        if kind == "create":
            self._name = f"topic-{next(self._numbers)}"
            return create(self._name), 0
        return {
            "earliest": (offset_of("plain", EARLIEST), self.start),
            "latest": (offset_of("plain", LATEST), self.end),
            "latest compacted": (offset_of("compacted", LATEST), self.compacted),
            "describe": (describe(self._name), self._known()),
            "read": (read_all("plain", self.start), self.end - self.start),
            "read compacted": (read_all("compacted", 0), self.compacted),
        }[kind]

    def _known(self) -> int:
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return int(missing if self._name == "none" else ErrorCode.NONE)


def test_any_sequence_of_requests_has_the_effects_of_one_after_the_other(
    broker: RunningBroker,
) -> None:
    expected = Expected()

    @settings(max_examples=30, deadline=None)
    @given(STEPS)
    def check(steps: list[str]) -> None:
        requests, answers = zip(*map(expected.step, steps), strict=True)
        assert burst(broker.port, list(requests)) == list(answers)

    check()
