from dataclasses import replace

import pytest
from controller.core.cluster import Change, Cluster
from controller.core.effects import PartitionResults
from controller.core.elections import (
    decide_elect_leaders,
    decide_shutdown,
    due_elections,
    due_handover,
    rebalance,
)
from controller.core.inputs import ControlledShutdown, ElectLeaders, PartitionRef, RequestHeader
from controller.core.leader_replacement import LeaderReplacement
from controller.core.liveness import LiveListing, incarnation_of
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_BROKER, BrokerEpoch, BrokerId, InstantMs
from tidemark.model.metadata import ClusterDelta, PartitionImage
from unit.controller.worlds import NEVER, a_cluster, a_topic, applied

NOW = InstantMs(0)
REFUSED = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
LED_BY_1_OF_2 = replace(
    a_topic("a", (1, 2, 3)).partitions[0], isr=(BrokerId(1), BrokerId(2)), elr=()
)
"""Broker 3 is out of the ISR."""


def new_replacement(cluster: Cluster) -> LeaderReplacement:
    return LeaderReplacement(cluster.image.position, lease_ms=3_000, fence_ms=500)


def partition(cluster: Cluster, number: int = 0) -> PartitionImage:
    return cluster.image.topics["a"].partitions[number]


def shutdown(cluster: Cluster, broker: int, at_once: int = 1_000) -> int:
    request = ControlledShutdown(
        RequestHeader(1, NEVER), BrokerId(broker), BrokerEpoch(100 + broker)
    )
    change, progress = decide_shutdown(cluster, request, at_once=at_once)
    if change is not None:
        applied(cluster, change)
    return progress.partitions_led


def elect(
    cluster: Cluster, replacement: LeaderReplacement | None = None, *, preferred: bool = True
) -> ErrorCode:
    request = ElectLeaders(RequestHeader(1, NEVER), preferred, (PartitionRef("a", 0),))
    waits = replacement or new_replacement(cluster)
    change, results = decide_elect_leaders(cluster, request, waits, NOW, at_once=1)
    if change is not None:
        applied(cluster, change)
    assert isinstance(results, PartitionResults)
    return results.partitions[0].error


def acknowledge(cluster: Cluster, replacement: LeaderReplacement, broker: int) -> None:
    replacement.demoted(
        (cluster.image.topics["a"].topic_id, 0),
        partition(cluster),
        cluster.image.position,
        cluster.image.brokers,
    )
    replacement.acknowledged(BrokerEpoch(100 + broker), cluster.image.position)


def test_a_stopping_broker_is_demoted_and_leaves_every_isr_that_has_others() -> None:
    cluster = a_cluster(a_topic("a", (1, 2), (2, 1), (1,)))
    assert shutdown(cluster, 1) == 1
    assert (partition(cluster, 0).leader, partition(cluster, 1).isr) == (NO_BROKER, (2,))
    assert partition(cluster, 2).leader == 1


def test_a_stopping_follower_stays_in_the_isr_of_a_leader_that_is_gone() -> None:
    """The leader may return without its disk: then the follower has the only copy."""
    cluster = a_cluster(a_topic("a", (1, 2)))
    gone = replace(cluster.image.brokers[BrokerId(1)], fenced=True)
    applied(cluster, Change(ClusterDelta(brokers_changed=(gone,))))
    shutdown(cluster, 2)
    assert due_handover(cluster, at_once=1_000) is None
    assert (partition(cluster).leader, partition(cluster).isr) == (1, (1, 2))


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_a_broker_with_many_partitions_is_handed_over_in_parts_and_leaves_the_isr_first(
    at_once: int,
) -> None:
    cluster = a_cluster(a_topic("a", (1, 2), (2, 1), (1, 3), (3, 1), (1,)))

    def handed_over() -> list[tuple[int, bool]]:
        """Return number of each partition without broker 1, and whether it has a leader."""
        partitions = cluster.image.topics["a"].partitions
        return [
            (one.partition, one.leader != NO_BROKER)
            for one in partitions
            if one.leader == NO_BROKER or 1 not in one.isr
        ]

    parts, led = [], shutdown(cluster, 1, at_once)
    parts.append(len(handed_over()))
    while (change := due_handover(cluster, at_once=at_once)) is not None:
        applied(cluster, change)
        parts.append(len(handed_over()))
        if len(handed_over()) == 2:
            assert handed_over() == [(1, True), (3, True)], "no partition is without a leader yet"
    assert parts == [*range(at_once, 4, at_once), 4]
    assert led == 2
    assert cluster.image.brokers[BrokerId(1)].shutting_down
    assert handed_over() == [(0, False), (1, True), (2, False), (3, True)]
    assert shutdown(cluster, 1, at_once) == 2


