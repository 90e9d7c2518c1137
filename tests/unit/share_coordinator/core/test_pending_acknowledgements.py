"""Acknowledgements of transactions, from the write of a leader to the end of the transaction."""

import pytest
from share_coordinator.core.effects import LoadWindows, TransactionsEnded
from share_coordinator.core.ended_transactions import KEPT_MS, SETTLED_MS
from share_coordinator.core.requests import (
    AlterOffsets,
    AlterOffsetsReply,
    DeleteOffsets,
    DeleteOffsetsReply,
    DeleteShareGroup,
    DeleteShareGroupReply,
    LeadersNotified,
    NewOffset,
    NewOffsets,
    TopicPartitions,
    TopicsDeleted,
)
from share_coordinator.core.settings import ShareSettings
from share_coordinator.core.upkeep import LETTERS_INTERVAL_MS
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import LeaderEpoch, Offset
from tidemark.model.share_state import DeliveryState, PendingBatch, SharePartitionKey, StateBatch
from unit.share_coordinator.worlds import G, World, batch, pending

AVAILABLE, ACKNOWLEDGED = DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED
ARCHIVING, ARCHIVED = DeliveryState.ARCHIVING, DeliveryState.ARCHIVED
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


def a_world(*held: PendingBatch, updates: int = 500) -> tuple[World, SharePartitionKey]:
    """One share-partition that starts at 10, and these pending acknowledgements."""
    settings = ShareSettings(share_coordinator_snapshot_update_records_per_snapshot=updates)
    world = World(settings, t=1)
    world.join("a", "t")
    key = world.key("t", 0)
    assert not world.write(key, start=10, pending=held).refused
    return world, key


def states(world: World, key: SharePartitionKey) -> tuple[tuple[StateBatch, ...], int]:
    """State batches that a leader reads, and the number of pending ones."""
    found = world.read(key)
    return found.batches, len(found.pending)


def test_pending_acknowledgements_are_read_beside_the_batches() -> None:
    world, key = a_world()
    world.write(key, batch(10, 19, AVAILABLE))
    held = pending(12, 13)
    assert world.write(key, pending=(held,)).error_code is ErrorCode.NONE
    found = world.read(key, leader_epoch=1)
    left = (batch(10, 11, AVAILABLE), batch(14, 19, AVAILABLE))
    assert (found.batches, found.pending) == (left, (held,))


@pytest.mark.parametrize(("commits", "state"), [(True, ACKNOWLEDGED), (False, AVAILABLE)])
def test_the_end_of_the_transaction_decides(commits: bool, state: DeliveryState) -> None:
    world, key = a_world(pending(12, 13))
    world.end_transaction(1, commits=commits)
    assert states(world, key) == ((batch(12, 13, state),), 0)


def test_a_reject_is_archived_by_the_commit() -> None:
    world, key = a_world(pending(12, 13, ARCHIVED))
    world.end_transaction(1, commits=True)
    assert states(world, key) == ((batch(12, 13, ARCHIVED),), 0)


@pytest.mark.parametrize("updates", [1, 500])
def test_they_outlive_the_owner_of_the_shard(updates: int) -> None:
    world, key = a_world(pending(12, 13), updates=updates)
    world.write(key, batch(15, 15, AVAILABLE))
    world.reload()
    assert states(world, key) == ((batch(15, 15, AVAILABLE),), 1)
    world.end_transaction(1, commits=True)
    world.reload()
    assert states(world, key) == ((batch(12, 13, ACKNOWLEDGED), batch(15, 15, AVAILABLE)), 0)


def test_leaders_are_notified_once_of_the_transactions_that_ended() -> None:
    world, key = a_world(pending(12, 12, epoch=1), pending(13, 13, producer=8))
    world.end_transaction(2, commits=True)
    world.end_transaction(2, commits=True)
    (ended,) = [effect for effect in world.effects if isinstance(effect, TransactionsEnded)]
    transaction = pending(12, 12, epoch=1).transaction
    assert (ended.transaction, ended.commits, ended.keys) == (transaction, True, (key,))
    assert states(world, key)[1] == 1


@pytest.mark.parametrize("hours", [0, 1, 23])
def test_the_next_owner_notifies_leaders_again_however_late_it_comes(hours: int) -> None:
    # Nobody else would: the records stay acquired at a leader that does not know of the end.
    world, key = a_world(pending(12, 12, epoch=1))
    world.end_transaction(2, commits=True)
    world.end_transaction(1, commits=True, producer=8)
    world.read(key, leader_epoch=3)
    world.beat("a", -1)
    world.sleep(hours * 3_600_000)
    world.effects.clear()
    world.reload()
    transaction = pending(12, 12, epoch=1).transaction
    assert world.effects == [TransactionsEnded(transaction, True, (key,), (LeaderEpoch(3),))]


