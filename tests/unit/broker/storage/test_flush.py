"""Flush rounds: the time of a round, the bytes it covers, and truncations during it."""

from dataclasses import replace

import pytest
from broker.storage.segment import INDEX, LOG
from tidemark.model.ids import TopicId
from tidemark.model.topics import TopicPartition
from unit.broker.storage.log_worlds import NOW, TINY, append, flush, new_log

OTHER_ID = TopicId(bytes(15) + b"\x02")
GROUP = replace(TINY, flush="group")


@pytest.mark.feature("B04", "Y10")
def test_one_round_syncs_all_that_group_logs_wrote() -> None:
    _, manager, log = new_log(GROUP)
    other = manager.create(TopicPartition("os", 0), OTHER_ID, TINY, NOW)
    for one in (log, other):
        append(one)
    begun = manager.begin_flush(only_group=True, now_ms=NOW)
    assert begun is not None
    append(log)
    assert manager.begin_flush(only_group=True, now_ms=NOW) is None, "one at a time"
    begun.run()
    assert manager.finish_flush(begun) == [(log, 1)]
    assert (log.synced_end, other.synced_end) == (1, 0)
    assert manager.begin_flush(only_group=True, now_ms=NOW) is not None


@pytest.mark.feature("B04")
@pytest.mark.parametrize(
    ("change", "after_ms"), [({"flush_ms": 50}, 50), ({"flush_messages": 3}, 0), ({}, 60_000)]
)
def test_os_logs_are_synced_at_an_interval(change: dict[str, int], after_ms: int) -> None:
    _, manager, log = new_log(replace(TINY, **change))  # type: ignore[arg-type]
    flush(manager)
    append(log, 2)
    assert manager.begin_flush(only_group=False, now_ms=NOW) is None
    append(log)
    assert manager.begin_flush(only_group=True, now_ms=NOW + after_ms) is None
    assert manager.begin_flush(only_group=False, now_ms=NOW + after_ms) is not None


def test_what_is_truncated_during_a_round_does_not_count_as_synced() -> None:
    _, manager, log = new_log(GROUP)
    for _ in range(4):
        append(log)
    begun = manager.begin_flush(only_group=True, now_ms=NOW)
    assert begun is not None
    log.truncate_to(2)
    append(log)
    append(log)
    begun.run()
    assert manager.finish_flush(begun) == [(log, 2)]


def test_a_topic_deleted_during_a_round_fences_nothing() -> None:
    _, manager, log = new_log(GROUP)
    other = manager.create(TopicPartition("kept", 0), OTHER_ID, GROUP, NOW)
    for one in (log, other):
        append(one)
    begun = manager.begin_flush(only_group=True, now_ms=NOW)
    assert begun is not None
    manager.delete(log.topic_partition, NOW)
    begun.run()
    assert (other, 1) in manager.finish_flush(begun)
    assert manager.fenced is None


def test_a_rolled_segment_is_due_with_its_index() -> None:
    _, manager, log = new_log()
    for _ in range(12):
        append(log)
    begun = manager.begin_flush(only_group=False, now_ms=NOW)
    assert begun is not None
    (sync,) = begun.syncs
    suffixes = [file.path[-6:] for file in sync.files if file.path.startswith("orders-0/0000")]
    assert suffixes.count(INDEX) == len(log.segments()) - 1
    assert len([one for one in suffixes if one.endswith(LOG)]) == len(log.segments())
    assert sync.directories == ("orders-0", "")


@pytest.mark.parametrize("what", ["full", "exhausted"])
def test_a_log_whose_index_cannot_be_written_holds_up_no_other(what: str) -> None:
    disk, manager, log = new_log(GROUP)
    other = manager.create(TopicPartition("other", 0), OTHER_ID, GROUP, NOW)
    flush(manager)
    for _ in range(4):
        append(log)  # its index has entries to be written
    append(other)
    if what == "full":
        disk.leave(0)
    else:
        disk.exhausted = True
    begun = manager.begin_flush(only_group=True, now_ms=NOW)
    assert begun is not None
    begun.run()
    assert manager.finish_flush(begun) == [(other, 1)]
    assert (manager.failure, manager.is_full) == (None, what == "full")
    assert manager.begin_flush(only_group=True, now_ms=NOW) is None
    disk.unbound()
    disk.exhausted = False
    begun = manager.begin_flush(only_group=True, now_ms=NOW)
    assert begun is not None
    begun.run()
    assert manager.finish_flush(begun) == [(log, 4)], "it is made up for"


def test_a_failed_round_says_so_once() -> None:
    disk, manager, log = new_log(GROUP)
    append(log)
    disk.syncs_fail = True
    begun = manager.begin_flush(only_group=True, now_ms=NOW)
    assert begun is not None
    begun.run()
    assert begun.error is not None
    with pytest.raises(type(begun.error), match="Input/output error"):
        begun.run_or_raise()
