"""A broker against frames of every size and kind: hostile, large, many, slow; and the bounds of its
connections.
"""

import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from e2e.broker_harness import RunningBroker, running_broker, topic_image
from e2e.kafka_wire import Wire, batch, end_of, fetch_body, produce_body, records_of
from tidemark.kafka import fetch, produce
from tidemark.kafka.apis import APIS, ApiKey
from waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker"), {"t": 4}) as running:
        yield running


@pytest.fixture
def wire(broker: RunningBroker) -> Iterator[Wire]:
    with Wire(broker.port) as connection:
        yield connection


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">ihhih", 30, 0, 9, 1, 30_000) + b"x" * 20,
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 14, 3, 1, 1, -1) + b"\x7f\xff\xff\xff",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_hostile_frames_close_their_connection_alone(
    broker: RunningBroker, wire: Wire, data: bytes
) -> None:
    with Wire(broker.port) as hostile:
        hostile.socket.sendall(data)
        assert hostile.is_closed()
    assert wire.metadata("t").topics[0].error_code == 0


def test_frames_of_any_size_in_pieces_of_any_size(wire: Wire) -> None:
    for size in (1, 60_000, 200_000, 600_000, 900_000, 10):
        one = batch(os.urandom(size))
        frame_number = wire.send(ApiKey.PRODUCE, 9, produce_body("t", one))
        body = wire.receive(ApiKey.PRODUCE, 9, frame_number)
        result = produce.read_produce_response(body, 9).topics[0][2][0]
        assert result.error_code == 0
        response = wire.fetch(("t", 0, result.base_offset), partition_bytes_max=1 << 21)
        data = bytes(response.topics[0].partitions[0].records)
        assert data[61:] == one[61:]


def test_many_pipelined_requests_of_mixed_sizes(broker: RunningBroker) -> None:
    with Wire(broker.port) as wire:
        before = end_of(wire, "t")
        sizes = [10, 100_000, 50, 300_000, 5_000] * 20
        numbers: list[int] = []

        def send() -> None:
            for size in sizes:
                body = produce_body("t", batch(bytes(size)))
                numbers.append(wire.send(ApiKey.PRODUCE, 9, body))

        sender = threading.Thread(target=send)
        sender.start()
        answered = [struct.unpack_from(">i", wire.receive_frame())[0] for _ in sizes]
        sender.join()
        assert answered == numbers
        assert end_of(wire, "t") == before + len(sizes)


def test_a_reader_that_does_not_read_is_bounded_and_harms_nobody(
    broker: RunningBroker, wire: Wire
) -> None:
    start = wire.produce("t", batch(os.urandom(900_000))).base_offset
    with Wire(broker.port) as lazy:
        numbers = [lazy.send(ApiKey.FETCH, 12, fetch_body(("t", 0, start))) for _ in range(40)]
        assert wire.metadata("t").topics[0].error_code == 0
        for number in numbers:
            body = lazy.receive(ApiKey.FETCH, 12, number)
            assert len(records_of(fetch.read_fetch_response(body, 12))) >= 1


def test_connections_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    with running_broker(tmp_path, {"t": 1}, max_connections_per_ip=2) as small:
        with Wire(small.port) as one, Wire(small.port) as two, Wire(small.port) as three:
            assert one.metadata("t").topics[0].error_code == 0
            assert two.metadata("t").topics[0].error_code == 0
            assert three.is_closed()
        assert small.server.counters.connections_refused == 1


def test_idle_connections_are_closed(tmp_path: Path) -> None:
    with running_broker(tmp_path, {"t": 1}, connections_max_idle_ms=1_000) as small:
        with Wire(small.port) as quiet:
            assert quiet.is_closed()
        assert small.server.counters.closed_idle == 1


