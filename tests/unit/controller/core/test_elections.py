from dataclasses import replace

from controller.core.elections import choose_leader, elect, elect_all
from tidemark.model.ids import NO_BROKER, BrokerId
from tidemark.model.metadata import PartitionImage
from unit.controller.worlds import a_topic


def partition(*replicas: int, isr: tuple[int, ...] = ()) -> PartitionImage:
    whole = a_topic("t", replicas).partitions[0]
    return replace(whole, isr=tuple(map(BrokerId, isr))) if isr else whole


def live(*brokers: int) -> frozenset[BrokerId]:
    return frozenset(map(BrokerId, brokers))


def test_a_leader_that_lives_stays() -> None:
    before = partition(1, 2, 3)
    assert elect(before, live(1, 2)) is before


def test_the_first_live_replica_of_the_isr_leads_next() -> None:
    assert choose_leader(partition(1, 2, 3, isr=(1, 3)), live(2, 3)) == 3
    after = elect(partition(1, 2, 3), live(2, 3))
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (2, 1, 1)


def test_losing_the_only_replica_leaves_nobody_and_raises_the_epoch() -> None:
    after = elect(partition(1), live(2))
    assert (after.leader, after.leader_epoch, after.last_known_leader) == (NO_BROKER, 1, 1)
    assert after.isr == (1,)


def test_nobody_stays_nobody_without_another_epoch() -> None:
    gone = elect(partition(1), live())
    assert elect(gone, live(2)) is gone


def test_the_only_replica_leads_again_when_it_is_back() -> None:
    back = elect(elect(partition(1), live()), live(1))
    assert (back.leader, back.leader_epoch, back.last_known_leader) == (1, 2, NO_BROKER)


def test_a_leader_that_restarted_gets_a_new_epoch() -> None:
    after = elect(partition(1, 2), live(1, 2), restarted=BrokerId(1))
    assert (after.leader, after.leader_epoch) == (1, 1)


def test_a_follower_that_restarted_changes_nothing() -> None:
    before = partition(1, 2)
    assert elect(before, live(1, 2), restarted=BrokerId(2)) is before


def test_only_topics_with_a_change_are_named() -> None:
    topics = [a_topic("a", (1,), (2,)), a_topic("b", (2,))]
    (changed,) = elect_all(topics, live(2))
    assert changed.name == "a"
    assert [item.leader for item in changed.partitions] == [NO_BROKER, 2]
