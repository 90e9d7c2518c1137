import pytest
from broker.storage.log import AppendInfo, Log
from broker.storage.log_copy import append_chunk, begin_at, is_void, read_chunk
from tidemark.codec.control_record import EndTxnMarker, build_marker
from tidemark.codec.record_batch import read_header, set_base_offset_and_epoch
from tidemark.model.ids import LeaderEpoch, Offset
from tidemark.storage.batch_walk import FrameError
from unit.broker.storage.log_worlds import NOW, ORDERS, append, bytes_of, new_log, opened

TRANSACTIONAL = 0x10


def copied(log: Log, future: Log, bytes_max: int = 1 << 20) -> None:
    while future.log_end < log.log_end:
        offset = max(future.log_end, log.log_start)
        append_chunk(future, read_chunk(log.read(offset, bytes_max, end=log.log_end)), NOW)


def whole(log: Log) -> bytes:
    return bytes_of(log.read(log.log_start, 1 << 30, end=log.log_end))


def abort(log: Log, producer_id: int) -> None:
    """Append a marker as the broker does."""
    marker = EndTxnMarker(commits=False, coordinator_epoch=1)
    batch = bytearray(
        build_marker(marker, producer_id=producer_id, producer_epoch=0, timestamp=NOW)
    )
    set_base_offset_and_epoch(batch, 0, Offset(log.log_end), LeaderEpoch(0))
    header = read_header(batch)
    info = AppendInfo(header.base_offset, header.last_offset, NOW, 0, len(batch))
    log.append([batch], info, NOW)
    log.producers.replay(header, NOW, marker)
    log.index_aborted()


@pytest.mark.feature("AD92")
@pytest.mark.parametrize("bytes_max", [1, 300, 1 << 20])
def test_a_copy_has_the_same_bytes_epochs_and_producers(bytes_max: int) -> None:
    _, _, log = new_log()
    _, _, future = new_log()
    for number in range(30):
        append(
            log, records=2, epoch=number // 10, producer_id=7, producer_epoch=0, sequence=2 * number
        )
    copied(log, future, bytes_max)
    assert whole(future) == whole(log)
    assert future.epochs.entries() == log.epochs.entries()
    assert future.producers.state() == log.producers.state()


@pytest.mark.feature("AD92")
def test_aborted_transactions_are_indexed_in_the_copy() -> None:
    _, _, log = new_log()
    _, _, future = new_log()
    append(log, attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, sequence=0)
    abort(log, 7)
    copied(log, future)
    read = log.read(0, 1 << 20, end=log.log_end)
    assert future.history.aborted_in(0, read, 2) == log.history.aborted_in(0, read, 2) != []


@pytest.mark.feature("AD92")
def test_a_log_that_starts_inside_of_a_batch_is_copied_from_that_batch_on() -> None:
    _, _, log = new_log()
    _, _, future = new_log()
    for _ in range(3):
        append(log, records=10)
    log.advance_log_start(14)
    future.truncate_fully_and_start_at(14)
    copied(log, future)
    future.advance_log_start(14)
    assert whole(future) == whole(log)
    assert future.first_base_offset == 10


@pytest.mark.feature("AD92", "K07")
@pytest.mark.parametrize("start", [20, 24, 40])
def test_a_copy_has_the_producers_whose_batches_are_deleted(start: int) -> None:
    """Among them a producer in the middle of a transaction, and one that may retry its batch."""
    disk, _, log = new_log()
    _, _, source = new_log()
    for sequence in (0, 10):
        write = {"producer_id": 7, "producer_epoch": 3, "sequence": sequence}
        append(source, records=10, attributes=TRANSACTIONAL, **write)
    append(source, records=10, producer_id=8, producer_epoch=0, sequence=0)
    append(source, records=10)
    source.advance_log_start(start)
    begin_at(log, source, start)
    copied(source, log)
    log.advance_log_start(start)
    before = log.producers.state()
    assert {one.producer_id for one in before.entries} == {7, 8}
    assert before == source.producers.state()
    disk.kill()
    again = opened(disk).logs[ORDERS]
    assert (again.log_start, again.producers.state()) == (start, before)


@pytest.mark.feature("AD92")
def test_a_flipped_bit_is_not_copied() -> None:
    disk, _, log = new_log()
    append(log)
    read = log.read(0, 1 << 20, end=1)
    disk.flip_bit(f"orders-0/{0:020d}.log", 70)
    with pytest.raises(FrameError, match="CRC"):
        read_chunk(read)


@pytest.mark.feature("AD92")
def test_what_was_cut_meanwhile_is_void() -> None:
    _, _, log = new_log()
    append(log)
    append(log)
    read = log.read(0, 1 << 20, end=2)
    assert not is_void(read)
    log.truncate_to(1)
    assert is_void(read)
