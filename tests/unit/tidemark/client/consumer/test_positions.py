import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark.client.consumer.fetched_chunk import FetchedChunk, ReadOptions
from tidemark.client.consumer.positions import PartitionState
from tidemark.client.errors import CorruptBatchError, MessageTooLargeError
from tidemark.client.wire.transport import FetchOutcome
from tidemark.codec.control_record import EndTxnMarker, build_marker
from tidemark.codec.record_batch import (
    TRANSACTIONAL_BIT,
    read_header,
    set_base_offset_and_epoch,
)
from tidemark.codec.records import build_batch
from tidemark.model.ids import LeaderEpoch, Offset
from tidemark.model.topics import TopicPartition

PARTITION = TopicPartition("t", 3)
COMMITTED = ReadOptions(read_committed=True)


def batch(base_offset: int, count: int, **fields: int) -> bytes:
    records = [
        (1_000 + number, None, b"%d" % (base_offset + number), ()) for number in range(count)
    ]
    return build_batch(records, base_offset=base_offset, **fields)


def outcome(offset: int, records: bytes, **fields: int) -> FetchOutcome:
    return FetchOutcome(PARTITION, offset, 0, 99, 99, 0, memoryview(records))


def state_at(offset: int) -> PartitionState:
    state = PartitionState(PARTITION, None)
    state.seek(offset)
    return state


def fetched(state: PartitionState, records: bytes, options: ReadOptions = ReadOptions()) -> None:  # noqa: B008
    offset = state.fetch_position
    assert offset is not None
    state.on_fetched(state.generation, outcome(offset, records), options)


def offsets(state: PartitionState, records_max: int = 1_000) -> list[int]:
    return [record.offset for record in state.take(records_max)]


@pytest.mark.feature("A02", "D03")
def test_records_come_from_the_position_even_inside_a_batch() -> None:
    state = state_at(2)
    fetched(state, batch(0, 4) + batch(4, 2))
    assert offsets(state) == [2, 3, 4, 5]
    assert (state.position, state.fetch_position) == (6, 6)


def test_a_record_carries_where_it_came_from() -> None:
    state = state_at(0)
    fetched(state, build_batch([(7, b"k", b"v", [("h", None)])]))
    assert state.take(1) == [("t", 3, 0, 7, b"k", b"v", (("h", None),))]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(1, 7), st.integers(0, 10))
def test_however_few_are_taken_at_a_time_all_come_once(
    counts: list[int], at_a_time: int, start: int
) -> None:
    stream, end = b"", 0
    for count in counts:
        stream, end = stream + batch(end, count), end + count
    state, taken = state_at(min(start, end - 1)), []
    fetched(state, stream)
    while state.has_records and (some := offsets(state, at_a_time)):
        assert len(some) <= at_a_time
        taken += some
        assert state.position == taken[-1] + 1
        state.check()
    assert taken == list(range(min(start, end - 1), end))


def test_what_was_taken_of_a_batch_may_be_put_back() -> None:
    state = state_at(0)
    fetched(state, batch(0, 4) + batch(4, 2))
    assert offsets(state, 1) == [0]
    lent = state.take_decoded(1_000)
    assert [record.offset for record in lent] == [1, 2, 3], "of the next batch nothing"
    assert state.position == 4
    assert state.put_back(lent[1:])
    assert state.position == 2
    state.check()
    assert offsets(state) == [2, 3, 4, 5]


def test_what_was_taken_before_the_position_moved_is_not_put_back() -> None:
    state = state_at(0)
    fetched(state, batch(0, 4) + batch(4, 4))
    lent = state.take(1) + state.take_decoded(3)
    assert offsets(state, 4) == [4, 5, 6, 7]
    assert not state.put_back(lent[1:])
    state.seek(3)
    assert not state.put_back(lent[1:])
    assert state.position == 3


def test_a_batch_cut_at_the_end_is_fetched_again() -> None:
    state = state_at(0)
    fetched(state, batch(0, 2) + batch(2, 2)[:-1])
    assert offsets(state) == [0, 1]
    assert state.fetch_position == 2


def test_a_batch_that_does_not_fit_at_all_is_an_error() -> None:
    with pytest.raises(MessageTooLargeError, match="raise max_partition_fetch_bytes"):
        fetched(state_at(0), batch(0, 2)[:-1])


@pytest.mark.feature("A18")
def test_a_seek_drops_what_was_fetched_and_what_is_under_way() -> None:
    state = state_at(0)
    before = state.generation
    fetched(state, batch(0, 4))
    state.seek(1)
    state.on_fetched(before, outcome(4, batch(4, 2)), ReadOptions())
    assert not state.has_records
    fetched(state, batch(0, 4))
    assert offsets(state) == [1, 2, 3]


def test_a_lookup_overtaken_by_a_seek_is_dropped() -> None:
    state = PartitionState(PARTITION, -1)
    assert state.wants_lookup(0)
    before = state.generation
    state.seek(7)
    state.on_looked_up(before, 100)
    assert state.position == 7
    state.seek_by(-2)
    assert state.wants_lookup(0)


