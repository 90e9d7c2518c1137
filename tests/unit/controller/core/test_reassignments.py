from dataclasses import replace

import pytest
from controller.core.cluster import Cluster
from controller.core.effects import PartitionResult
from controller.core.inputs import AlterReassignments, Move, RequestHeader
from controller.core.reassignments import (
    cancelled,
    completed,
    decide_reassignments,
    moved_to,
    target_of,
)
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import NO_BROKER, BrokerId
from tidemark.model.metadata import PartitionImage
from unit.controller.worlds import NEVER, a_broker, a_cluster, a_topic, applied

WHOLE = a_topic("a", (1, 2)).partitions[0]


def ids(*brokers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, brokers))


ALL = ids(1, 2, 3, 4)


def four() -> Cluster:
    return a_cluster(a_topic("a", (1, 2)), brokers=tuple(a_broker(one) for one in (1, 2, 3, 4)))


def ask(cluster: Cluster, *replicas: int, cancel: bool = False, rf: bool = True) -> PartitionResult:
    move = Move("a", 0, None if cancel else ids(*replicas))
    request = AlterReassignments(RequestHeader(1, NEVER), (move,), allow_rf_change=rf)
    change, results = decide_reassignments(cluster, request, replicas_per_topic_max=1_000)
    if change is not None:
        applied(cluster, change)
    return results.partitions[0]


def partition(cluster: Cluster) -> PartitionImage:
    return cluster.image.topics["a"].partitions[0]


def test_new_replicas_are_added_before_old_ones_go() -> None:
    cluster = four()
    assert ask(cluster, 3, 4).error is ErrorCode.NONE
    moving = partition(cluster)
    assert moving.replicas == (3, 4, 1, 2)
    assert (moving.adding, moving.removing) == ((3, 4), (1, 2))
    assert target_of(moving) == (3, 4)


def test_when_the_target_is_in_sync_the_old_ones_go_and_their_leader_is_demoted() -> None:
    moving = moved_to(WHOLE, ids(3, 4), ALL)
    after = completed(replace(moving, isr=ids(1, 2, 3, 4)))
    assert (after.replicas, after.isr, after.is_reassigning) == ((3, 4), (3, 4), False)
    assert (after.leader, after.last_known_leader) == (NO_BROKER, 1)


def test_a_leader_that_stays_leads_in_the_next_epoch_once_a_replica_is_removed() -> None:
    begun = moved_to(WHOLE, ids(1, 3), ALL)
    after = completed(replace(begun, isr=ids(1, 2, 3)))
    assert (after.leader, after.leader_epoch, after.replicas) == (1, 1, (1, 3))
    taken_back = cancelled(begun, ALL)
    assert (begun.leader_epoch, taken_back.leader, taken_back.leader_epoch) == (0, 1, 1)


def test_a_cancelled_move_restores_the_replicas() -> None:
    cluster = four()
    ask(cluster, 3, 4)
    assert ask(cluster, cancel=True).error is ErrorCode.NONE
    assert (partition(cluster).replicas, partition(cluster).is_reassigning) == ((1, 2), False)
    assert ask(cluster, cancel=True).error is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_another_target_replaces_the_one_under_way() -> None:
    cluster = four()
    ask(cluster, 3, 4)
    ask(cluster, 1, 3)
    assert (partition(cluster).replicas, partition(cluster).adding) == ((1, 3, 2), (3,))


def test_the_replication_factor_changes_only_if_it_may() -> None:
    cluster = four()
    assert ask(cluster, 1, rf=False).error is ErrorCode.INVALID_REPLICATION_FACTOR
    assert ask(cluster, 1, 2, 3).error is ErrorCode.NONE


@pytest.mark.parametrize("replicas", [(1, 1), (1, 9), ()])
def test_replicas_that_cannot_be_are_refused(replicas: tuple[int, ...]) -> None:
    assert ask(four(), *replicas).error is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_leader_that_the_next_move_leaves_out_is_demoted() -> None:
    moving = replace(moved_to(WHOLE, ids(3, 4), ALL), isr=ids(1, 3), leader=BrokerId(3))
    after = moved_to(moving, ids(1, 4), ALL)
    assert (after.leader, after.last_known_leader, after.isr) == (NO_BROKER, 3, (1,))


def test_a_move_that_leaves_no_replica_in_sync_is_refused() -> None:
    moving = replace(moved_to(WHOLE, ids(3, 4), ALL), isr=ids(3), leader=BrokerId(3))
    with pytest.raises(TidemarkError, match="Only replicas that the present move has added"):
        moved_to(moving, ids(1, 4), ALL)


def test_the_last_replica_that_is_eligible_is_not_moved_away() -> None:
    """Nobody is in sync: the log of the last member of the ISR is lost."""
    moving = replace(
        moved_to(WHOLE, ids(3, 4), ALL),
        isr=(),
        elr=ids(3),
        leader=NO_BROKER,
        last_known_leader=BrokerId(1),
    )
    with pytest.raises(TidemarkError, match="wait until others are"):
        cancelled(moving, ALL)
    with pytest.raises(TidemarkError, match="wait until others are"):
        moved_to(moving, ids(1, 4), ALL)


def test_a_live_member_of_the_isr_is_not_given_up_for_dead_ones() -> None:
    """Broker 1 died, and leaves the ISR later; it may return without its disk."""
    moving = replace(moved_to(WHOLE, ids(3, 4), ALL), isr=ids(1, 3), leader=BrokerId(3))
    alive = ids(2, 3, 4)
    with pytest.raises(TidemarkError, match="alive"):
        cancelled(moving, alive)
    with pytest.raises(TidemarkError, match="alive"):
        moved_to(moving, ids(1, 4), alive)
    assert cancelled(moving, ()).isr == (1,), "all members are equally dead"


def moves(cluster: Cluster, replicas_max: int, *targets: tuple[int, ...]) -> list[ErrorCode]:
    """Return the error of each partition of ``a`` that moves to a target."""
    asked = tuple(Move("a", number, ids(*target)) for number, target in enumerate(targets))
    request = AlterReassignments(RequestHeader(1, NEVER), asked, allow_rf_change=True)
    change, results = decide_reassignments(cluster, request, replicas_max)
    if change is not None:
        applied(cluster, change)
    return [one.error for one in results.partitions]


def test_a_topic_gets_no_more_replicas_than_its_znode_holds() -> None:
    """Otherwise the write would fail, and the request would end one term after the other."""
    cluster = a_cluster(a_topic("a", (1,), (1,), (1,)))
    refused = ErrorCode.POLICY_VIOLATION
    assert moves(cluster, 6, (1, 2), (2, 3), (3,)) == [ErrorCode.NONE, ErrorCode.NONE, refused]
    assert moves(cluster, 6, (2,)) == [ErrorCode.NONE], "it has the replica already"
    assert moves(cluster, 3, (1,)) == [ErrorCode.NONE], "fewer replicas are always possible"
