"""A broker whose room for waiting requests is used up, by long polls or by writes that no follower
takes: what needs no room goes on, no answer is an error that is not true, and it stops when told.
"""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from broker.core.parked import READ, WRITE
from broker.shell.broker_server import BrokerServer
from e2e.broker_harness import BROKER, RunningBroker, running_broker, topic_id_of
from e2e.kafka_wire import Wire, batch, fetch_body, produce_body, records_of
from tidemark.kafka import fetch, produce
from tidemark.kafka.apis import ApiKey
from tidemark.model.ids import BrokerId, LeaderEpoch, PartitionEpoch
from tidemark.model.metadata import ClusterDelta, PartitionImage, TopicImage
from waiting import wait_for

pytestmark = pytest.mark.e2e

ABSENT = BrokerId(2)
"""In the ISR of ``held``, and never fetches."""


def held(version: int = 0, isr: tuple[BrokerId, ...] = (BROKER, ABSENT)) -> TopicImage:
    state = PartitionImage(
        0, (BROKER, ABSENT), isr, BROKER, LeaderEpoch(0), PartitionEpoch(version)
    )
    return TopicImage("held", topic_id_of("held"), {}, (state,))


@contextmanager
def narrow_broker(directory: Path, **settings: Any) -> Iterator[tuple[RunningBroker, list[Wire]]]:
    """A broker with little room, and three connections to it."""
    topics: dict[str, int | TopicImage] = {"free": 1, "held": held()}
    with (
        running_broker(directory, topics, replica_lag_time_max_ms=600_000, **settings) as broker,
        ExitStack() as wires,
    ):
        yield broker, [wires.enter_context(Wire(broker.port)) for _ in range(3)]


def until(broker: RunningBroker, holds: Callable[[BrokerServer], bool]) -> None:
    wait_for(lambda: broker.call(lambda: holds(broker.server)), "the broker gets there")


def write(wire: Wire) -> int:
    """Send a write that waits for the absent follower."""
    body = produce_body("held", batch(b"x"), acks=-1, timeout_ms=60_000)
    return wire.send(ApiKey.PRODUCE, 9, body)


def written(wire: Wire, number: int) -> tuple[int, int]:
    """Error code and offset."""
    body = wire.receive(ApiKey.PRODUCE, 9, number)
    result = produce.read_produce_response(body, 9).topics[0][2][0]
    return result.error_code, result.base_offset


def poll(wire: Wire) -> int:
    """Send a long poll that nothing ends."""
    return wire.send(ApiKey.FETCH, 12, fetch_body(("free", 0, 0), wait_ms=600_000))


def reset(wire: Wire) -> None:
    """Go without a word: whoever only ends its side is still answered."""
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.socket.close()


def write_three(broker: RunningBroker, wires: list[Wire]) -> list[int]:
    """One on each connection, in order; there is room for two."""
    numbers = [write(wires[0])]
    until(broker, lambda server: server.partitions.parked.requests.counts[WRITE] == 1)
    numbers.append(write(wires[1]))
    until(broker, lambda server: server.partitions.parked.requests.is_full)
    numbers.append(write(wires[2]))
    until(broker, lambda server: len(server.partitions.parked.requests._room_wanted) == 1)
    return numbers


def test_a_write_without_room_is_appended_once_another_is_answered(tmp_path: Path) -> None:
    with narrow_broker(tmp_path, parked_writes_max=2) as (broker, wires):
        numbers = write_three(broker, wires)
        assert broker.server.partitions.table.by_name["held", 0].partition.log_end == 2
        broker.publish(ClusterDelta(topics_changed=(held(1, (BROKER,)),)))
        answers = [written(*one) for one in zip(wires, numbers, strict=True)]
        assert answers == [(0, 0), (0, 1), (0, 2)]


def test_a_client_that_goes_gives_its_room_to_the_next(tmp_path: Path) -> None:
    with narrow_broker(tmp_path, parked_writes_max=2) as (broker, wires):
        write_three(broker, wires)
        reset(wires[0])
        until(
            broker, lambda server: server.partitions.table.by_name["held", 0].partition.log_end == 3
        )
        reset(wires[2])
        reset(wires[1])
        until(
            broker,
            lambda server: (
                not server.partitions.parked.requests.count
                and not server.partitions.parked.requests._room_wanted
            ),
        )


def test_full_writes_hold_up_no_write_that_need_not_wait_and_no_read(tmp_path: Path) -> None:
    with narrow_broker(tmp_path, parked_writes_max=2) as (broker, wires):
        write_three(broker, wires)
        with Wire(broker.port) as other:
            assert other.produce("free", batch(b"y"), acks=-1).error_code == 0
            assert other.produce("held", batch(b"y"), acks=1).base_offset == 2
            assert records_of(other.fetch(("free", 0, 0))) == [b"y"]


def test_long_polls_beyond_their_room_are_answered_at_once_and_writes_wait(tmp_path: Path) -> None:
    with narrow_broker(tmp_path, parked_requests_max=2) as (broker, wires):
        for wire in wires[:2]:
            poll(wire)
        until(broker, lambda server: server.partitions.parked.requests.counts[READ] == 2)
        body = wires[2].receive(ApiKey.FETCH, 12, poll(wires[2]))
        assert records_of(fetch.read_fetch_response(body, 12)) == []
        number = write(wires[2])
        until(broker, lambda server: server.partitions.parked.requests.counts[WRITE] == 1)
        broker.publish(ClusterDelta(topics_changed=(held(1, (BROKER,)),)))
        assert written(wires[2], number) == (0, 0)


def test_a_broker_that_is_full_of_all_stops_in_order(tmp_path: Path) -> None:
    settings = {"parked_writes_max": 2, "parked_requests_max": 1}
    with narrow_broker(tmp_path, **settings) as (broker, wires), Wire(broker.port) as reader:
        poll(reader)
        until(broker, lambda server: server.partitions.parked.requests.counts[READ] == 1)
        write_three(broker, wires)
        broker.stop()
        assert wires[2].is_closed()
    assert (tmp_path / "clean-shutdown").exists()
