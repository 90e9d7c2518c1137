"""Compaction: plans, and cleaned logs in which every reader finds the same last values."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from broker.storage.compaction import (
    CleaningJob,
    CleaningResult,
    clean_segments,
    first_timestamps_of,
    group_segments,
    is_current,
    job_for,
    plan_cleaning,
)
from broker.storage.segment import SegmentView
from broker.storage.txn_index import AbortedTxn
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.codec.compression import CODEC_NAMES, ZSTD
from tidemark.codec.control_record import EndTxnMarker, build_marker
from tidemark.codec.record_batch import (
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
    set_base_offset_and_epoch,
)
from tidemark.codec.records import (
    Record,
    assemble_batch,
    build_batch,
    read_records,
    records_payload,
)
from tidemark.model.topic_configs import topic_config
from tidemark.model.topics import TopicPartition
from tidemark.storage.batch_walk import walk_batches
from tidemark.storage.disk import Disk
from tidemark.storage.mem_disk import MemDisk

ORDERS = TopicPartition("orders", 0)
NOW = 1_000_000
Pairs = Sequence[tuple[bytes | None, bytes | None]]


def write_segment(
    disk: Disk, base_offset: int, batches: Sequence[bytes], end_offset: int, **changes: Any
) -> SegmentView:
    path = f"orders-0/{base_offset:020d}.log"
    disk.make_directory("orders-0")
    file = disk.open(path, create=True)
    size = file.write_at(0, batches) if batches else 0
    file.close()
    view = SegmentView(base_offset, end_offset, size, path, 0, 0, active=False)
    return view._replace(**changes)


def batch_of(pairs: Pairs, base_offset: int, **fields: Any) -> bytes:
    inputs = [
        (base_offset + index, key, value, (("n", b"h"),))
        for index, (key, value) in enumerate(pairs)
    ]
    return build_batch(inputs, base_offset=base_offset, **fields)


def write_log(disk: Disk, segments: Sequence[Sequence[Pairs]], **fields: Any) -> list[SegmentView]:
    """Batches of consecutive offsets from 0, in as many closed segments."""
    views, offset = [], 0
    for batches in segments:
        base, encoded = offset, []
        for pairs in batches:
            encoded.append(batch_of(pairs, offset, **fields))
            offset += len(pairs)
        views.append(write_segment(disk, base, encoded, offset))
    return views


def job(views: Sequence[SegmentView], **changes: Any) -> CleaningJob:
    defaults: dict[str, Any] = {
        "topic_partition": ORDERS,
        "segments": tuple(views),
        "first_dirty": 0,
        "first_uncleanable": views[-1].end_offset,
        "segment_bytes_max": 1 << 30,
        "delete_retention_ms": 1_000,
        "now_ms": NOW,
    }
    return CleaningJob(**defaults | changes)


def batches_in(disk: Disk, path: str) -> Iterator[tuple[BatchHeader, list[Record]]]:
    file = disk.open(path)
    try:
        for walked in walk_batches(file, 0, file.size_bytes):
            assert walked.crc_ok
            yield walked.header, read_records(walked.batch, walked.header)
    finally:
        file.close()


def records_in(disk: Disk, paths: Sequence[str]) -> list[Record]:
    return [record for path in paths for _, records in batches_in(disk, path) for record in records]


def last_values(records: Sequence[Record]) -> dict[bytes, bytes]:
    """The plain twin: the last value of each key, as a reader sees it."""
    values: dict[bytes, bytes] = {}
    for record in records:
        if record.key is None:
            continue
        if record.value is None:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
    return values


def swapped(disk: Disk, result: CleaningResult, views: Sequence[SegmentView]) -> list[SegmentView]:
    """The log with the cleaned files in place, as views."""
    assert result.damage is None
    by_base = {view.base_offset: view for view in views}
    for group in result.groups:
        old = [by_base.pop(base) for base in group.old_base_offsets]
        for view in old:
            disk.remove(view.path)
        disk.rename(group.path, old[0].path)
        by_base[old[0].base_offset] = old[0]._replace(
            size_bytes=group.size_bytes, end_offset=old[-1].end_offset
        )
    return [by_base[base] for base in sorted(by_base)]


keys = st.sampled_from([b"a", b"b", b"c", b"long" * 20])
values = st.none() | st.sampled_from([b"", b"1", b"value" * 30])
logs = st.lists(
    st.lists(st.lists(st.tuples(keys, values), min_size=1, max_size=5), min_size=1, max_size=4),
    min_size=1,
    max_size=4,
)


@pytest.mark.feature("A19")
@settings(max_examples=30, deadline=None)
@given(
    log=logs,
    codec=st.sampled_from(list(CODEC_NAMES)),
    keys_max=st.sampled_from([1, 2, 600_000]),
    bytes_max=st.sampled_from([1, 300, 1 << 30]),
)
def test_readers_end_up_with_the_same_last_values(
    log: list[list[Pairs]], codec: int, keys_max: int, bytes_max: int
) -> None:
    disk = MemDisk()
    views = write_log(disk, log, compression=codec)
    before = records_in(disk, [view.path for view in views])
    checkpoint, now_ms, end = 0, NOW, views[-1].end_offset
    for _ in range(50):
        result = clean_segments(
            lambda: disk,
            job(
                views,
                first_dirty=checkpoint,
                keys_max=keys_max,
                segment_bytes_max=bytes_max,
                now_ms=now_ms,
            ),
        )
        assert result.clean_end > checkpoint
        views, checkpoint = swapped(disk, result, views), result.clean_end
        after = records_in(disk, [view.path for view in views])
        assert last_values(after) == last_values(before)
        assert set(map(repr, after)) <= set(map(repr, before))
        assert [r.offset for r in after] == sorted({r.offset for r in after})
        now_ms += 600
        if checkpoint == end:
            break
    assert checkpoint == end
    kept = [record.key for record in after]
    assert len(kept) == len(set(kept))


@pytest.mark.feature("A19")
def test_tombstones_stay_for_delete_retention_after_the_first_round() -> None:
    disk = MemDisk()
    views = write_log(disk, [[[(b"a", b"1"), (b"b", b"1")], [(b"a", None)]]], compression=ZSTD)

    def clean(now_ms: int) -> list[Record]:
        nonlocal views
        views = swapped(disk, clean_segments(lambda: disk, job(views, now_ms=now_ms)), views)
        return records_in(disk, [views[0].path])

    first = clean(NOW)
    assert [(r.offset, r.key, r.value, r.timestamp) for r in first] == [
        (1, b"b", b"1", 1),
        (2, b"a", None, 2),
    ]
    tombstone = list(batches_in(disk, views[0].path))[-1][0]
    assert tombstone.has_delete_horizon
    assert tombstone.base_timestamp == NOW + 1_000
    assert tombstone.max_timestamp == 2
    assert tombstone.compression == ZSTD
    assert clean(NOW + 999) == first
    assert [r.key for r in clean(NOW + 1_000)] == [b"b"]


def test_batches_keep_their_offsets_and_producers_their_last_batch() -> None:
    disk = MemDisk()
    fields = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 40}
    batches = [
        batch_of([(b"a", b"1"), (b"b", b"1"), (b"a", b"2")], 0, leader_epoch=5),
        batch_of([(b"c", b"1"), (b"c", b"2")], 3, compression=ZSTD, **fields),
        batch_of([(b"c", b"3"), (b"b", b"2")], 5),
    ]
    view = write_segment(disk, 0, batches, 7)
    result = clean_segments(lambda: disk, job([view], last_data_offsets={7: 4}))
    first, emptied, last = batches_in(disk, result.groups[0].path)
    assert (first[0].base_offset, first[0].last_offset, first[0].record_count) == (0, 2, 1)
    assert first[0].partition_leader_epoch == 5
    assert [(r.offset, r.value) for r in first[1]] == [(2, b"2")]
    assert emptied[1] == []
    assert emptied[0][9:] == (7, 2, 40, 0)
    assert (emptied[0].base_offset, emptied[0].last_offset) == (3, 4)
    assert [(r.offset, r.key) for r in last[1]] == [(5, b"c"), (6, b"b")]
    without = clean_segments(lambda: disk, job([view]))
    assert [header.base_offset for header, _ in batches_in(disk, without.groups[0].path)] == [0, 5]


def test_the_last_batch_of_a_round_stays_even_without_records() -> None:
    disk = MemDisk()
    view = write_segment(disk, 0, [batch_of([(None, b"1")], 0), batch_of([(None, b"2")], 1)], 2)
    result = clean_segments(lambda: disk, job([view]))
    assert result.records_without_key == 2
    assert [(h.base_offset, rs) for h, rs in batches_in(disk, result.groups[0].path)] == [(1, [])]


def test_an_aborted_transaction_hides_nothing_and_goes() -> None:
    disk = MemDisk()
    fields = {"producer_id": 7, "producer_epoch": 0, "attributes_extra": TRANSACTIONAL_BIT}
    view = write_segment(
        disk, 0, [batch_of([(b"a", b"1")], 0), batch_of([(b"a", b"2")], 1, **fields)], 2
    )
    aborted = (AbortedTxn(7, 1, 2, 0),)
    result = clean_segments(lambda: disk, job([view], aborted=aborted))
    assert [r.value for r in records_in(disk, [result.groups[0].path])] == [b"1"]


@pytest.mark.parametrize("at", [0, 17, 70, 90])
def test_damage_ends_the_round_and_leaves_nothing_behind(at: int) -> None:
    disk = MemDisk()
    views = write_log(disk, [[[(b"a", b"1")]], [[(b"a", b"2")], [(b"b", b"1")]]])
    file = disk.open(views[1].path)
    file.write_at(at, [b"\xff"])
    file.close()
    result = clean_segments(lambda: disk, job(views, segment_bytes_max=1))
    assert result.damage is not None
    assert result.damage.path == views[1].path
    assert result.groups == ()
    assert [name for name in disk.list("orders-0") if name.endswith(".cleaned")] == []


def test_a_batch_that_cannot_be_read_is_no_damage_and_hides_nothing() -> None:
    disk = MemDisk()
    whole = batch_of([(b"a", b"2"), (b"b", b"1")], 1)
    header = read_header(whole)
    broken = assemble_batch(header, records_payload(whole, header)[:-1])
    views = [
        write_segment(disk, 0, [batch_of([(b"a", b"1")], 0)], 1),
        write_segment(disk, 1, [broken], 3),
    ]
    result = clean_segments(lambda: disk, job(views, segment_bytes_max=1))
    assert (result.damage, result.batches_unreadable) == (None, 1)
    assert [one.value for one in records_in(disk, [result.groups[0].path])] == [b"1"]
    assert disk.read_whole(result.groups[1].path) == broken


def test_cleaned_indexes_are_those_of_the_cleaned_log() -> None:
    disk = MemDisk()
    views = write_log(disk, [[[(b"%d" % i, b"x" * 100)] for i in range(50)]])
    result = clean_segments(lambda: disk, job(views, index_interval_bytes=500))
    stem = result.groups[0].path.removesuffix(".log.cleaned")
    index = disk.read_whole(stem + ".index.cleaned")
    positions = {
        walked.position: walked.header.base_offset
        for walked in walk_batches(disk.open(result.groups[0].path), 0, result.groups[0].size_bytes)
    }
    entries = [
        (int.from_bytes(index[at : at + 4]), int.from_bytes(index[at + 4 : at + 8]))
        for at in range(0, len(index), 8)
    ]
    assert len(entries) > 5
    assert all(positions[position] == offset for offset, position in entries)
    assert len(disk.read_whole(stem + ".timeindex.cleaned")) % 12 == 0


def test_a_result_is_void_once_a_segment_changed() -> None:
    disk = MemDisk()
    views = write_log(disk, [[[(b"a", b"1")]], [[(b"a", b"2")]]])
    result = clean_segments(lambda: disk, job(views))
    sizes = {view.base_offset: view.size_bytes for view in views}
    assert is_current(result, sizes)
    assert not is_current(result, sizes | {1: 5})
    assert not is_current(result, {1: sizes[1]})


# -- planning


def view(
    base: int, end: int, size: int = 100, newest: int = 0, *, active: bool = False
) -> SegmentView:
    return SegmentView(base, end, size, f"orders-0/{base:020d}.log", newest, 0, active)


COMPACT = {"cleanup.policy": "compact"}
THREE = [view(0, 10), view(10, 20), view(20, 30), view(30, 35, active=True)]


def plan(segments: Sequence[SegmentView] = THREE, /, **changes: Any) -> Any:
    config = topic_config(COMPACT | changes.pop("config", {}))
    defaults: dict[str, Any] = {"log_start": 0, "last_stable": 35, "checkpoint": None}
    return plan_cleaning(segments, config=config, now_ms=NOW, **defaults | changes)


def bases(planned: Any) -> list[int]:
    return [segment.base_offset for segment in planned.segments]


def test_all_but_the_active_segment_is_cleaned() -> None:
    planned = plan()
    assert bases(planned) == [0, 10, 20]
    assert (planned.first_dirty, planned.first_uncleanable) == (0, 30)
    assert planned.dirty_ratio == 1.0


def test_what_is_not_committed_is_not_cleaned() -> None:
    assert bases(plan(last_stable=20)) == [0, 10]
    assert bases(plan(last_stable=29)) == [0, 10]
    assert plan(last_stable=9) is None


def test_what_is_not_synced_could_not_be_replaced_and_is_not_cleaned() -> None:
    unsynced = THREE[1]._replace(unsynced=True)
    assert bases(plan([THREE[0], unsynced, *THREE[2:]])) == [0]
    assert plan([THREE[0]._replace(unsynced=True), *THREE[1:]]) is None


@pytest.mark.parametrize(
    ("checkpoint", "dirty"), [(0, 300), (10, 200), (15, 200), (30, 0), (99, 300)]
)
def test_the_checkpoint_says_what_is_dirty(checkpoint: int, dirty: int) -> None:
    assert plan(checkpoint=checkpoint).dirty_bytes == dirty


def test_a_checkpoint_below_the_log_start_is_forgotten() -> None:
    planned = plan(log_start=12, checkpoint=3)
    assert planned.first_dirty == 12
    assert bases(planned) == [10, 20]


@pytest.mark.parametrize(
    ("checkpoint", "ratio", "due"),
    [(10, "0.5", True), (20, "0.5", False), (20, "0.3", True), (30, "0", False), (0, "1", False)],
)
def test_a_round_is_due_above_the_dirty_ratio(checkpoint: int, ratio: str, due: bool) -> None:
    config = {"min.cleanable.dirty.ratio": ratio}
    planned = plan(checkpoint=checkpoint, config=config)
    assert planned.is_due(topic_config(COMPACT | config)) is due


def test_young_segments_wait_for_the_minimum_lag() -> None:
    segments = [view(0, 10, newest=NOW - 500), view(10, 20, newest=NOW - 50), THREE[-1]]
    lag = {"min.compaction.lag.ms": "100"}
    assert bases(plan(segments, config=lag)) == [0]
    assert plan(segments, config={"min.compaction.lag.ms": "600"}) is None
    assert bases(plan(segments, config=lag, checkpoint=20)) == [0, 10]


@pytest.mark.parametrize(
    ("first", "must"), [({20: NOW - 101}, True), ({20: NOW - 100}, False), ({}, False)]
)
def test_old_records_must_be_cleaned_by_the_maximum_lag(
    first: Mapping[int, int], must: bool
) -> None:
    segments = [*THREE[:2], view(20, 30, newest=NOW - 50), THREE[-1]]
    config = {"max.compaction.lag.ms": "100"}
    planned = plan(segments, config=config, checkpoint=20, first_timestamps=first)
    assert planned.must is must
    assert planned.is_due(topic_config(COMPACT | config)) is must


def test_the_age_of_a_segment_is_that_of_its_records_also_where_they_were_cleaned() -> None:
    """As are all of a new follower's, of which it has cleaned none."""
    disk = MemDisk()
    tombstone, emptied = batch_of([(b"a", None)], 0), batch_of([(b"b", b"1")], 1)
    views = [
        write_segment(disk, 0, [tombstone], 1),
        write_segment(disk, 1, [emptied], 2),
        write_segment(disk, 2, [batch_of([(b"b", b"2")], 2)], 3),
    ]
    result = clean_segments(lambda: disk, job(views, segment_bytes_max=1))
    (tombstone_header, _), *_ = batches_in(disk, result.groups[0].path)
    (emptied_header, _), *_ = batches_in(disk, result.groups[1].path)
    assert (tombstone_header.has_delete_horizon, emptied_header.record_count) == (True, 0)
    cleaned = swapped(disk, result, views)
    assert first_timestamps_of(disk, cleaned) == {0: 0, 1: 1, 2: 2}


