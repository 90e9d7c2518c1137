"""Readers of committed records: which aborted transactions they are told, whatever happened to the
log meanwhile.
"""

import pytest
from broker.storage.checkpoint import RECOVERY_POINTS
from broker.storage.log import AppendInfo, Log
from broker.storage.producer_snapshot import KEPT
from broker.storage.txn_index import ENTRY_BYTES, AbortedTxn
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.codec.control_record import (
    ControlRecord,
    EndTxnMarker,
    OwnerRecord,
    build_marker,
    build_owner,
)
from tidemark.codec.record_batch import TRANSACTIONAL_BIT, read_header, set_base_offset_and_epoch
from tidemark.model.topic_configs import topic_config
from tidemark.storage.disk import DiskFullError
from tidemark.storage.mem_disk import MemDisk
from unit.broker.storage.log_worlds import NOW, ORDERS, append, flush, new_log, opened


def write(log: Log, producer_id: int) -> None:
    """One record in the producer's transaction."""
    entry = {one.producer_id: one for one in log.producers.entries()}.get(producer_id)
    sequence = entry.last_sequence + 1 if entry else 0
    append(
        log,
        attributes=TRANSACTIONAL_BIT,
        producer_id=producer_id,
        producer_epoch=0,
        sequence=sequence,
    )


def end(log: Log, producer_id: int, *, commits: bool) -> None:
    """The producer's marker, as a broker appends it."""
    marker = EndTxnMarker(commits, 1)
    built = build_marker(marker, producer_id=producer_id, producer_epoch=0, timestamp=NOW)
    append_control(log, built, marker)


def own(log: Log, owner_epoch: int) -> None:
    """The record of a shard's new owner."""
    owner = OwnerRecord(owner_epoch)
    append_control(log, build_owner(owner, timestamp=NOW), owner)


def append_control(log: Log, built: bytes, control: ControlRecord) -> None:
    batch = bytearray(built)
    set_base_offset_and_epoch(batch, 0, log.log_end, 0)  # type: ignore[arg-type]
    header = read_header(batch)
    info = AppendInfo(log.log_end, log.log_end, NOW, 0, len(batch))
    log.append([batch], info, NOW)
    log.producers.replay(header, NOW, control)
    log.index_aborted()


def aborted_txns(count: int) -> tuple[MemDisk, Log]:
    """Producers 0, 1...: one record each, then aborted; small segments."""
    disk, manager, log = new_log()
    for producer_id in range(count):
        write(log, producer_id)
        end(log, producer_id, commits=False)
    flush(manager)
    return disk, log


@pytest.mark.feature("B11")
def test_a_read_of_committed_records_opens_no_segment_without_aborted_ones() -> None:
    disk, manager, log = new_log()
    for _ in range(30):
        append(log, body_bytes=400)
    write(log, 7)
    end(log, 7, commits=False)
    flush(manager)
    aborted = AbortedTxn(7, log.log_end - 2, log.log_end - 1, log.log_end)
    again = opened(disk).logs[ORDERS]
    assert len(again.segments()) > 10
    found = again.read(0, 100, end=again.log_end)
    before = opened_segments(again)
    assert again.history.aborted_in(0, found, again.log_end) == []
    assert opened_segments(again) == before
    assert again.history.aborted_between(0, again.log_end) == [aborted]
    write(again, 7)
    end(again, 7, commits=False)
    again.truncate_to(aborted.last_offset)
    assert again.history.aborted_between(0, again.log_end) == []


def opened_segments(log: Log) -> list[int]:
    return [one.base_offset for one in log._segments.segments if one.file is not None]


ROOMY = topic_config({})
EXPECTED = [AbortedTxn(one, 2 * one, 2 * one + 1, 2 * one + 2) for one in range(20)]


@pytest.mark.feature("M04")
def test_those_among_what_is_read_are_told() -> None:
    _, log = aborted_txns(20)
    assert log.history.aborted_between(0, 40) == EXPECTED
    assert log.history.aborted_between(9, 11) == EXPECTED[4:6]


