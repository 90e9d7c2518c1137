"""A sink's part of a handle's record."""

from dataclasses import replace

from tidemark.codec.coordinator_fields import FieldReader, FieldWriter
from tidemark.codec.sink_state import SinkState, read_sink, write_sink


def through_bytes(sink: SinkState) -> SinkState:
    writer = FieldWriter(0, flexible=True)
    write_sink(writer, sink)
    return read_sink(FieldReader(writer.done_without_version(), flexible=True))


def test_a_sink_is_read_as_it_was_written() -> None:
    sink = SinkState("q", 8, 7, 2**32 - 1, '{"rows": 3}', ("first", "second"))
    assert through_bytes(sink) == sink
    assert through_bytes(replace(sink, expires=True)) == replace(sink, expires=True)


def test_a_sink_that_has_committed_nothing_is_read_as_it_was_written() -> None:
    assert through_bytes(SinkState("q")) == SinkState("q", -1, -1, 0, "", ())