def test_owners_notify_of_no_end_that_all_leaders_have_known_for_long() -> None:
    world, first, second = two_ends()
    world.beat("a", -1)
    world.tell(LeadersNotified(first.transaction))
    world.sleep(SETTLED_MS + 600_000)
    world.effects.clear()
    world.reload()
    assert world.effects == [second]
    world.tell(LeadersNotified(second.transaction))
    world.sleep(600_000)
    world.effects.clear()
    world.reload()
    assert world.effects == []
    log = list(world.log)
    world.sleep(KEPT_MS // 2)
    assert world.log == log


def test_a_settled_end_still_refuses_late_acknowledgements() -> None:
    world, key = a_world(pending(12, 12))
    world.end_transaction(1, commits=True)
    (ended,) = (one for one in world.effects if isinstance(one, TransactionsEnded))
    world.tell(LeadersNotified(ended.transaction))
    world.sleep(SETTLED_MS + 600_000)
    world.reload()
    late = pending(13, 13)
    assert world.write(key, pending=(late,)).refused == {late.transaction}


def two_ends() -> tuple[World, TransactionsEnded, TransactionsEnded]:
    """One producer's transactions, of which the first is committed and the second aborted."""
    world, key = a_world(pending(12, 12, epoch=1))
    world.end_transaction(2, commits=True)
    assert not world.write(key, pending=(pending(13, 13, epoch=2),)).refused
    world.end_transaction(3, commits=False)
    first, second = (one for one in world.effects if isinstance(one, TransactionsEnded))
    assert [one.transaction.producer_epoch for one in (first, second)] == [1, 2]
    world.effects.clear()
    return world, first, second


def test_the_next_owner_notifies_leaders_of_each_end_that_was_on_its_way() -> None:
    world, first, second = two_ends()
    world.reload()
    assert world.effects == [first, second]
    world.effects.clear()
    world.end_transaction(4, commits=True)
    world.reload()
    assert world.effects == [first, second]


def test_an_end_of_which_all_leaders_know_is_left_out_of_the_next() -> None:
    world, first, second = two_ends()
    world.tell(LeadersNotified(first.transaction))
    world.tell(LeadersNotified(second.transaction))
    world.end_transaction(4, commits=True)
    world.reload()
    assert world.effects == []


def test_the_next_owner_names_each_transaction_that_one_end_is_of() -> None:
    world, _ = a_world(pending(12, 12), pending(13, 13, epoch=1))
    world.end_transaction(2, commits=True)
    ended = [effect for effect in world.effects if isinstance(effect, TransactionsEnded)]
    assert [one.transaction.producer_epoch for one in ended] == [0, 1]
    world.effects.clear()
    world.reload()
    assert world.effects == ended


def test_a_write_after_the_end_is_refused_and_the_rest_of_it_holds() -> None:
    world, key = a_world()
    world.end_transaction(1, commits=True)
    late, following = pending(12, 13), pending(14, 14, epoch=1)
    answer = world.write(key, batch(15, 15, ACKNOWLEDGED), pending=(late, following))
    assert answer.error_code is ErrorCode.NONE
    assert answer.refused == {late.transaction}
    found = world.read(key)
    assert (found.batches, found.pending) == ((batch(15, 15, ACKNOWLEDGED),), (following,))


def test_the_next_owner_refuses_it_too() -> None:
    world, key = a_world()
    world.end_transaction(1, commits=True)
    world.reload()
    late = pending(12, 13)
    assert world.write(key, pending=(late,)).refused == {late.transaction}


def test_a_second_transaction_does_not_get_the_same_delivery() -> None:
    world, key = a_world(pending(12, 13))
    other = pending(13, 14, producer=8)
    assert world.write(key, pending=(other,)).refused == {other.transaction}
    later = pending(13, 13, count=2, producer=8)
    assert not world.write(key, pending=(later,)).refused
    assert world.read(key).pending == (pending(12, 12), later)


def test_what_is_finished_is_not_pending() -> None:
    world, key = a_world()
    world.write(key, batch(12, 12, ACKNOWLEDGED))
    late = pending(12, 13)
    assert world.write(key, pending=(late,)).refused == {late.transaction}
    assert states(world, key) == ((batch(12, 12, ACKNOWLEDGED),), 0)


def test_a_state_that_is_greater_removes_them() -> None:
    world, key = a_world(pending(12, 13))
    world.write(key, batch(12, 12, AVAILABLE), batch(13, 13, AVAILABLE, 2))
    found = world.read(key)
    assert (found.batches, found.pending) == ((batch(13, 13, AVAILABLE, 2),), (pending(12, 12),))


def test_the_start_passes_them() -> None:
    world, key = a_world(pending(12, 15))
    world.write(key, start=14)
    assert world.read(key).pending == (pending(14, 15),)
    world.write(key, start=16)
    world.end_transaction(1, commits=True)
    assert states(world, key) == ((), 0)


def test_a_commit_completes_deliveries() -> None:
    world, key = a_world()
    world.write(key, complete=2, pending=(pending(12, 14), pending(16, 16, ARCHIVED)))
    world.end_transaction(1, commits=True)
    state = world.shard._states.of(key)
    assert state is not None
    assert state.delivery_complete_count == 6


@pytest.mark.parametrize(
    "held",
    [
        pending(13, 12),
        pending(12, 13, AVAILABLE),
        pending(12, 13, DeliveryState.ACQUIRED),
        pending(12, 13, producer=-1),
        pending(12, 13, epoch=-1),
        pending(12, 13, epoch=2**15),
        pending(12, 13, count=2**15),
    ],
)
def test_a_pending_batch_that_cannot_be_is_refused(held: PendingBatch) -> None:
    world, key = a_world()
    log = list(world.log)
    assert world.write(key, pending=(held,)).error_code is ErrorCode.INVALID_REQUEST
    assert world.log == log


def empty_world() -> tuple[World, SharePartitionKey]:
    world, key = a_world(pending(12, 13))
    world.beat("a", -1)
    return world, key


def test_offsets_are_not_reset_while_a_transaction_holds_records() -> None:
    world, key = empty_world()
    reset = AlterOffsets(G, (NewOffsets(key.topic_id, "t", (NewOffset(0, Offset(3)),)),))
    (topic,) = world.ask(reset, AlterOffsetsReply).topics
    assert topic.partitions[0].error_code is UNSTABLE
    world.end_transaction(1, commits=False)
    (topic,) = world.ask(reset, AlterOffsetsReply).topics
    assert topic.partitions[0].error_code is ErrorCode.NONE


def test_offsets_and_groups_are_not_deleted_meanwhile() -> None:
    world, key = empty_world()
    forget = DeleteOffsets(G, (TopicPartitions(key.topic_id, "t", ()),))
    (topic,) = world.ask(forget, DeleteOffsetsReply).topics
    assert topic.error_code is UNSTABLE
    assert world.ask(DeleteShareGroup(G), DeleteShareGroupReply).error_code is UNSTABLE
    assert world.read(key).pending == (pending(12, 13),)
    world.end_transaction(1, commits=True)
    assert world.ask(DeleteShareGroup(G), DeleteShareGroupReply).error_code is ErrorCode.NONE


def test_a_deleted_topic_takes_them_along() -> None:
    world, key = a_world(pending(12, 13))
    world.topics.delete("t")
    world.tell(TopicsDeleted(frozenset({key.topic_id})))
    world.end_transaction(1, commits=True)
    assert not [effect for effect in world.effects if isinstance(effect, TransactionsEnded)]


def test_ends_are_forgotten_a_day_later() -> None:
    world, _ = a_world()
    world.end_transaction(1, commits=True)
    assert len(world.shard._states.ended) == 1
    world.beat("a", -1)
    world.sleep(KEPT_MS + 600_000)
    assert len(world.shard._states.ended) == 0
    world.reload()
    assert len(world.shard._states.ended) == 0


@pytest.mark.parametrize(("commits", "state"), [(True, ARCHIVED), (False, ARCHIVING)])
def test_dead_letters_are_archived_with_the_transaction_that_has_their_copies(
    commits: bool, state: DeliveryState
) -> None:
    world, key = a_world()
    world.write(key, batch(12, 13, ARCHIVING, 3))
    letter = pending(12, 13, ARCHIVED, 3, before=ARCHIVING)
    assert not world.write(key, pending=(letter,)).refused
    assert world.read(key).pending == (letter,)
    world.end_transaction(1, commits=commits)
    assert states(world, key) == ((batch(12, 13, state, 3),), 0)


def test_leaders_are_notified_of_dead_letters_until_they_are_archived() -> None:
    world, key = a_world()
    world.beat("a", -1)
    world.write(key, batch(12, 13, ARCHIVING, 3))
    world.reload()
    world.effects.clear()
    world.sleep(2 * LETTERS_INTERVAL_MS)
    assert world.effects == [LoadWindows((key,))] * 2
    world.write(key, batch(12, 13, ARCHIVED, 3))
    world.effects.clear()
    world.sleep(2 * LETTERS_INTERVAL_MS)
    assert world.effects == []


def test_dead_letters_are_not_pending_for_another_state() -> None:
    world, key = a_world()
    world.write(key, batch(12, 13, ARCHIVING, 3))
    letter = pending(12, 13, ACKNOWLEDGED, 3, before=ARCHIVING)
    found = world.write(key, pending=(letter,))
    assert found.error_code is ErrorCode.INVALID_REQUEST
    assert found.error_message == "dead letters 12 to 13 are pending for state ACKNOWLEDGED"
