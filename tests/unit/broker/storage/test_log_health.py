"""LogHealth: damage that is known, and errors of files as the whole directory gets them."""

import pytest
from broker.storage.log import Log, LogDamagedError
from broker.storage.log_manager import LogManager
from broker.storage.recovery import OFFSET_MAX
from tidemark.storage.batch_walk import FrameError
from tidemark.storage.disk import DiskError, ExhaustedError
from unit.broker.storage.log_worlds import append, new_log


def written(count: int = 20) -> tuple[LogManager, Log]:
    _, manager, log = new_log()
    for _ in range(count):
        append(log)
    return manager, log


def test_the_first_description_and_the_lowest_offset_are_kept() -> None:
    health = written()[1].health
    health.report("first", 9)
    health.report("second", 4)
    assert (health.damage, health.damage_at) == ("first", 4)
    health.clear()
    assert (health.damage, health.damage_at) == (None, OFFSET_MAX)


def test_a_bad_batch_is_damage_of_its_segment_alone() -> None:
    manager, log = written()
    second = log.segments()[1].base_offset
    with pytest.raises(LogDamagedError, match="at byte 7: torn"), log.health.guarded(second + 1):
        raise FrameError(7, "torn")
    assert log.health.damage_at == second
    assert manager.fenced is None


def test_a_failed_disk_fences_its_directory() -> None:
    manager, log = written()
    with pytest.raises(DiskError), log.health.guarded():
        raise DiskError("p", "gone")
    assert manager.fenced is not None
    assert log.damage is None


@pytest.mark.parametrize("begun", [False, True])
def test_what_runs_out_half_way_is_a_failed_disk(*, begun: bool) -> None:
    manager, log = written()
    with pytest.raises(DiskError) as raised, log.health.changing(begun=begun):
        raise ExhaustedError("p", "too many open files")
    assert not isinstance(raised.value, ExhaustedError)
    assert manager.fenced is not None