def test_a_short_read_is_not_told_of_all_behind_it() -> None:
    _, log = aborted_txns(20)
    read = log.read(0, 200, end=40)
    told = log.history.aborted_in(0, read, 40)
    assert told == EXPECTED[: len(told)]
    assert 1 <= len(told) < 20


@pytest.mark.parametrize("way", ["closed", "killed", "kernel stopped"])
def test_they_are_known_after_a_start(way: str) -> None:
    disk, log = aborted_txns(20)
    write(log, 99)
    if way == "closed":
        log.close(clean=True)
    elif way == "killed":
        disk.kill()
    else:
        disk.crash()
    boot = "boot-2" if way == "kernel stopped" else "boot-1"
    again = opened(disk, boot_id=boot).logs[ORDERS]
    assert again.history.aborted_between(0, 40) == EXPECTED
    assert again.producers.txns.first_of(99) == (40 if again.log_end > 40 else None)


def test_what_was_not_synced_is_found_by_the_scan() -> None:
    disk, _, log = new_log()
    for producer_id in range(3):
        write(log, producer_id)
        end(log, producer_id, commits=producer_id == 1)
    disk.kill()
    again = opened(disk).logs[ORDERS]
    assert [txn.producer_id for txn in again.history.aborted_between(0, 6)] == [0, 2]


@pytest.mark.feature("L16")
@pytest.mark.parametrize("cut", [1, 10, 11, 37, 39])
def test_a_truncation_takes_aborts_back(cut: int) -> None:
    _, log = aborted_txns(20)
    log.truncate_to(cut)
    assert log.history.aborted_between(0, 40) == EXPECTED[: cut // 2]
    is_open = cut % 2 == 1
    assert log.producers.txns.first_open() == (cut - 1 if is_open else None)


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["write", "commit", "abort"])), max_size=25
)


@settings(max_examples=40, deadline=None)
@given(STEPS, st.integers(0, 25))
def test_any_history_is_the_same_before_and_after_a_crash(
    steps: list[tuple[int, str]], flush_at: int
) -> None:
    disk, manager, log = new_log()
    for number, (producer_id, step) in enumerate(steps):
        if step == "write":
            write(log, producer_id)
        else:
            end(log, producer_id, commits=step == "commit")
        if number == flush_at:
            flush(manager)
    before = (
        log.history.aborted_between(0, log.log_end),
        log.producers.txns.last_stable(log.log_end),
    )
    disk.kill()
    again = opened(disk).logs[ORDERS]
    stable = again.producers.txns.last_stable(again.log_end)
    assert (again.history.aborted_between(0, again.log_end), stable) == before


def test_an_index_whose_end_a_power_failure_left_as_zeros_is_made_whole() -> None:
    disk, manager, log = new_log(ROOMY)
    for producer_id in range(4):
        write(log, producer_id)
        end(log, producer_id, commits=False)
        if producer_id == 1:
            flush(manager)
    disk.overwrite(f"{log.directory}/{0:020}.txnindex", 2 * ENTRY_BYTES, bytes(2 * ENTRY_BYTES))
    disk.kill()
    for _ in range(2):
        log = opened(disk, ROOMY, boot_id="boot-2").logs[ORDERS]
        assert log.history.aborted_between(0, 8) == EXPECTED[:4]
        log.close(clean=True)


def test_a_power_failure_does_not_bring_back_aborts_that_were_cut_off() -> None:
    disk, manager, log = new_log(ROOMY)
    for commits in (False, True):
        log.truncate_to(0)
        write(log, 0)
        end(log, 0, commits=commits)
        flush(manager)
    disk.open(RECOVERY_POINTS).sync()
    disk.sync_directory("")
    disk.crash()
    again = opened(disk, ROOMY, boot_id="boot-2").logs[ORDERS]
    assert (again.log_end, again.history.aborted_between(0, 2)) == (2, [])


