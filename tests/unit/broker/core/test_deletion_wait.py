"""DeletionWait: deleted records are gone from every replica that may lead, or they are not."""

import pytest
from broker.core.deletion_wait import DeletionWait
from tidemark.model.errors import ErrorCode
from unit.broker.core.replicated import NOW, PlainReplica, state, three
from unit.broker.core.test_commit_wait import Hosted


def deleted(min_insync: str = "1") -> tuple[list[PlainReplica], DeletionWait[Hosted]]:
    """Three records that all have, of which the leader has deleted two."""
    replicas = three(min_insync_replicas=min_insync)
    leader, *followers = replicas
    for number in range(3):
        leader.write(number)
    for _ in range(2):
        for one in followers:
            one.fetch_from(leader, NOW)
    leader.partition.log_start_moved(2)
    return replicas, DeletionWait.of(Hosted(leader.partition), 2)


def fetch(leader: PlainReplica, *followers: PlainReplica, times: int = 2) -> None:
    """The second fetch says what the answer to the first one brought."""
    for _ in range(times):
        for one in followers:
            one.fetch_from(leader, NOW)


@pytest.mark.feature("A17")
def test_records_are_deleted_when_every_replica_in_sync_begins_behind_them() -> None:
    (leader, second, third), wait = deleted()
    fetch(leader, second)
    assert (wait.is_done, wait.outcome()) == (False, ErrorCode.REQUEST_TIMED_OUT)
    fetch(leader, third, times=1)
    assert not wait.is_done
    fetch(leader, third, times=1)
    assert (wait.is_done, wait.outcome()) == (True, ErrorCode.NONE)


def test_a_replica_that_left_the_isr_is_not_waited_for() -> None:
    (leader, second, _), wait = deleted("2")
    fetch(leader, second)
    leader.take(state(1, (1, 2), version=2), NOW)
    assert wait.is_done


def test_with_too_few_in_sync_others_may_lead_that_have_the_records() -> None:
    (leader, _, _), wait = deleted("2")
    leader.take(state(1, (1,), version=2), NOW)
    assert wait.outcome() is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("epoch", [6, 7])
def test_a_deletion_of_a_former_leader_epoch_is_lost(epoch: int) -> None:
    (leader, second, third), wait = deleted()
    fetch(leader, second, third)
    leader.take(state(2, (1, 2, 3), epoch=6, version=2), NOW)
    if epoch == 7:
        leader.take(state(1, (1, 2, 3), epoch=7, version=3), NOW)
    assert wait.is_lost
    assert wait.outcome() is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_new_leader_waits_for_the_first_fetch_of_each_member() -> None:
    (leader, second, third), _ = deleted()
    fetch(leader, second, third)
    for one in (leader, second, third):
        one.take(state(1, (1, 2, 3), epoch=6, version=2), NOW)
    again = DeletionWait.of(Hosted(leader.partition), 1)
    assert not again.is_done
    fetch(leader, second, third, times=1)
    assert again.is_done
