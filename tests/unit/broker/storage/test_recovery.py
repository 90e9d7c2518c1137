"""Recovery: a clean stop, torn tails, producers, epochs, swaps."""

import pytest
from broker.storage.checkpoint import LEADER_EPOCHS
from broker.storage.log import LogSlice
from tidemark.storage.mem_disk import MemDisk
from unit.broker.storage.log_worlds import (
    NOW,
    ORDERS,
    append,
    bytes_of,
    flush,
    make_batch,
    new_log,
    opened,
)

FIRST = "orders-0/00000000000000000000.log"


def test_after_a_clean_stop_nothing_is_scanned() -> None:
    disk, manager, log = new_log()
    for _ in range(20):
        append(log, 2)
    manager.close(broker_epoch=9)
    again = opened(disk)
    assert again.clean_start
    assert again.previous_broker_epoch == 9
    assert again.reports == []
    assert again.logs[ORDERS].log_end == again.logs[ORDERS].synced_end == 40


def test_a_torn_tail_is_cut_and_nothing_else() -> None:
    disk, _, log = new_log()
    kept = append(log, 2) + append(log, 3)
    whole = len(kept)
    torn = make_batch(5, 4)[:-1]
    disk.open(FIRST).write_at(whole, [torn])
    disk.kill()
    manager = opened(disk)
    (report,) = manager.reports
    assert report.truncated_bytes == len(torn)
    log = manager.logs[ORDERS]
    assert (log.log_end, log.size_bytes, log.damage) == (5, whole, None)
    assert bytes_of(log.read(0, 10**6, end=5)) == kept
    assert append(log)


@pytest.mark.parametrize("place", [4, 16, 22, 70])
def test_a_flipped_bit_beyond_the_recovery_point_cuts(place: int) -> None:
    disk, _, log = new_log()
    first, _, _ = append(log), append(log), append(log)
    disk.flip_bit(FIRST, len(first) + place, bit=3)
    disk.kill()
    log = opened(disk).logs[ORDERS]
    assert log.log_end == 1
    assert log.damage is None


@pytest.mark.feature("B04", "B09")
def test_only_the_end_of_the_last_write_may_be_torn_while_the_kernel_goes_on() -> None:
    disk, _, log = new_log()
    for _ in range(3):
        append(log)
    whole = disk.size_of(FIRST)
    disk.open(FIRST).write_at(whole, [make_batch(3, 1)[:70]])
    disk.kill()
    assert not opened(disk).logs[ORDERS].health.end_lost
    disk.flip_bit(FIRST, whole - 1)
    disk.kill()
    log = opened(disk).logs[ORDERS]
    assert (log.health.end_lost, log.log_end) == (True, 2)


@pytest.mark.feature("B04", "B09")
def test_a_rolled_segment_is_not_torn_by_the_end_of_a_process() -> None:
    disk, _, log = new_log()
    batch = append(log)
    log.roll(0)
    append(log)
    disk.open(FIRST).truncate(len(batch) - 1)
    disk.kill()
    log = opened(disk).logs[ORDERS]
    assert (log.health.end_lost, log.log_end) == (True, 0)
    disk.kill()
    assert opened(disk).distrusted is not None, "known until the controller has been told"


def test_after_a_clean_stop_no_tail_is_torn() -> None:
    disk, manager, log = new_log()
    append(log)
    append(log)
    manager.close()
    disk.remove("recovery-point-offset-checkpoint")
    disk.open(FIRST).truncate(disk.size_of(FIRST) - 1)
    log = opened(disk, boot_id="boot-2").logs[ORDERS]
    assert (log.health.end_lost, log.log_end) == (True, 1)


def test_after_the_kernel_s_end_a_torn_tail_is_no_loss_of_the_disk() -> None:
    disk, _, log = new_log()
    append(log)
    last = append(log)
    disk.flip_bit(FIRST, len(last) + 70)
    disk.kill()
    log = opened(disk, boot_id="boot-2").logs[ORDERS]
    assert (log.health.end_lost, log.log_end) == (False, 1)


def test_the_batches_of_a_tail_tell_its_leader_epochs() -> None:
    """The checkpoint was written for another tail, which a failed sync dropped."""
    disk, manager, log = new_log()
    append(log, epoch=1)
    flush(manager)
    log.assign_epoch(3, 1)
    disk.open(FIRST).write_at(disk.size_of(FIRST), [make_batch(1, 1, epoch=2)])
    disk.kill()
    log = opened(disk).logs[ORDERS]
    assert [tuple(one) for one in log.epochs.entries()] == [(1, 0), (2, 1)]
    disk.kill()
    assert [tuple(one) for one in opened(disk).logs[ORDERS].epochs.entries()] == [(1, 0), (2, 1)]