def due(cluster: Cluster, replacement: LeaderReplacement, at_once: int = 1_000) -> Change | None:
    return due_elections(cluster, replacement, NOW, at_once=at_once)


def test_nobody_is_elected_before_the_demoted_leader_has_acknowledged() -> None:
    cluster = a_cluster(a_topic("a", (1, 2)))
    replacement = new_replacement(cluster)
    shutdown(cluster, 1)
    assert due(cluster, replacement) is None
    acknowledge(cluster, replacement, 1)
    applied(cluster, due(cluster, replacement))
    assert (partition(cluster).leader, partition(cluster).isr) == (2, (2,))
    assert shutdown(cluster, 1) == 0


@pytest.mark.parametrize(("ended", "isr"), [((2, 3), (1,)), ((3,), (1, 2)), ((), (1, 2, 3))])
def test_followers_that_have_ended_leave_the_isr(
    ended: tuple[int, ...], isr: tuple[int, ...]
) -> None:
    cluster = a_cluster(a_topic("a", (1, 2, 3)))
    replacement, brokers = new_replacement(cluster), cluster.image.brokers
    processes = frozenset(incarnation_of(brokers[BrokerId(one)]) for one in ended)
    alive = incarnation_of(brokers[BrokerId(1)])
    replacement.see(brokers, LiveListing(1, frozenset({alive}), processes), NOW)
    change = due(cluster, replacement)
    if change is not None:
        applied(cluster, change)
    assert (partition(cluster).leader, partition(cluster).isr) == (1, isr)


@pytest.mark.parametrize("at_once", [1, 2, 3, 4, 100])
def test_elections_of_a_broker_with_many_partitions_come_in_parts_and_before_isr_changes(
    at_once: int,
) -> None:
    cluster = a_cluster(
        a_topic("a", (1, 3, 2), (2, 1, 3), (2, 3, 1)), a_topic("b", (3, 2, 1), (2, 1, 3))
    )
    replacement, brokers = new_replacement(cluster), cluster.image.brokers
    alive = frozenset(incarnation_of(brokers[BrokerId(one)]) for one in (1, 3))
    ended = frozenset({incarnation_of(brokers[BrokerId(2)])})
    replacement.see(brokers, LiveListing(1, alive, ended), NOW)
    fenced = replace(brokers[BrokerId(2)], fenced=True)
    applied(cluster, Change(ClusterDelta(brokers_changed=(fenced,))))
    changed = []
    while (change := due(cluster, replacement, at_once)) is not None:
        before = cluster.image
        applied(cluster, change)
        changed.append(
            [
                (now.leader != was.leader, now.isr)
                for topic in before.topics.values()
                for was, now in zip(
                    topic.partitions, cluster.image.topics[topic.name].partitions, strict=True
                )
                if was != now
            ]
        )
    assert [len(one) for one in changed[:-1]] == [at_once] * (len(changed) - 1)
    in_order = [led for part in changed for led, _ in sorted(part, reverse=True)]
    assert in_order == [True, True, True, False, False]
    assert all(2 not in isr for part in changed for _, isr in part)


@pytest.mark.feature("H09", "H11")
def test_a_preferred_replica_that_is_stopping_is_not_elected() -> None:
    cluster = a_cluster(a_topic("a", (1, 2)))
    replacement = new_replacement(cluster)
    shutdown(cluster, 1)
    acknowledge(cluster, replacement, 1)
    applied(cluster, due(cluster, replacement))
    assert elect(cluster) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert rebalance(cluster, at_once=1_000) is None


def test_elections_that_need_not_be_are_refused() -> None:
    cluster = a_cluster(a_topic("a", (1, 2)))
    assert elect(cluster) is ErrorCode.ELECTION_NOT_NEEDED
    assert elect(cluster, preferred=False) is ErrorCode.ELECTION_NOT_NEEDED


def test_an_unclean_election_does_not_come_before_a_clean_one_that_is_due() -> None:
    cluster = a_cluster(a_topic("a", (1, 2)))
    replacement = new_replacement(cluster)
    shutdown(cluster, 1)
    assert elect(cluster, preferred=False) is ErrorCode.NONE
    assert partition(cluster).leader == NO_BROKER, "broker 1 may not know yet, and lead"
    acknowledge(cluster, replacement, 1)
    applied(cluster, due(cluster, replacement))
    assert (partition(cluster).leader, partition(cluster).leader_epoch) == (2, 2)