def test_large_frames_take_turns_when_buffers_are_full(tmp_path: Path) -> None:
    with running_broker(
        tmp_path,
        {"t": topic_image("t", 4, {"max.message.bytes": "3000000"})},
        buffers_max_bytes=1 << 20,
    ) as small:

        def produce_large(partition: int, results: list[int]) -> None:
            with Wire(small.port) as wire:
                for _ in range(4):
                    one = batch(os.urandom(1_500_000))
                    results.append(wire.produce("t", one, partition=partition).error_code)

        results: list[int] = []
        threads = [
            threading.Thread(target=produce_large, args=(number, results)) for number in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert results == [0] * 16
        wait_for(lambda: small.server.limits.connections == 0, "all are closed")
        assert not small.server.limits.contended


def test_frames_that_never_end_do_not_keep_others_out(tmp_path: Path) -> None:
    """Six connections have sent all but the last bytes of a large frame, and trickle."""
    with (
        running_broker(
            tmp_path,
            {"t": topic_image("t", 1, {"max.message.bytes": "3000000"})},
            buffers_max_bytes=5 << 20,
            frame_deadline_ms=3_000,
            frame_min_bytes_per_s=1 << 30,
        ) as small,
        ExitStack() as closing,
    ):
        slow = [closing.enter_context(Wire(small.port)) for _ in range(6)]
        for one in slow:
            one.socket.sendall(struct.pack(">i", 2 << 20))
            threading.Thread(target=trickle, args=(one, bytes((2 << 20) - 1_000))).start()
        wait_for(lambda: small.server.limits.contended, "the buffers are taken")
        wait_for(lambda: produced(small, os.urandom(1_500_000)), "a large frame is answered")
        wait_for(lambda: small.server.counters.closed_late_frame == len(slow), "all are closed")
        wait_for(lambda: small.server.limits.buffered_bytes == 0, "the buffers are free")


def trickle(wire: Wire, begun: bytes) -> None:
    """Send what a frame begins with, then a byte now and then until the connection is closed."""
    wire.socket.settimeout(PATIENCE_S)
    with suppress(OSError):
        wire.socket.sendall(begun)
        while True:
            wire.socket.sendall(b"x")
            time.sleep(0.5)


def produced(broker: RunningBroker, value: bytes) -> bool:
    with suppress(OSError, EOFError), Wire(broker.port) as wire:
        return wire.produce("t", batch(value)).error_code == 0
    return False


def test_a_client_that_half_closes_still_hears_its_answers(broker: RunningBroker) -> None:
    with Wire(broker.port) as wire:
        number = wire.send(ApiKey.FETCH, 12, fetch_body(("t", 0, end_of(wire, "t")), wait_ms=50))
        wire.socket.shutdown(1)
        wire.receive(ApiKey.FETCH, 12, number)
        assert wire.is_closed()


def test_stopping_answers_what_is_open_and_restarts_clean(tmp_path: Path) -> None:
    with running_broker(tmp_path, {"t": 1}) as first, Wire(first.port) as wire:
        offset = wire.produce("t", batch(b"kept", producer_id=3, producer_epoch=0, base_sequence=0))
        assert offset.base_offset == 0
        parked = wire.send(ApiKey.FETCH, 12, fetch_body(("t", 0, 1), wait_ms=60_000))
        first.call(lambda: None)
        stopper = threading.Timer(0.2, first.stop)
        stopper.start()
        wire.receive(ApiKey.FETCH, 12, parked)
        stopper.join()
    with running_broker(tmp_path, {"t": 1}) as again, Wire(again.port) as wire:
        assert again.server.partitions.disks.log_managers[0].clean_start
        assert records_of(wire.fetch(("t", 0, 0))) == [b"kept"]
        repeat = wire.produce("t", batch(b"kept", producer_id=3, producer_epoch=0, base_sequence=0))
        assert (repeat.error_code, repeat.base_offset) == (0, 0)


def test_malformed_bodies_of_every_served_api_do_no_harm(broker: RunningBroker) -> None:
    """A small cousin of the fuzz test."""
    for api_key, versions in APIS.items():
        with Wire(broker.port) as hostile:
            hostile.send(int(api_key), versions.max, os.urandom(40))
            with suppress(EOFError, ConnectionError):
                hostile.receive_frame()
    with Wire(broker.port) as wire:
        assert wire.metadata("t").topics[0].error_code == 0
