"""Reservations of group ids, and requests parked on them."""

from broker.core.groups.reserved_ids import FOUND_FOR_MS, RESERVATION_MIN_MS, ReservedIds
from tidemark.codec.group_records import ShareGroupMetadataRecord, ShareGroupMetadataValue
from tidemark.model.ids import InstantMs
from unit.broker.core.groups.group_worlds import join

T = InstantMs(1_000)


def reserved(owner_epoch: int = 0) -> ReservedIds:
    ids = ReservedIds()
    for record in ids.reserve("g", owner_epoch, T):
        ids.replay(record)
    ids.check()
    return ids


def test_a_reservation_is_kafkas_record_of_a_share_group() -> None:
    value = ShareGroupMetadataValue(epoch=3)
    records = ReservedIds().reserve("g", 3, T)
    assert records == (ShareGroupMetadataRecord("g", value),)


def test_only_a_newer_owner_writes_again() -> None:
    ids = reserved(3)
    assert ids.reserve("g", 3, T) == ids.reserve("g", 2, T) == ()
    assert [one.value.epoch for one in ids.reserve("g", 4, T) if one.value] == [4]


def test_a_reservation_ends_with_its_tombstone() -> None:
    ids = reserved(3)
    assert ids.release("g", 2) == ids.release("other", 9) == ()
    (tombstone,) = ids.release("g", 3)
    ids.replay(tombstone)
    ids.check()
    assert "g" not in ids


def test_a_reservation_may_be_abandoned_after_its_minimum() -> None:
    ids = reserved()
    assert not ids.may_be_abandoned("g", InstantMs(T + RESERVATION_MIN_MS - 1))
    assert ids.may_be_abandoned("g", InstantMs(T + RESERVATION_MIN_MS))
    ids.loaded(InstantMs(T + RESERVATION_MIN_MS))
    assert not ids.may_be_abandoned("g", InstantMs(T + RESERVATION_MIN_MS))


def test_a_group_that_was_found_is_not_looked_up_for_a_while() -> None:
    ids = reserved()
    assert not ids.was_found("g", T)
    ids.found("g", T)
    assert ids.was_found("g", InstantMs(T + FOUND_FOR_MS - 1))
    assert not ids.was_found("g", InstantMs(T + FOUND_FOR_MS))


def test_the_first_parked_request_of_a_group_begins_a_look_up() -> None:
    ids = reserved()
    assert [ids.park(one, join()) for one in (1, 2)] == [True, False]
    assert [one.request_id for one in ids.take_parked("g")] == [1, 2]
    assert ids.take_parked("g") == []
    assert ids.park(3, join())
    ids.check()