def test_a_flipped_bit_below_the_recovery_point_is_damage() -> None:
    disk, manager, log = new_log()
    append(log)
    append(log)
    flush(manager)
    disk.flip_bit(FIRST, 16)
    disk.kill()
    log = opened(disk).logs[ORDERS]
    assert log.damage is not None
    assert log.size_bytes == disk.size_of(FIRST), "left alone"
    assert log.log_end == 2


@pytest.mark.feature("K03", "K09")
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("after_snapshot", [0, 3, 8])
def test_producers_are_as_before(clean: bool, after_snapshot: int) -> None:
    disk, manager, log = new_log()
    for sequence in range(10):
        if sequence == 10 - after_snapshot:
            log.roll(0)
            flush(manager)
        append(log, producer_id=7, producer_epoch=0, sequence=sequence)
    before = log.producers.entries()
    if clean:
        manager.close()
    disk.kill()
    assert opened(disk).logs[ORDERS].producers.entries() == before


@pytest.mark.parametrize("epochs", [b"", b"0\n1\n0 0\n", b"nonsense"])
def test_epochs_are_found_again_in_the_batches(epochs: bytes) -> None:
    disk, manager, log = new_log()
    for epoch in (0, 0, 2, 2, 5):
        append(log, epoch=epoch)
    flush(manager)
    append(log, epoch=6)
    expected = log.epochs.entries()
    disk.replace_whole(f"orders-0/{LEADER_EPOCHS}", epochs)
    disk.kill()
    assert opened(disk).logs[ORDERS].epochs.entries() == expected


def test_missing_indexes_cost_time_only() -> None:
    disk, manager, log = new_log()
    batches = [append(log, timestamp=1_000 + n) for n in range(40)]
    manager.close()
    for name in disk.list("orders-0"):
        if name.endswith("index"):
            disk.remove(f"orders-0/{name}")
    log = opened(disk).logs[ORDERS]
    assert bytes_of(log.read(0, 10**6, end=40)) == b"".join(batches)
    found = log.batch_for_timestamp(1_013, end=40)
    assert isinstance(found, LogSlice)
    assert found.file.read_at(found.position, found.length) == batches[13]
    assert log.segments()[0].max_timestamp >= 1_000


def test_the_log_start_survives_a_kill() -> None:
    disk, _, log = new_log()
    for _ in range(5):
        append(log)
    log.advance_log_start(3)
    disk.kill()
    assert opened(disk).logs[ORDERS].log_start == 3


@pytest.mark.parametrize(("suffix", "expected"), [(".cleaned", b"old"), (".swap", b"new")])
def test_a_half_made_replacement_is_undone_or_finished(suffix: str, expected: bytes) -> None:
    disk, manager, log = new_log()
    old = append(log) + append(log)
    log.roll(0)
    append(log)
    manager.close()
    new = make_batch(0, 2, 5)
    disk.replace_whole(FIRST + suffix, new)
    log = opened(disk).logs[ORDERS]
    found = bytes_of(log.read(0, 10**6, end=2))
    assert found == (old if expected == b"old" else new)
    assert not [name for name in disk.list("orders-0") if name.endswith(suffix)]


def test_a_log_without_files_begins_at_its_log_start() -> None:
    disk, manager, log = new_log()
    append(log, 9)
    log.advance_log_start(9)
    manager.close()
    disk.remove(FIRST)
    log = opened(disk).logs[ORDERS]
    assert log.log_start == log.log_end == 9


def test_an_unusable_checkpoint_costs_a_scan() -> None:
    disk, manager, log = new_log()
    append(log, 3)
    manager.close()
    disk.replace_whole("recovery-point-offset-checkpoint", b"0\nnonsense")
    again = opened(disk)
    assert again.logs[ORDERS].log_end == 3
    assert [report.scanned_bytes for report in again.reports] == [log.size_bytes]


def test_a_new_disk_is_empty() -> None:
    manager = opened(MemDisk())
    assert manager.logs == {}
    assert not manager.clean_start


@pytest.mark.feature("G01")
def test_a_segment_that_was_cut_off_does_not_come_back_behind_the_records_of_a_later_leader() -> (
    None
):
    """The power failed between the sync of the new records and that of the directory."""
    disk, manager, log = new_log()
    while len(log.segments()) < 3:
        append(log, epoch=1)
    flush(manager)
    cut_off = log.segments()[1].base_offset
    log.truncate_to(cut_off - 2)
    append(log, epoch=2)
    append(log, epoch=2)
    assert (log.log_end, len(log.segments())) == (cut_off, 1)
    begun = manager.begin_flush(only_group=False, now_ms=NOW + 10**9)
    assert begun is not None
    begun.run()
    disk.kill()
    disk.rename(f"orders-0/{cut_off:020d}.log.deleted", f"orders-0/{cut_off:020d}.log")
    again = opened(disk, boot_id="boot-2").logs[ORDERS]
    assert again.log_end == cut_off
    assert again.epochs.entries() == ((1, 0), (2, cut_off - 2))
