"""A damaged log: what counts as damage at a start, and the rest after a repair."""

import contextlib
from collections.abc import Sequence

import pytest
from broker.storage.directory import LogDamagedError
from broker.storage.log import Log
from broker.storage.recovery import OFFSET_MAX
from tidemark.storage.mem_disk import MemDisk
from unit.broker.storage.log_worlds import ORDERS, append, flush, new_log, opened

MAGIC_AT = 16


def written(batches: int) -> tuple[MemDisk, Log, list[tuple[str, int]]]:
    """A log that is on disk, and the position of each of its batches of one record."""
    disk, manager, log = new_log()
    places = []
    for _ in range(batches):
        append(log)
        view = log.segments()[-1]
        places.append((view.path, view.size_bytes - 81))
    flush(manager)
    return disk, log, places


def restarted(disk: MemDisk) -> Log:
    disk.kill()
    return opened(disk).logs[ORDERS]


def flip(disk: MemDisk, places: Sequence[tuple[str, int]], at: int) -> None:
    path, position = places[at]
    disk.flip_bit(path, position + MAGIC_AT)


@pytest.mark.feature("Y09")
def test_a_log_cut_below_what_was_synced_has_lost_its_end() -> None:
    disk, _, places = written(5)
    path, position = places[3]
    disk.open(path).truncate(position)
    log = restarted(disk)
    assert (log.health.end_lost, log.log_end, log.health.damage_at) == (True, 3, 3)
    assert log.damage is not None


@pytest.mark.feature("Y09")
def test_a_log_that_ends_below_its_high_watermark_has_lost_its_end() -> None:
    disk, manager, log = new_log()
    for _ in range(4):
        append(log)
    manager.checkpoint({ORDERS: 4})
    path = log.segments()[-1].path
    disk.open(path).truncate(2 * 81)
    log = restarted(disk)
    assert (log.health.end_lost, log.damage) == (True, "committed up to offset 4, ends at 2")


def test_what_shows_the_loss_is_known_until_the_controller_has_been_told() -> None:
    disk, _, places = written(5)
    path, position = places[3]
    disk.open(path).truncate(position)
    restarted(disk)
    disk.kill()
    manager = opened(disk)
    assert manager.distrusted is not None
    manager.join_cluster("c")
    disk.kill()
    assert opened(disk).logs[ORDERS].health.end_lost is False


@pytest.mark.parametrize("at", [2, 13, 20])
def test_a_repair_keeps_what_is_before_the_damage(at: int) -> None:
    disk, log, places = written(24)
    assert len(log.segments()) > 2
    flip(disk, places, at)
    log.health.report("found by the scrubber", at)
    log.repair()
    assert (log.log_end, log.damage, log.health.damage_at) == (at, None, OFFSET_MAX)
    append(log, records=2)
    assert log.log_end == at + 2
    assert restarted(disk).damage is None


def test_a_repair_after_a_start_that_found_the_end_damaged() -> None:
    disk, log, places = written(20)
    flip(disk, places, 19)
    log = restarted(disk)
    assert (log.health.tail_lost, log.health.end_lost, log.health.damage_at) == (True, True, 19)
    log.repair()
    assert (log.log_end, log.health.tail_lost, log.health.end_lost) == (19, False, False)


def test_a_damage_whose_place_is_not_known_costs_its_segment_and_what_follows() -> None:
    disk, log, places = written(24)
    flip(disk, places, 13)
    base = next(one.base_offset for one in reversed(log.segments()) if one.base_offset <= 13)
    disk.kill()
    log = opened(disk).logs[ORDERS]
    for offset in range(base, base + 8):
        with contextlib.suppress(LogDamagedError):
            log.read(offset, 1, end=24)
    assert (log.damage is not None, log.health.damage_at) == (True, base)
    log.repair()
    assert log.log_end == base


def test_a_damage_at_the_start_leaves_an_empty_log() -> None:
    disk, log, places = written(5)
    flip(disk, places, 0)
    log.health.report("found by the scrubber", 0)
    log.repair()
    assert (log.log_start, log.log_end, log.damage) == (0, 0, None)
