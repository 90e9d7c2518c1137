"""Traces are found in produced records, within bounds."""

import os
from typing import Any

import pytest
from broker.shell.listener.traced_router import BATCH_BYTES_MAX, LINKS_MAX, traceparents
from tidemark.codec.records import build_batch
from tidemark.kafka.produce import ProduceRequest, ProduceTopic
from tidemark.model.ids import NO_TOPIC_ID


def request(*batches: bytes | None) -> ProduceRequest:
    partitions: Any = [
        (number, None if batch is None else memoryview(bytearray(batch)))
        for number, batch in enumerate(batches)
    ]
    return ProduceRequest(None, 1, 1_000, [ProduceTopic("t", NO_TOPIC_ID, partitions)])


def batch(*traces: str, size: int = 1, compression: int = 0) -> bytes:
    records = [(0, None, os.urandom(size), (("traceparent", one.encode()),)) for one in traces]
    return build_batch(records, compression=compression)


@pytest.mark.parametrize("compression", [0, 1, 4])
def test_each_trace_is_found_once(compression: int) -> None:
    produced = request(batch("a", "b", "a", compression=compression), None, batch("c"))
    assert traceparents(produced) == ["a", "b", "c"]


def test_the_number_of_traces_is_bounded() -> None:
    found = traceparents(request(batch(*map(str, range(LINKS_MAX * 2)))))
    assert found == [str(number) for number in range(LINKS_MAX)]


def test_a_large_batch_is_not_looked_into() -> None:
    assert traceparents(request(batch("a", size=BATCH_BYTES_MAX))) == []


def test_a_batch_that_is_large_when_decompressed_is_not_looked_into() -> None:
    bomb = build_batch([(0, None, bytes(BATCH_BYTES_MAX), (("traceparent", b"a"),))], compression=4)
    assert len(bomb) < BATCH_BYTES_MAX
    assert traceparents(request(bomb, batch("b"))) == ["b"]


def test_bytes_that_are_no_batch_are_left_to_the_handler() -> None:
    assert traceparents(request(b"", b"x" * 80)) == []