def test_pausing_keeps_what_is_buffered() -> None:
    state = state_at(0)
    fetched(state, batch(0, 2))
    state.paused = True
    assert not state.has_records
    assert not state.wants_fetch(0, 1_000)
    state.paused = False
    assert offsets(state) == [0, 1]


def test_holes_left_by_compaction_are_stepped_over() -> None:
    state = state_at(0)
    holed = bytearray(batch(0, 2))
    set_base_offset_and_epoch(holed, 0, Offset(5), LeaderEpoch(0))
    fetched(state, bytes(holed))
    assert offsets(state) == [5, 6]


def test_a_flipped_bit_is_found_and_says_how_to_go_on() -> None:
    damaged = bytearray(batch(0, 2))
    damaged[-1] ^= 1
    state = state_at(0)
    fetched(state, bytes(damaged) + batch(2, 1))
    with pytest.raises(CorruptBatchError, match="seek to 2"):
        state.take(10)


def test_bytes_that_are_no_batch_are_refused() -> None:
    with pytest.raises(CorruptBatchError):
        FetchedChunk(PARTITION, memoryview(bytes(100)), ReadOptions())


def test_control_batches_are_never_seen() -> None:
    marker = build_marker(EndTxnMarker(True, 0), producer_id=7, producer_epoch=0, timestamp=0)
    shifted = bytearray(marker)
    set_base_offset_and_epoch(shifted, 0, Offset(1), LeaderEpoch(0))
    state = state_at(0)
    fetched(state, batch(0, 1) + bytes(shifted))
    assert offsets(state) == [0]
    assert offsets(state) == []
    assert state.position == 2


def test_read_committed_leaves_aborted_transactions_out() -> None:
    transactional = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    aborted = batch(0, 2, attributes_extra=TRANSACTIONAL_BIT, **transactional)
    marker = bytearray(
        build_marker(EndTxnMarker(False, 0), producer_id=7, producer_epoch=0, timestamp=0)
    )
    set_base_offset_and_epoch(marker, 0, Offset(2), LeaderEpoch(0))
    committed = batch(3, 1, attributes_extra=TRANSACTIONAL_BIT, **transactional)
    chunk = FetchedChunk(
        PARTITION, memoryview(aborted + bytes(marker) + committed), COMMITTED, [(7, 0)]
    )
    seen = []
    while (decoded := chunk.next_batch()) is not None:
        seen += [record.offset for record in decoded[1]]
    assert seen == [3]


def test_reading_ahead_stops_at_its_bound() -> None:
    state = state_at(0)
    records = batch(0, 2)
    assert state.wants_fetch(0, len(records))
    fetched(state, records)
    assert not state.wants_fetch(0, len(records))
    assert read_header(records).record_count == len(state.take(10))


# -- truncation


def in_epoch(epoch: int, base_offset: int, count: int) -> bytes:
    stamped = bytearray(batch(base_offset, count))
    set_base_offset_and_epoch(stamped, 0, Offset(base_offset), LeaderEpoch(epoch))
    return bytes(stamped)


def read_to(end: int, *, epoch: int = 3) -> PartitionState:
    """Offsets below ``end`` are returned; the next two are in memory, of the next epoch."""
    state = state_at(0)
    assert state.validation(epoch) is None, "nothing was read yet"
    fetched(state, in_epoch(epoch, 0, end))
    offsets(state)
    fetched(state, in_epoch(epoch + 1, end, 2))
    return state


def test_what_was_read_is_compared_once_with_each_new_leader() -> None:
    state = read_to(5)
    assert state.validation(3) is None
    asked = state.validation(6)
    assert asked == (state.generation, 7, 4, 6)
    assert not state.on_validated(asked, 4, 7)
    assert state.validation(6) is None
    assert offsets(state) == [5, 6]
    assert state.position_epoch == 4


def test_records_in_memory_that_were_replaced_are_dropped_and_no_loss() -> None:
    state = read_to(5)
    asked = state.validation(6)
    assert asked is not None
    assert not state.on_validated(asked, 3, 6)
    assert not state.has_records
    again = state.validation(6)
    assert again == (state.generation, 5, 3, 6)
    assert not state.on_validated(again, 3, 6)
    assert state.validation(6) is None


@pytest.mark.parametrize("found", [(3, 4), (2, 4), (-1, -1)])
def test_records_that_were_returned_and_replaced_are_a_truncation(found: tuple[int, int]) -> None:
    state = state_at(0)
    fetched(state, in_epoch(3, 0, 5))
    offsets(state)
    asked = state.validation(6)
    assert asked is not None
    assert state.on_validated(asked, *found)


def test_a_comparison_that_a_seek_overtook_is_dropped() -> None:
    state = read_to(5)
    asked = state.validation(6)
    assert asked is not None
    state.seek(1)
    assert not state.on_validated(asked, -1, -1)
    assert state.validation(6) is None, "no record was read at this position"
