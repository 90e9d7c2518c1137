"""SegmentChain: sizes and unsynced bytes over every change of a log's segments."""

from broker.storage.log import Log
from broker.storage.segment_chain import SegmentChain
from hypothesis import given
from hypothesis import strategies as st
from tidemark.storage.mem_disk import MemDisk
from unit.broker.storage.log_worlds import NOW, TINY, append, flush, new_log


def chain_of(log: Log) -> SegmentChain:
    return log._chain


def size_on_disk(disk: MemDisk, log: Log) -> int:
    return sum(disk.size_of(view.path) for view in log.segments())


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "roll", "cut", "empty", "flush", "retain"]), st.integers(0, 30)
    ),
    max_size=30,
)


@given(STEPS)
def test_the_size_is_that_of_the_files(steps: list[tuple[str, int]]) -> None:
    disk, manager, log = new_log()
    for step, number in steps:
        if step == "append":
            append(log, records=1 + number % 3)
        elif step == "roll":
            log.roll(NOW)
        elif step == "cut":
            log.truncate_to(max(log.log_end - number, 0))
        elif step == "empty" and number > 20:
            log.truncate_fully_and_start_at(log.log_end + number)
        elif step == "flush":
            flush(manager)
        elif step == "retain":
            log.apply_retention(NOW + 10**10, log.log_end)
        assert log.size_bytes == size_on_disk(disk, log)


def test_a_segment_is_unsynced_from_its_first_byte_to_the_next_round() -> None:
    _, manager, log = new_log()
    append(log)
    assert [view.unsynced for view in log.segments()] == [True]
    flush(manager)
    assert [view.unsynced for view in log.segments()] == [False]
    log.roll(NOW)
    assert log.has_unsynced_rolled, "its indexes are not on disk"


def test_a_segment_with_unsynced_bytes_is_not_replaced() -> None:
    disk, manager, log = new_log()
    for _ in range(20):
        append(log)
    first = log.segments()[0].base_offset
    path = f"{log.directory}/{first:020d}.log.cleaned"
    disk.replace_whole(path, b"")
    assert not chain_of(log).may_swap([first], path)
    assert not disk.exists(path)
    flush(manager)
    assert chain_of(log).may_swap([first], path)


def test_segments_roll_at_the_configured_size() -> None:
    _, _, log = new_log()
    for _ in range(40):
        append(log)
    assert max(view.size_bytes for view in log.segments()) <= TINY.segment_bytes
