"""Records that are acquired, and that the application has not received."""

from tidemark.client.share.deliveries import PartitionDeliveries, ShareRecord
from tidemark.client.share.ready_records import ReadyRecords, Unseen

LOCK_MS = 400


def record(offset: int) -> ShareRecord:
    return ShareRecord("t", 0, offset, 0, None, b"v", (), 1)


def filled(*deliveries: PartitionDeliveries) -> ReadyRecords:
    """Two records of each, acquired 100 ms after one another."""
    ready = ReadyRecords()
    for number, one in enumerate(deliveries):
        records = [record(10 * number), record(10 * number + 1)]
        ready.add(one, records, 100.0 * number, LOCK_MS)
    return ready


def taken(ready: ReadyRecords, records_max: int, now: float) -> list[int]:
    return [one.offset for one in ready.take(records_max, now)]


def ours() -> PartitionDeliveries:
    return PartitionDeliveries(b"t" * 16, takes_own_fields=True)


def kafkas() -> PartitionDeliveries:
    return PartitionDeliveries(b"k" * 16)


def test_records_are_handed_out_in_the_order_of_answers() -> None:
    first, second = ours(), ours()
    ready = filled(first, second)
    assert taken(ready, 3, 0) == [0, 1, 10]
    assert list(second.held) == [10]
    assert taken(ready, 3, 0) == [11]
    assert taken(ready, 3, 0) == []


def test_records_whose_lock_has_ended_are_dropped() -> None:
    assert taken(filled(ours(), ours()), 9, LOCK_MS) == [10, 11]


def test_records_of_a_lost_session_are_dropped() -> None:
    first, second = ours(), ours()
    ready = filled(first, second)
    ready.drop([first])
    assert taken(ready, 9, 0) == [10, 11]


def test_records_are_taken_back_in_the_last_quarter_of_their_lock() -> None:
    first, second = ours(), ours()
    ready = filled(first, second)
    assert ready.next_return() == 300
    assert ready.take_back(299) == []
    taken(ready, 1, 0)
    assert ready.take_back(300) == [Unseen(first, [1])]
    assert ready.next_return() == 400
    assert taken(ready, 9, 300) == [10, 11]
    assert ready.next_return() is None


def test_records_whose_lock_has_ended_are_not_given_back() -> None:
    assert filled(ours()).take_back(LOCK_MS) == []


def test_brokers_that_count_all_deliveries_keep_theirs_until_the_lock_ends() -> None:
    other = kafkas()
    ready = filled(other)
    assert ready.next_return() is None
    assert ready.take_back(300) == []
    assert ready.unseen_of([other], 0) == []
    assert taken(ready, 9, 300) == [0, 1]


def test_unseen_records_of_a_session_that_ends() -> None:
    first, second = ours(), ours()
    ready = filled(first, second)
    taken(ready, 1, 0)
    assert ready.unseen_of([first], 0) == [Unseen(first, [1])]
    assert ready.unseen_of([first, second], LOCK_MS) == [Unseen(second, [10, 11])]