def test_the_job_takes_what_it_needs_from_plan_and_config() -> None:
    config = topic_config(COMPACT | {"segment.bytes": "2000000", "delete.retention.ms": "7"})
    made = job_for(plan(checkpoint=10), ORDERS, config, now_ms=NOW, last_data_offsets={1: 2})
    assert (made.first_dirty, made.first_uncleanable) == (10, 30)
    assert (made.segment_bytes_max, made.delete_retention_ms) == (2_000_000, 7)


@pytest.mark.parametrize(
    ("bytes_max", "groups"),
    [
        (100, [[0], [10], [20]]),
        (200, [[0, 10], [20]]),
        (300, [[0, 10, 20]]),
        (1, [[0], [10], [20]]),
    ],
)
def test_segments_are_grouped_up_to_a_segments_size(
    bytes_max: int, groups: list[list[int]]
) -> None:
    grouped = group_segments(THREE[:3], bytes_max)
    assert [[one.base_offset for one in group] for group in grouped] == groups


def test_a_group_spans_no_more_offsets_than_an_index_can_name() -> None:
    segments = [view(0, 2**31), view(2**31, 2**31 + 1)]
    assert len(group_segments(segments, 1 << 30)) == 2
    assert len(group_segments([view(0, 5), view(5, 2**31)], 1 << 30)) == 1