@pytest.mark.feature("M04")
@pytest.mark.parametrize("way", ["goes on", "heals", "killed while full", "killed after it heals"])
def test_an_abort_whose_index_entry_finds_no_space_is_known_all_the_same(way: str) -> None:
    """The marker is in the log and is replicated: readers of committed records pass the aborted
    ones, and must be told of them.
    """
    disk, manager, log = new_log(ROOMY)
    write(log, 7)
    write(log, 8)
    end(log, 8, commits=False)
    flush(manager)
    fill(disk, room_bytes=80)  # for the marker, not for the entry
    with pytest.raises(DiskFullError):
        end(log, 7, commits=False)
    assert log.log_end == 4
    expected = [AbortedTxn(8, 1, 2, 0), AbortedTxn(7, 0, 3, 4)]
    if way in ("heals", "killed after it heals"):
        disk.capacity_bytes = 2**40
        assert manager.try_heal()
        flush(manager)
        assert log.recovery_point == 4
    if way.startswith("killed"):
        disk.kill()
        log = opened(disk, ROOMY).logs[ORDERS]
    assert log.history.aborted_between(0, log.log_end) == expected


def test_an_abort_without_an_index_entry_can_be_cut_off() -> None:
    disk, _, log = new_log(ROOMY)
    write(log, 7)
    fill(disk, room_bytes=80)
    with pytest.raises(DiskFullError):
        end(log, 7, commits=False)
    disk.capacity_bytes = 2**40
    log._shared.fence_error = None
    log.truncate_to(1)
    assert log.history.aborted_between(0, log.log_end) == []
    end(log, 7, commits=False)
    assert log.history.aborted_between(0, log.log_end) == [AbortedTxn(7, 0, 1, 2)]


def fill(disk: MemDisk, *, room_bytes: int) -> None:
    """Leave so much space and no more."""
    disk.capacity_bytes += room_bytes - disk.free_bytes()


def test_a_log_that_begins_again_beyond_its_end_has_no_transactions_of_before() -> None:
    """A follower that was away for long: the batch that ended the transaction is deleted."""
    for kept in (None, *range(20)):
        disk, manager, log = new_log(ROOMY)
        write(log, 7)
        log.roll(NOW)
        append(log)
        flush(manager)
        disk.sync_directory(log.directory)
        log.truncate_fully_and_start_at(100)
        assert (log.producers.entries(), log.producers.txns.last_stable(100)) == ((), 100)
        flush(manager)
        if kept is None:
            disk.kill()
        else:
            disk.crash([kept])
        again = opened(disk, ROOMY, boot_id="boot-1" if kept is None else "boot-2").logs[ORDERS]
        if again.first_base_offset == 100:
            assert not again.producers.txns


@pytest.mark.parametrize("offset", [1, 100])
def test_a_log_that_begins_again_keeps_the_owner_of_its_shard(offset: int) -> None:
    disk, manager, log = new_log(ROOMY)
    own(log, 5)
    append(log)
    log.truncate_fully_and_start_at(offset)
    assert log.producers.owner_epoch == 5
    flush(manager)
    disk.kill()
    again = opened(disk, ROOMY).logs[ORDERS]
    assert (again.log_start, again.producers.owner_epoch) == (offset, 5)


def test_a_truncation_keeps_the_owner_whose_record_is_below_the_log_start() -> None:
    _, _, log = new_log(ROOMY)
    own(log, 5)
    for _ in range(4):
        append(log)
    log.advance_log_start(3)
    log.truncate_to(4)
    assert log.producers.owner_epoch == 5


@pytest.mark.feature("K07")
@pytest.mark.parametrize("synced", [False, True])
def test_producers_whose_batches_are_deleted_are_known_after_many_rolls(synced: bool) -> None:
    """Segments may roll faster than they are synced: a start trusts no snapshot beyond the
    recovery point, and the batches are in no segment.
    """
    disk, manager, log = new_log(ROOMY)
    own(log, 5)
    write(log, 7)
    write(log, 7)
    log.roll(NOW)
    if synced:
        append(log)
        flush(manager)
        append(log)
    log.advance_log_start(3)
    log.apply_retention(NOW, 3)
    for _ in range(5):
        append(log)
        log.roll(NOW)
    assert log.first_base_offset == 3
    before = log.producers.state()
    disk.kill()
    again = opened(disk, ROOMY).logs[ORDERS]
    assert again.log_start == 3
    assert again.producers.state() == before
    assert len([one for one in disk.list("orders-0") if one.endswith(".snapshot")]) <= KEPT + 1
