"""Markers, changes of owner and coordinators' records in a partition, and what readers then see."""

from typing import Any

import pytest
from tidemark.codec.control_record import (
    ControlRecord,
    EndTxnMarker,
    OwnerRecord,
    build_marker,
    build_owner,
)
from tidemark.codec.record_batch import TRANSACTIONAL_BIT, iterate_headers
from tidemark.codec.records import build_batch
from tidemark.model.errors import ErrorCode
from tidemark.storage.disk import DiskFullError
from tidemark.storage.mem_disk import MemDisk
from unit.broker.shell.broker_worlds import World, topic
from unit.broker.shell.replicated_worlds import partition, replicated
from unit.broker.storage.log_worlds import bytes_of


def world() -> World:
    made = World()
    made.show(topic())
    return made


def transactional(one: World, sequence: int = 0, *, producer_id: int = 7, epoch: int = 0) -> Any:
    """A producer's batch in its transaction, which the coordinator has agreed to."""
    asked = one.hosted().partition.verifications
    asked.answer(producer_id, asked.ask(producer_id, epoch))
    return one.append(
        b"in",
        acks=-1,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes_extra=TRANSACTIONAL_BIT,
    )


def end(
    one: World, *, commits: bool, epoch: int = 0, coordinator: int = 1, bumped: bool = False
) -> Any:
    marker = EndTxnMarker(commits, coordinator)
    batch = build_marker(marker, producer_id=7, producer_epoch=epoch, timestamp=0)
    return one.appender.append_internal(one.hosted(), batch, control=marker, bumped=bumped)


def committed(one: World, offset: int = 0) -> Any:
    return one.reader.read(one.hosted(), offset, bytes_max=1 << 20, read_committed=True)


@pytest.mark.feature("M01", "M02", "M06")
def test_readers_of_committed_records_wait_for_the_marker() -> None:
    one = world()
    one.append(b"before")
    transactional(one)
    one.append(b"behind")
    assert committed(one).last_stable == 1
    assert one.read(0).high_watermark == 3
    assert committed(one, 1).read is None
    end(one, commits=True)
    outcome = committed(one)
    assert (outcome.last_stable, outcome.aborted) == (4, None)


@pytest.mark.feature("M04")
def test_an_aborted_transaction_is_told_with_what_is_read() -> None:
    one = world()
    transactional(one)
    end(one, commits=False)
    assert committed(one).aborted == [(7, 0)]
    assert committed(one, 2).aborted is None


@pytest.mark.feature("M04")
def test_an_aborted_transaction_is_told_although_what_follows_it_finds_no_room() -> None:
    """A follower takes a leader's answer, in which only the last batch needs another segment. The
    directory is full, and the follower leads next.
    """
    leader = world()
    transactional(leader)
    end(leader, commits=False)
    leader.append(bytes(900_000))
    leader.append(bytes(300_000))
    records = bytes_of(leader.hosted().log.read(0, 1 << 30, end=4))

    disk = MemDisk()
    one = World(disk)
    one.show(replicated(partition(leader=2), segment_bytes=str(1 << 20)))
    disk.capacity_bytes = disk.capacity_bytes - disk.free_bytes() + len(records)
    with pytest.raises(DiskFullError):
        one.appender.append_replicated(one.hosted(), memoryview(records), 0, 0)
    assert one.hosted().partition.log_end == 3
    one.show(replicated(partition(leader=1, epoch=1, version=1, isr=(1,))))
    assert (one.hosted().partition.high_watermark, committed(one).aborted) == (3, [(7, 0)])


@pytest.mark.feature("L02", "L16")
def test_the_marker_of_an_earlier_transaction_does_not_end_a_later_one() -> None:
    one = world()
    transactional(one, epoch=1)
    end(one, commits=True, epoch=2, bumped=True)
    transactional(one, epoch=2)
    again = end(one, commits=True, epoch=2, bumped=True)
    assert again.error_code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert committed(one).last_stable == 2


def test_a_marker_that_is_there_already_is_acknowledged_and_not_written_again() -> None:
    one = world()
    transactional(one, epoch=1)
    for _ in range(2):
        assert end(one, commits=True, epoch=2, bumped=True).error_code is ErrorCode.NONE
    assert one.hosted().partition.log_end == 2


def test_a_late_batch_of_an_ended_transaction_is_fenced() -> None:
    one = world()
    transactional(one, epoch=1)
    end(one, commits=False, epoch=2, bumped=True)
    assert transactional(one, 1, epoch=1).error_code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_batch_that_nobody_verified_is_refused() -> None:
    one = world()
    refused = one.append(
        b"x",
        acks=-1,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        attributes_extra=TRANSACTIONAL_BIT,
    )
    assert refused.error_code is ErrorCode.INVALID_TXN_STATE


def own(one: World, control: ControlRecord, batch: bytes) -> ErrorCode:
    return one.appender.append_internal(one.hosted(), batch, control=control).error_code


@pytest.mark.parametrize(
    ("epoch", "heard"), [(3, ErrorCode.NONE), (2, ErrorCode.TRANSACTION_COORDINATOR_FENCED)]
)
def test_an_owner_that_was_replaced_cannot_come_back(epoch: int, heard: ErrorCode) -> None:
    one = world()
    for number in (3, epoch):
        owner = OwnerRecord(number)
        code = own(one, owner, build_owner(owner, timestamp=0))
    assert code is heard


@pytest.mark.feature("L10")
def test_records_of_a_group_in_a_transaction_count_from_its_marker() -> None:
    one = world()
    batch = build_batch(
        [(0, b"k", b"v", ())],
        producer_id=7,
        producer_epoch=0,
        attributes_extra=TRANSACTIONAL_BIT,
    )
    assert one.appender.append_internal(one.hosted(), batch).error_code is ErrorCode.NONE
    assert committed(one).last_stable == 0
    end(one, commits=True)
    assert committed(one).last_stable == 2


@pytest.mark.feature("M05")
def test_transactions_lie_mixed_in_a_partition_and_end_on_their_own() -> None:
    one = world()
    for sequence in range(2):
        transactional(one, sequence)
        transactional(one, sequence, producer_id=8)
    end(one, commits=True)
    assert committed(one).last_stable == 1
    log = one.hosted().log
    headers = iterate_headers(bytes_of(log.read(0, 1 << 20, end=log.log_end)))
    assert [header.producer_id for _, header in headers] == [7, 8, 7, 8, 7]