def transactions(*ends: tuple[str, int]) -> list[bytes]:
    """Producer 7 writes a key in a transaction and ends it in this epoch, once for each; at 2i and
    2i + 1.
    """
    batches = []
    for number, (key, epoch) in enumerate(ends):
        who: dict[str, Any] = {"producer_id": 7, "producer_epoch": epoch}
        put = [(0, key.encode(), b"v", ())]
        batches.append(
            build_batch(put, base_offset=2 * number, attributes_extra=TRANSACTIONAL_BIT, **who)
        )
        end = bytearray(build_marker(EndTxnMarker(True, 1), timestamp=0, **who))
        set_base_offset_and_epoch(end, 0, 2 * number + 1, 0)  # type: ignore[arg-type]
        batches.append(bytes(end))
    return batches


def cleaned_twice(content: list[bytes], **changes: Any) -> list[int]:
    """Clean twice, the second time delete.retention.ms later; return the batches' offsets."""
    disk = MemDisk()
    views = [write_segment(disk, 0, content, len(content))]
    for now_ms in (NOW, NOW + changes.get("delete_retention_ms", 1_000)):
        result = clean_segments(lambda: disk, job(views, now_ms=now_ms, **changes))
        views = swapped(disk, result, views)
    return [header.base_offset for header, _ in batches_in(disk, views[0].path)]


