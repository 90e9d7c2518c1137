"""What a read_committed consumer delivers, with and without reading ahead, against a model that
knows how every transaction ended.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.client.consumer.fetched_chunk import ReadOptions
from tidemark.client.consumer.positions import PartitionState
from tidemark.client.wire.transport import FetchOutcome
from tidemark.codec.control_record import EndTxnMarker, build_marker
from tidemark.codec.record_batch import (
    TRANSACTIONAL_BIT,
    iterate_headers,
    read_header,
    set_base_offset_and_epoch,
)
from tidemark.codec.records import build_batch
from tidemark.model.ids import LeaderEpoch, Offset
from tidemark.model.topics import TopicPartition

PARTITION = TopicPartition("t", 0)
AHEAD_BYTES = 600


class Log:
    """A partition as its leader has it, and what a reader should see of it."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end = 0
        self.open: dict[int, int] = {}
        self.unknown: dict[int, list[int]] = {}
        self.aborted: list[tuple[int, int, int]] = []
        self.visible: set[int] = set()

    @property
    def last_stable(self) -> int:
        return min(self.open.values(), default=self.end)

    def write(self, producer: int | None, count: int) -> None:
        offsets = range(self.end, self.end + count)
        transactional = producer is not None
        if producer is None:
            self.visible.update(offsets)
        else:
            self.open.setdefault(producer, self.end)
            self.unknown.setdefault(producer, []).extend(offsets)
        batch = build_batch(
            [(0, None, b"v", ())] * count,
            producer_id=-1 if producer is None else producer,
            producer_epoch=0 if transactional else -1,
            base_sequence=0 if transactional else -1,
            attributes_extra=TRANSACTIONAL_BIT if transactional else 0,
        )
        self._append(batch, count)

    def finish(self, producer: int, *, commit: bool) -> None:
        if producer not in self.open:
            return
        first = self.open.pop(producer)
        offsets = self.unknown.pop(producer)
        if commit:
            self.visible.update(offsets)
        else:
            self.aborted.append((producer, first, self.end))
        marker = EndTxnMarker(commit, 0)
        self._append(build_marker(marker, producer_id=producer, producer_epoch=0, timestamp=0), 1)

    def fetch(self, offset: int, *, committed: bool, batches_max: int) -> FetchOutcome:
        limit = self.last_stable if committed else self.end
        found = [b for b in self.batches if offset <= read_header(b).last_offset < limit]
        taken = found[:batches_max]
        upper = read_header(taken[-1]).last_offset if taken else offset
        aborted = tuple(
            (producer, first)
            for producer, first, last in self.aborted
            if committed and first <= upper and last >= offset
        )
        view = memoryview(b"".join(taken))
        return FetchOutcome(PARTITION, offset, 0, self.end, self.last_stable, 0, view, aborted)

    def _append(self, batch: bytes, count: int) -> None:
        stamped = bytearray(batch)
        set_base_offset_and_epoch(stamped, 0, Offset(self.end), LeaderEpoch(0))
        self.batches.append(bytes(stamped))
        self.end += count


class Reader:
    """A consumer of one partition; ``ahead`` is read beyond the last stable offset."""

    def __init__(self, log: Log, *, ahead_bytes_max: int) -> None:
        self.log = log
        self.options = ReadOptions(read_committed=True, ahead_bytes_max=ahead_bytes_max)
        self.state = PartitionState(PARTITION, None)
        self.state.seek(0)
        self.got: list[int] = []

    def fetch(self, batches_max: int) -> None:
        state = self.state
        bytes_max = self.options.ahead_bytes_max if state.is_ahead else 10_000
        if state.is_held_up and state.buffered_bytes >= self.options.ahead_bytes_max:
            state.stop_ahead()
        if not state.wants_fetch(0, bytes_max):
            return
        assert state.fetch_position is not None
        outcome = self.log.fetch(
            state.fetch_position, committed=not state.is_ahead, batches_max=batches_max
        )
        state.on_fetched(state.generation, outcome, self.options)
        state.check()

    def take(self, count: int) -> None:
        self.got += [record.offset for record in self.state.take(count)]
        self.state.check()

    def catch_up(self) -> None:
        for _ in range(4 * len(self.log.batches) + 8):
            self.fetch(3)
            self.take(1_000)


