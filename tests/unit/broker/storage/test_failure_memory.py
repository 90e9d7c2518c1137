"""Notes of failed disks in memory."""

import pytest
from broker.storage.failure_memory import FailureMemory
from tidemark.storage.disk import ExhaustedError
from tidemark.storage.mem_disk import MemDisk


def test_a_note_stays_until_it_is_forgotten() -> None:
    disk = MemDisk()
    FailureMemory(disk).note("a", "Input/output error")
    disk.kill()
    again = FailureMemory(disk)
    assert (again.reason("a"), again.reason("b")) == ("Input/output error", None)
    again.forget("a")
    assert FailureMemory(disk).reason("a") is None


def test_without_a_place_nothing_is_remembered() -> None:
    memory = FailureMemory(None)
    memory.note("a", "Input/output error")
    memory.forget("a")
    assert memory.reason("a") is None


def test_a_place_that_takes_nothing_stops_nobody() -> None:
    disk = MemDisk()
    disk.writes_fail = True
    memory = FailureMemory(disk)
    memory.note("a", "Input/output error")
    memory.forget("a")
    assert memory.reason("a") is None


def test_a_process_without_descriptors_does_not_overlook_a_note() -> None:
    disk = MemDisk()
    disk.exhausted = True
    with pytest.raises(ExhaustedError):
        FailureMemory(disk).reason("a")
