from share_coordinator.core.share_state import (
    ShareState,
    from_snapshot,
    leader_update,
    update_of,
)
from tidemark.model.ids import LeaderEpoch, Offset
from tidemark.model.share_state import DeliveryState, ReadState, SharePartitionKey, StateEpoch
from unit.broker.core.groups.consumer.worlds import topic_id
from unit.share_coordinator.worlds import G, a_write, batch

KEY = SharePartitionKey(G, topic_id(1), 0)
ACKNOWLEDGED = DeliveryState.ACKNOWLEDGED
STATE = ShareState(
    state_epoch=StateEpoch(3),
    leader_epoch=LeaderEpoch(2),
    start_offset=Offset(10),
    delivery_complete_count=1,
    batches=(batch(12, 12, ACKNOWLEDGED),),
    snapshot_epoch=4,
    created_at=1_000,
)
WRITE = a_write(KEY, 3, batch(13, 14, ACKNOWLEDGED), start=12, leader_epoch=5, complete=3)


def test_an_update_makes_what_the_write_would() -> None:
    replayed = STATE.updated(update_of(STATE, WRITE))
    written = STATE.written(WRITE)
    assert replayed.batches == written.batches == (batch(12, 14, ACKNOWLEDGED),)
    assert (replayed.start_offset, replayed.leader_epoch) == (12, 5)
    assert (replayed.delivery_complete_count, replayed.update_count) == (3, 1)


def test_a_snapshot_makes_the_same_state() -> None:
    value = STATE.as_snapshot(2_000)
    assert (value.snapshot_epoch, value.create_timestamp, value.write_timestamp) == (
        5,
        1_000,
        2_000,
    )
    found = from_snapshot(value)
    assert (found.batches, found.start_offset) == (STATE.batches, STATE.start_offset)


def test_the_start_never_goes_back() -> None:
    assert STATE.written(a_write(KEY, 3, start=9)).start_offset == 10
    assert STATE.updated(update_of(STATE, a_write(KEY, 3, start=9))).start_offset == 10


def test_a_late_write_does_not_count_from_a_later_start() -> None:
    late = a_write(KEY, 3, start=4, leader_epoch=2, complete=6)
    assert STATE.written(late).delivery_complete_count == 1
    assert STATE.updated(update_of(STATE, late)).delivery_complete_count == 1
    without = a_write(KEY, 3, leader_epoch=2, complete=6)
    assert STATE.written(without).delivery_complete_count == 6


def test_an_update_of_an_earlier_snapshot_changes_nothing() -> None:
    earlier = update_of(from_snapshot(STATE.as_snapshot(0)), WRITE)
    assert STATE.updated(earlier) is STATE


def test_a_newer_leader_changes_nothing_else() -> None:
    found = STATE.updated(leader_update(STATE, ReadState(KEY, LeaderEpoch(7))))
    assert (found.leader_epoch, found.start_offset, found.batches) == (7, 10, STATE.batches)
    assert found.delivery_complete_count == 1