PRODUCERS = st.integers(1, 3)
Acts = list[tuple[str, int | None, int]]
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.none() | PRODUCERS, st.integers(1, 3)),
        st.tuples(st.sampled_from(["commit", "abort"]), PRODUCERS, st.just(0)),
        st.tuples(st.sampled_from(["fetch", "take"]), st.none(), st.integers(1, 4)),
    ),
    max_size=60,
)


def play(acts: Acts, *, ahead_bytes_max: int, eagerness: int = 0) -> tuple[Log, Reader]:
    log = Log()
    reader = Reader(log, ahead_bytes_max=ahead_bytes_max)
    for what, producer, number in acts:
        if what == "write":
            log.write(producer, number)
        elif what in ("commit", "abort"):
            assert producer is not None
            log.finish(producer, commit=what == "commit")
        elif what == "fetch":
            reader.fetch(number)
        else:
            reader.take(number)
        for _ in range(eagerness):
            reader.fetch(2)
            reader.take(1)
        assert set(reader.got) <= log.visible, "nothing open or aborted, at any time"
    return log, reader


@pytest.mark.feature("M01", "M06")
@settings(max_examples=150)
@given(ACTS)
def test_read_committed_delivers_what_the_model_says(
    acts: list[tuple[str, int | None, int]],
) -> None:
    log, reader = play(acts, ahead_bytes_max=0)
    reader.catch_up()
    assert reader.got == sorted(each for each in log.visible if each < log.last_stable)


@pytest.mark.feature("M03")
@settings(max_examples=150)
@given(ACTS, st.sampled_from([200, AHEAD_BYTES, 100_000]), st.integers(0, 3), st.booleans())
def test_reading_ahead_delivers_the_same_in_order(
    acts: Acts, ahead_bytes_max: int, eagerness: int, commit: bool
) -> None:
    log, reader = play(acts, ahead_bytes_max=ahead_bytes_max, eagerness=eagerness)
    for producer in list(log.open):
        log.finish(producer, commit=commit)
    reader.catch_up()
    assert reader.got == sorted(log.visible)
    assert reader.state.position == log.end


@pytest.mark.feature("M03")
def test_records_of_a_transaction_are_there_with_its_marker_and_not_before() -> None:
    log = Log()
    reader = Reader(log, ahead_bytes_max=100_000)
    log.write(None, 1)
    log.write(7, 2)
    log.write(None, 1)
    reader.catch_up()
    assert reader.got == [0]
    assert reader.state.buffered_bytes > 0, "fetched, and held back"
    log.finish(7, commit=True)
    reader.fetch(10)
    reader.take(10)
    assert reader.got == [0, 1, 2, 3], "one fetch, of the marker alone, brought them all"


@pytest.mark.feature("M03")
def test_what_is_held_back_is_bounded() -> None:
    log = Log()
    reader = Reader(log, ahead_bytes_max=AHEAD_BYTES)
    log.write(7, 1)
    for _ in range(50):
        log.write(8, 3)
        reader.fetch(1)
        assert reader.state.buffered_bytes < AHEAD_BYTES + 200
    log.finish(8, commit=False)
    log.finish(7, commit=True)
    reader.catch_up()
    assert reader.got == [0]


def test_without_room_it_waits_for_the_last_stable_offset_to_move() -> None:
    log = Log()
    reader = Reader(log, ahead_bytes_max=AHEAD_BYTES)
    for _ in range(20):
        log.write(7, 2)
    reader.catch_up()
    for _ in range(3):
        reader.fetch(3)
        assert (reader.state.is_ahead, reader.state.buffered_bytes) == (False, 0)
    log.finish(7, commit=True)
    log.write(8, 1)
    reader.catch_up()
    assert len(reader.got) == 40
    assert reader.state.is_ahead


def test_a_marker_that_compaction_took_holds_nothing_up() -> None:
    log = Log()
    reader = Reader(log, ahead_bytes_max=100_000)
    log.write(7, 2)
    reader.catch_up()
    log.finish(7, commit=False)
    log.write(None, 1)
    log.batches = [batch for batch in log.batches if not is_control(batch)]
    reader.catch_up()
    assert reader.got == [3]


def is_control(batch: bytes) -> bool:
    return any(header.is_control for _, header in iterate_headers(batch))