@pytest.mark.feature("E07")
@pytest.mark.parametrize(
    ("producers", "kept"),
    [
        ({7: (2, 0)}, [4, 5, 6, 7]),  # of epochs before the present one
        ({7: (1, 0)}, [1, 3, 4, 5, 6, 7]),  # of the present one
        ({7: (1, NOW)}, [4, 5, 6, 7]),  # of the present one, which is told again later
        ({}, [4, 5, 6, 7]),  # of an expired producer
    ],
)
def test_markers_go_after_the_last_record_of_their_transaction(
    producers: dict[int, tuple[int, int]], kept: list[int]
) -> None:
    content = transactions(("a", 1), ("a", 1), ("a", 1), ("b", 1))
    assert cleaned_twice(content, producers=producers) == kept


def test_a_marker_that_may_be_the_last_write_of_its_producer_stays() -> None:
    content = transactions(("a", 1), ("a", 1), ("b", 1))
    kept = cleaned_twice(content, producers={7: (1, 0)}, delete_retention_ms=0)
    assert kept == [1, 2, 3, 4, 5]


def test_a_marker_stays_for_delete_retention_after_the_last_record_of_its_transaction() -> None:
    """However old it is: a follower that has the transaction's records, as they were before the
    round, waits for its end.
    """
    content = transactions(("a", 1), ("a", 1))
    disk = MemDisk()
    views = [write_segment(disk, 0, content, 4)]

    def clean(now_ms: int) -> list[tuple[int, list[Record]]]:
        nonlocal views
        views = swapped(disk, clean_segments(lambda: disk, job(views, now_ms=now_ms)), views)
        return [(one.base_offset, records) for one, records in batches_in(disk, views[0].path)]

    first = clean(NOW)
    assert [offset for offset, _ in first] == [1, 2, 3]
    before = read_records(content[1], read_header(content[1]))
    assert first[0][1] == before, "the marker is as it was"
    (header, _), *_ = batches_in(disk, views[0].path)
    assert (header.has_delete_horizon, header.base_timestamp) == (True, NOW + 1_000)
    assert header.max_timestamp == read_header(content[1]).max_timestamp
    assert clean(NOW + 999) == first
    assert [offset for offset, _ in clean(NOW + 1_000)] == [2, 3]
