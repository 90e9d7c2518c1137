from dataclasses import replace

import pytest
from controller.core.election_rules import (
    BrokerAvailability,
    TopicRules,
    choose_leader,
    demote,
    elect,
    is_unclean,
    lost_its_disk,
)
from tidemark.model.ids import NO_BROKER, BrokerId
from tidemark.model.metadata import PartitionImage
from unit.controller.worlds import a_topic

RULES = TopicRules()


def ids(*brokers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, brokers))


def partition(*replicas: int, **changes: object) -> PartitionImage:
    return replace(a_topic("t", replicas).partitions[0], **changes)  # type: ignore[arg-type]


def availability(*live: int, gone: tuple[int, ...] = (), restarted: int = -1) -> BrokerAvailability:
    return BrokerAvailability(ids(*live), ids(*live), ids(*gone), BrokerId(restarted))


def test_a_live_leader_stays() -> None:
    before = partition(1, 2, 3)
    assert elect(before, availability(1, 2), RULES) is before


@pytest.mark.feature("H08", "Y03")
def test_a_leader_that_is_gone_stays_until_its_lease_is_over() -> None:
    before = partition(1, 2, 3)
    assert elect(before, availability(2, 3), RULES) is before
    after = elect(before, availability(2, 3, gone=(1,)), RULES)
    assert (after.leader, after.leader_epoch, after.isr) == (2, 1, (2, 3))


def test_the_first_live_replica_of_the_isr_leads_next() -> None:
    assert choose_leader(partition(1, 2, 3, isr=ids(1, 3)), ids(2, 3)) == 3


@pytest.mark.feature("H13", "I04")
def test_losing_the_only_replica_keeps_it_in_the_isr_without_a_leader() -> None:
    after = elect(partition(1), availability(2, gone=(1,)), RULES)
    assert (after.leader, after.leader_epoch, after.last_known_leader) == (NO_BROKER, 1, 1)
    assert after.isr == (1,)


def test_a_partition_that_stays_without_a_leader_keeps_its_epoch() -> None:
    gone = elect(partition(1), availability(gone=(1,)), RULES)
    assert elect(gone, availability(2, gone=(1,)), RULES) is gone


def test_the_only_replica_leads_again_when_it_is_back() -> None:
    back = elect(elect(partition(1), availability(gone=(1,)), RULES), availability(1), RULES)
    assert (back.leader, back.leader_epoch, back.last_known_leader) == (1, 2, NO_BROKER)


def test_a_leader_that_restarted_gets_a_new_epoch() -> None:
    after = elect(partition(1, 2), availability(1, 2, restarted=1), RULES)
    assert (after.leader, after.leader_epoch) == (1, 1)


@pytest.mark.feature("H12", "H13")
def test_outside_the_isr_only_by_an_unclean_election_and_then_alone() -> None:
    lost = partition(1, 2, 3, isr=ids(1), leader=NO_BROKER, last_known_leader=BrokerId(1))
    assert elect(lost, availability(2, 3), RULES) is lost
    after = elect(lost, availability(2, 3), TopicRules(unclean_election=True))
    assert (after.leader, after.isr, after.elr) == (2, (2,), ())
    assert is_unclean(lost, BrokerId(2))


def test_an_eligible_leader_replica_leads_cleanly() -> None:
    waiting = partition(1, 2, 3, isr=ids(1), elr=ids(3), leader=NO_BROKER)
    after = elect(waiting, availability(2, 3), RULES)
    assert (after.leader, after.isr, after.elr) == (3, (3,), ())


def test_below_the_minimum_the_replaced_leader_stays_eligible() -> None:
    after = elect(partition(1, 2), availability(2, gone=(1,)), TopicRules(min_insync_replicas=2))
    assert (after.leader, after.isr, after.elr) == (2, (2,), (1,))


@pytest.mark.feature("Y09")
def test_a_broker_that_lost_its_disk_leaves_isr_and_elr() -> None:
    after = lost_its_disk(partition(1, 2, 3), BrokerId(1), RULES)
    assert (after.leader, after.isr, after.last_known_leader) == (NO_BROKER, (2, 3), 1)
    assert after.leader_epoch == 1


@pytest.mark.feature("Y09")
def test_the_last_member_that_lost_its_disk_leaves_an_empty_isr() -> None:
    after = lost_its_disk(partition(1, 2, isr=ids(1)), BrokerId(1), RULES)
    assert (after.isr, after.elr, after.last_known_leader) == ((), (), 1)
    assert elect(after, availability(1, 2), RULES) is after


def test_a_demotion_keeps_the_last_leader() -> None:
    after = demote(partition(1, 2))
    assert (after.leader, after.last_known_leader, after.leader_epoch) == (NO_BROKER, 1, 1)


@pytest.mark.feature("G17")
def test_members_of_the_isr_become_eligible_when_an_eligible_replica_is_elected() -> None:
    before = partition(1, 2, 3, isr=ids(1), elr=ids(2), leader=NO_BROKER, last_known_leader=1)
    after = elect(before, availability(2, gone=(1,)), TopicRules(min_insync_replicas=2))
    assert (after.leader, after.isr, after.elr) == (2, (2,), (1,))


def test_an_unclean_election_clears_the_elr() -> None:
    before = partition(1, 2, 3, isr=ids(1), elr=ids(2), leader=NO_BROKER, last_known_leader=1)
    rules = TopicRules(min_insync_replicas=2, unclean_election=True)
    after = elect(before, availability(3, gone=(1,)), rules)
    assert (after.leader, after.isr, after.elr) == (3, (3,), ())