@pytest.mark.feature("Y03")
def test_an_unclean_election_waits_for_the_last_leader_like_a_clean_one() -> None:
    cluster = a_cluster(replace(a_topic("a", (1, 2, 3)), partitions=(LED_BY_1_OF_2,)))
    replacement, two = new_replacement(cluster), cluster.image.brokers[BrokerId(2)]
    shutdown(cluster, 1)
    applied(cluster, Change(ClusterDelta(brokers_changed=(replace(two, fenced=True),))))
    code = elect(cluster, replacement, preferred=False)
    assert (code, partition(cluster).leader) == (REFUSED, NO_BROKER), "broker 1 may not know yet"
    acknowledge(cluster, replacement, 1)
    assert elect(cluster, replacement, preferred=False) is ErrorCode.NONE
    assert (partition(cluster).leader, partition(cluster).isr) == (3, (3,))


@pytest.mark.feature("H09", "H10")
def test_a_leader_in_the_place_of_the_preferred_replica_is_demoted() -> None:
    for demoting in (lambda one: elect(one) is ErrorCode.NONE, rebalanced):
        cluster = a_cluster(a_topic("a", (1, 2)))
        replacement = new_replacement(cluster)
        made = replace(partition(cluster), leader=BrokerId(2))
        cluster = a_cluster(replace(a_topic("a", (1, 2)), partitions=(made,)))
        assert demoting(cluster)
        assert (partition(cluster).leader, partition(cluster).last_known_leader) == (NO_BROKER, 2)
        acknowledge(cluster, replacement, 2)
        applied(cluster, due(cluster, replacement))
        assert (partition(cluster).leader, partition(cluster).isr) == (1, (1, 2))


@pytest.mark.feature("H09")
@pytest.mark.parametrize("all_of_them", [True, False])
@pytest.mark.parametrize("at_once", [1, 2, 4])
def test_a_request_for_many_elections_is_decided_in_parts_with_an_answer_for_each_partition(
    at_once: int, *, all_of_them: bool
) -> None:
    topic = a_topic("a", (1, 2), (1, 2), (2, 1), (1, 2), (1, 2))
    led_by_2 = tuple(replace(one, leader=BrokerId(2)) for one in topic.partitions)
    out_of_isr = replace(led_by_2[1], isr=(BrokerId(2),))
    partitions = (led_by_2[0], out_of_isr, *led_by_2[2:])
    cluster = a_cluster(replace(topic, partitions=partitions))
    replacement = new_replacement(cluster)
    named = None if all_of_them else tuple(PartitionRef("a", one) for one in (0, 1, 2, 3, 4, 9))
    rest: ElectLeaders | PartitionResults
    rest, demoted = ElectLeaders(RequestHeader(1, NEVER), preferred=True, partitions=named), []
    while isinstance(rest, ElectLeaders):
        before = sum(one.leader == NO_BROKER for one in cluster.image.topics["a"].partitions)
        change, rest = decide_elect_leaders(cluster, rest, replacement, NOW, at_once=at_once)
        if change is not None:
            applied(cluster, change)
        leaderless = sum(one.leader == NO_BROKER for one in cluster.image.topics["a"].partitions)
        demoted.append(leaderless - before)
    assert sum(demoted) == 3
    assert max(demoted) == min(at_once, 3)
    assert [(one.partition, one.error) for one in rest.partitions] == [
        (0, ErrorCode.NONE),
        (1, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        *([] if all_of_them else [(2, ErrorCode.ELECTION_NOT_NEEDED)]),
        (3, ErrorCode.NONE),
        (4, ErrorCode.NONE),
        *([] if all_of_them else [(9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]),
    ]


def rebalanced(cluster: Cluster) -> bool:
    applied(cluster, rebalance(cluster, at_once=1_000))
    return True


def test_an_unclean_election_of_the_only_target_ends_its_move() -> None:
    cluster = a_cluster(a_topic("a", (1,)))
    state = replace(
        partition(cluster),
        replicas=(BrokerId(3), BrokerId(1)),
        adding=(BrokerId(3),),
        removing=(BrokerId(1),),
        leader=NO_BROKER,
        last_known_leader=BrokerId(1),
    )
    gone = replace(cluster.image.brokers[BrokerId(1)], fenced=True)
    moving = replace(cluster.image.topics["a"], partitions=(state,))
    applied(cluster, Change(ClusterDelta(brokers_changed=(gone,), topics_changed=(moving,))))
    waits = new_replacement(cluster)
    waits.see(cluster.image.brokers, LiveListing(1), InstantMs(NOW - 3_000))
    assert elect(cluster, waits, preferred=False) is ErrorCode.NONE
    after = partition(cluster)
    assert (after.leader, after.isr, after.replicas) == (3, (3,), (3,))
    assert not after.is_reassigning
