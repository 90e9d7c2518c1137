"""Records of acquired offsets, out of whole batches."""

from tidemark.client.share.acquired_records import OFFSETS_MAX, Read, read_acquired
from tidemark.client.share.share_requests import Acquired
from tidemark.codec.record_batch import set_base_offset_and_epoch
from tidemark.codec.records import build_batch
from tidemark.model.ids import LeaderEpoch, Offset
from tidemark.model.topics import TopicPartition

AT = TopicPartition("t", 2)


def batch(base_offset: int, count: int = 3) -> bytearray:
    records = [(0, b"k", b"%d" % (base_offset + one), ()) for one in range(count)]
    made = bytearray(build_batch(records))
    set_base_offset_and_epoch(made, 0, Offset(base_offset), LeaderEpoch(0))
    return made


def read(content: bytes, *acquired: Acquired) -> Read:
    return read_acquired(AT, memoryview(content), acquired, check_crcs=True)


def test_only_acquired_records_are_read_with_their_delivery_count() -> None:
    found = read(bytes(batch(5)), Acquired(5, 5, 1), Acquired(7, 7, 3))
    assert [(one.offset, one.value, one.delivery_count) for one in found.records] == [
        (5, b"5", 1),
        (7, b"7", 3),
    ]
    assert (found.gaps, found.unread, found.error) == ([], [], None)
    assert (found.records[0].topic, found.records[0].partition) == ("t", 2)


def test_acquired_offsets_without_a_record_are_gaps() -> None:
    found = read(bytes(batch(5) + batch(10)), Acquired(5, 12, 1))
    assert len(found.records) == 6
    assert found.gaps == [8, 9]


def test_a_damaged_batch_leaves_the_offsets_from_it_on_unread() -> None:
    damaged = batch(10)
    damaged[-1] ^= 1
    found = read(bytes(batch(5) + damaged), Acquired(5, 7, 1), Acquired(10, 12, 2))
    assert [one.offset for one in found.records] == [5, 6, 7]
    assert (found.gaps, found.unread) == ([], [10, 11, 12])
    assert found.error is not None


def test_an_absurd_number_of_offsets_is_refused() -> None:
    found = read(b"", Acquired(0, OFFSETS_MAX, 1))
    assert (found.records, found.gaps) == ([], [])
    assert found.error is not None
