"""ListOffsets: offsets at marks, and the search for a time compared with its plain twin."""

from typing import NamedTuple

import pytest
from broker.core.leader_epochs import LeaderEpochs
from broker.core.list_offsets import (
    FoundOffset,
    OffsetSearch,
    Seek,
    at_mark,
    at_replica_mark,
)
from broker.core.partition import LogState, Partition, PartitionLimits
from broker.core.producers import ProducerTable
from hypothesis import given
from hypothesis import strategies as st
from tidemark.codec.record_batch import TRANSACTIONAL_BIT, BatchHeader
from tidemark.kafka.list_offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerId, LeaderEpoch, TopicId
from tidemark.model.topic_configs import topic_config
from tidemark.model.topics import TopicPartition
from unit.broker.core.replicated import lead_in

NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.OFFSET_NOT_AVAILABLE
ME, TWO = BrokerId(1), BrokerId(2)


def a_partition(start: int = 2, watermark: int = 6, end: int = 9) -> Partition:
    """Return a partition whose records were written in epoch 4."""
    epochs = LeaderEpochs()
    epochs.assign(LeaderEpoch(4), 0)
    return Partition(
        TopicPartition("orders", 0),
        TopicId(bytes(16)),
        ME,
        limits=PartitionLimits.of(topic_config({})),
        state=LogState(start, end, end, watermark),
        epochs=epochs,
        producers=ProducerTable(),
    )


def led(start: int = 2, watermark: int = 6, end: int = 6) -> Partition:
    """Return a leader in epoch 5 with a follower that must fetch before the high watermark
    moves.
    """
    made = a_partition(start, watermark, end)
    lead_in(made, 5, (ME, TWO), (ME, TWO))
    return made


def begin_transaction(made: Partition, offset: int) -> None:
    batch = BatchHeader(offset, 88, 5, 2, 0, TRANSACTIONAL_BIT, 0, 5, 5, 7, 0, 0, 1)
    made.producers.appended(batch, offset, 0)


@pytest.mark.parametrize(
    ("mark", "found"),
    [
        (LATEST_TIMESTAMP, FoundOffset(NONE, 6, -1, 5)),
        (EARLIEST_TIMESTAMP, FoundOffset(NONE, 2, -1, 4)),
        (EARLIEST_LOCAL_TIMESTAMP, FoundOffset(NONE, 2, -1, 4)),
        (LATEST_TIERED_TIMESTAMP, FoundOffset()),
        (EARLIEST_PENDING_UPLOAD_TIMESTAMP, FoundOffset()),
        (-7, FoundOffset(ErrorCode.INVALID_REQUEST)),
        (MAX_TIMESTAMP, None),
        (0, None),
    ],
)
def test_each_mark_has_its_offset(mark: int, found: FoundOffset | None) -> None:
    assert at_mark(led(), mark) == found


def test_the_latest_of_a_reader_of_what_is_committed_is_the_last_stable_offset() -> None:
    one = led()
    begin_transaction(one, 3)
    assert at_mark(one, LATEST_TIMESTAMP, read_committed=True) == FoundOffset(NONE, 3, -1, 5)
    assert at_mark(one, LATEST_TIMESTAMP) == FoundOffset(NONE, 6, -1, 5)


def test_a_new_leader_has_no_latest_offset_until_its_watermark_is_known() -> None:
    new = led(watermark=6, end=9)
    assert at_mark(new, LATEST_TIMESTAMP) == FoundOffset(UNKNOWN)
    assert at_mark(new, EARLIEST_TIMESTAMP) == FoundOffset(NONE, 2, -1, 4)


