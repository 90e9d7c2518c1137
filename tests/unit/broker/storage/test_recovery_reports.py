"""Reports of a start: a torn tail is a warning, damage an error."""

import logging

import pytest
from unit.broker.storage.log_worlds import append, flush, new_log, opened

SEGMENT = "orders-0/00000000000000000000.log"
LENGTH_AT = 9


def test_a_torn_tail_is_told_as_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    disk, _, log = new_log()
    append(log)
    disk.cut_file(SEGMENT, log.size_bytes - 1)
    disk.kill()
    manager = opened(disk)
    (told,) = [one for one in caplog.records if "orders-0" in one.getMessage()]
    assert told.levelno == logging.WARNING
    assert f"cut {log.size_bytes - 1} bytes off its end" in told.getMessage()
    assert [report.damage for report in manager.reports] == [None]


def test_a_tail_that_no_process_tore_is_told_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    disk, _, log = new_log()
    append(log)
    disk.flip_bit(SEGMENT, log.size_bytes - 1)
    disk.kill()
    (report,) = opened(disk).reports
    assert (report.end_lost, report.damage) == (True, None)
    told = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert "orders-0: end lost: more was cut off than one unfinished batch" in told


def test_damage_of_synced_bytes_is_told_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    disk, manager, log = new_log()
    append(log)
    flush(manager)
    disk.flip_bit(SEGMENT, LENGTH_AT)
    disk.kill()
    (report,) = opened(disk).reports
    (told,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert "damage found" in told.getMessage()
    assert report.damage is not None
    assert report.truncated_bytes == 0