@pytest.mark.parametrize("mark", [LATEST_TIMESTAMP, EARLIEST_TIMESTAMP, MAX_TIMESTAMP, 0])
def test_only_the_leader_of_the_named_epoch_answers(mark: int) -> None:
    older = at_mark(led(), mark, leader_epoch_expected=4)
    newer = at_mark(led(), mark, leader_epoch_expected=6)
    assert older == FoundOffset(ErrorCode.FENCED_LEADER_EPOCH)
    assert newer == FoundOffset(ErrorCode.UNKNOWN_LEADER_EPOCH)
    for expected in (-1, a_partition().leader_epoch):
        other = at_mark(a_partition(), mark, leader_epoch_expected=expected)
        assert other == FoundOffset(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_a_replica_has_a_start_and_an_end_of_its_own() -> None:
    one = a_partition()
    end = FoundOffset(NONE, 9, -1, one.leader_epoch)
    assert at_replica_mark(one, LATEST_TIMESTAMP) == end
    assert at_replica_mark(one, EARLIEST_TIMESTAMP) == FoundOffset(NONE, 2, -1, 4)
    assert at_replica_mark(one, MAX_TIMESTAMP) is None
    ahead = at_replica_mark(one, LATEST_TIMESTAMP, leader_epoch_expected=one.leader_epoch + 1)
    assert ahead == FoundOffset(ErrorCode.UNKNOWN_LEADER_EPOCH)
    one.become_failed()
    assert at_replica_mark(one, LATEST_TIMESTAMP) is None


# Searches.


class Batch(NamedTuple):
    """``times`` of the records that are left; ``promised`` is the highest before compaction."""

    first: int
    promised: int
    times: tuple[int, ...]

    def at_or_after(self, timestamp: int, first_offset: int) -> tuple[int, int] | None:
        records = ((self.first + at, time) for at, time in enumerate(self.times))
        found = (one for one in records if one[0] >= first_offset and one[1] >= timestamp)
        return next(found, None)


def search(one: Partition, batches: list[Batch], timestamp: int) -> tuple[FoundOffset, int]:
    """Return the answer, and the number of batches read."""
    asked = OffsetSearch(one, timestamp, read_committed=False)
    step, reads = asked.begin(), 0
    while isinstance(step, Seek):
        start, end = step.start or one.log_start, step.end
        there = [b for b in batches if start < b.first + 3 <= end and b.promised >= timestamp]
        if not there:
            return asked.exhausted(), reads
        reads += 1
        record = there[0].at_or_after(timestamp, step.first_offset)
        step = asked.searched(there[0].first + 3, record)
    return step, reads


TIMES = st.tuples(*[st.integers(0, 9)] * 3)


@given(st.lists(st.tuples(TIMES, st.integers(0, 3)), max_size=12), st.integers(0, 12), st.data())
def test_a_search_finds_what_a_plain_walk_finds(
    logged: list[tuple[tuple[int, int, int], int]], timestamp: int, data: st.DataObject
) -> None:
    """Compaction has left the first few records of each batch of three. The log may start within
    a batch.
    """
    batches = [Batch(3 * n, max(times), times[:left]) for n, (times, left) in enumerate(logged)]
    end = 3 * data.draw(st.integers(0, len(batches)))
    start = data.draw(st.integers(0, end))
    one = led(start, end, end)
    readable = batches[: end // 3]
    expected = next(filter(None, (b.at_or_after(timestamp, start) for b in readable)), (-1, -1))
    found, _ = search(one, batches, timestamp)
    assert found[:3] == (NONE, *expected)


def test_a_search_goes_on_behind_any_number_of_batches_that_promise_too_much() -> None:
    batches = [*(Batch(3 * n, 9, (1, 1, 1)) for n in range(100)), Batch(300, 9, (1, 7, 9))]
    found, reads = search(led(0, 303, 303), batches, 5)
    assert (found, reads) == (FoundOffset(NONE, 301, 7, 4), 101)


@pytest.mark.parametrize("leads_again", [True, False])
def test_a_search_ends_when_its_leader_epoch_does(*, leads_again: bool) -> None:
    """What follows may have been replaced."""
    one = led()
    asked = OffsetSearch(one, 5, read_committed=False)
    assert asked.begin() == Seek(6, first_offset=2)
    assert asked.passed(3) == Seek(6, 3, first_offset=2)
    if leads_again:
        lead_in(one, 6, (ME, TWO), (ME, TWO))
    else:
        one.become_failed()
    gone = FoundOffset(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert asked.passed(4) == asked.searched(4, None) == gone


def test_a_new_leader_does_not_say_that_nothing_is_so_late() -> None:
    asked = OffsetSearch(led(watermark=6, end=9), 5, read_committed=False)
    assert asked.begin() == Seek(6, first_offset=2)
    assert asked.exhausted() == FoundOffset(UNKNOWN)


def test_the_highest_timestamp_needs_a_known_end() -> None:
    new = OffsetSearch(led(watermark=6, end=9), MAX_TIMESTAMP, read_committed=False)
    assert new.begin() == FoundOffset(UNKNOWN)
    asked = OffsetSearch(led(), MAX_TIMESTAMP, read_committed=False)
    assert asked.begin() == Seek(6)
    assert asked.searched(6, (3, 99)) == FoundOffset(NONE, 3, 99, 4)
    assert asked.searched(6, None) == asked.exhausted() == FoundOffset()


def test_a_search_ends_where_its_reader_may_read_when_it_begins() -> None:
    one = led()
    begin_transaction(one, 3)
    assert OffsetSearch(one, 5, read_committed=True).begin() == Seek(3, first_offset=2)
    assert OffsetSearch(one, 5, read_committed=False).begin() == Seek(6, first_offset=2)
