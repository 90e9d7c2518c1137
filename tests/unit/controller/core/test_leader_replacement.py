from dataclasses import replace

import pytest
from controller.core.election_rules import demote
from controller.core.leader_replacement import LeaderReplacement
from tidemark.model.ids import BrokerId, ControllerEpoch, InstantMs
from tidemark.model.metadata import FeedPosition
from unit.controller.worlds import a_broker, a_topic, listing, topic_id

START = FeedPosition(ControllerEpoch(5), 0)
ONE = a_broker(1)
BROKERS = {ONE.broker_id: ONE}
KEY = (topic_id("a"), 0)
ALIVE = listing(1, ONE)
LEADERLESS = demote(a_topic("a", (1, 2)).partitions[0])


def new_replacement() -> LeaderReplacement:
    return LeaderReplacement(START, lease_ms=3_000, fence_ms=500)


def at(milliseconds: int) -> InstantMs:
    return InstantMs(milliseconds)


@pytest.mark.feature("Y03")
def test_the_lease_of_a_broker_that_is_gone_expires_a_whole_lease_later() -> None:
    replacement = new_replacement()
    replacement.see(BROKERS, listing(1), at(1_000))
    assert replacement.next_deadline(at(0)) == 4_000
    assert replacement.expired(at(3_999)) == frozenset()
    assert replacement.newly_expired(at(4_000)) == {1}
    assert replacement.newly_expired(at(4_001)) == frozenset()


@pytest.mark.feature("Y03")
def test_the_longer_lease_of_a_broker_counts() -> None:
    replacement, longer = new_replacement(), replace(ONE, lease_ms=5_000)
    replacement.see({longer.broker_id: longer}, listing(1), at(1_000))
    assert replacement.expired(at(5_999)) == frozenset()
    assert replacement.expired(at(6_000)) == {1}


def test_a_broker_that_is_back_is_not_gone() -> None:
    replacement = new_replacement()
    replacement.see(BROKERS, listing(1), at(1_000))
    replacement.see(BROKERS, listing(2, ONE), at(2_000))
    assert replacement.expired(at(9_000)) == frozenset()


@pytest.mark.feature("J7")
def test_a_fenced_broker_that_makes_its_znode_again_must_register_within_a_lease() -> None:
    replacement, fenced = new_replacement(), replace(ONE, fenced=True)
    replacement.see(BROKERS, listing(1), at(1_000))
    assert replacement.newly_expired(at(4_000)) == {1}
    for number, listed in enumerate((listing(2, ONE), listing(3), listing(4, ONE))):
        replacement.see({ONE.broker_id: fenced}, listed, at(5_000 + number))
    assert replacement.expired(at(7_999)) == frozenset(), "it has a lease's time to register"
    assert replacement.newly_expired(at(8_000)) == {1}
    replacement.see(BROKERS, listing(5, ONE), at(8_000))
    assert replacement.expired(at(90_000)) == frozenset()


@pytest.mark.feature("J7")
def test_a_controller_that_only_fenced_brokers_do_not_reach_resigns() -> None:
    replacement, fenced = followed(), {ONE.broker_id: replace(ONE, fenced=True)}
    replacement.stream_lost(ONE.broker_epoch, at(1_000))
    replacement.see(fenced, ALIVE, at(1_000))
    assert replacement.should_resign(fenced, ALIVE, at(4_000))


@pytest.mark.feature("Y03")
def test_a_demoted_leader_that_is_alive_must_acknowledge_the_demotion() -> None:
    replacement = new_replacement()
    position = FeedPosition(ControllerEpoch(5), 7)
    replacement.demoted(KEY, LEADERLESS, position, BROKERS)
    assert not replacement.is_replaceable(KEY, LEADERLESS, BROKERS, frozenset())
    replacement.acknowledged(ONE.broker_epoch, position)
    assert replacement.is_replaceable(KEY, LEADERLESS, BROKERS, frozenset())


def test_a_new_controller_waits_for_an_acknowledgement_of_its_own_feed() -> None:
    replacement = new_replacement()
    assert not replacement.is_replaceable(KEY, LEADERLESS, BROKERS, frozenset())
    replacement.acknowledged(ONE.broker_epoch, START)
    assert replacement.is_replaceable(KEY, LEADERLESS, BROKERS, frozenset())


def test_another_process_of_the_same_id_replaces_the_one_that_led() -> None:
    replacement, again = new_replacement(), a_broker(1, epoch=200)
    replacement.demoted(KEY, LEADERLESS, START, BROKERS)
    assert replacement.is_replaceable(KEY, LEADERLESS, {again.broker_id: again}, frozenset())


def test_a_last_leader_that_is_unknown_or_expired_delays_nothing() -> None:
    replacement, nobody = new_replacement(), replace(LEADERLESS, last_known_leader=BrokerId(-1))
    assert replacement.is_replaceable(KEY, nobody, BROKERS, frozenset())
    assert replacement.is_replaceable(KEY, LEADERLESS, BROKERS, frozenset({BrokerId(1)}))


def test_a_stream_that_stays_lost_fences_its_broker_once() -> None:
    replacement, other = new_replacement(), a_broker(2)
    replacement.see({**BROKERS, other.broker_id: other}, listing(1, ONE, other), at(0))
    replacement.stream_regained(other.broker_epoch)
    replacement.stream_lost(ONE.broker_epoch, at(1_000))
    assert replacement.to_fence(BROKERS, at(1_499)) == []
    assert replacement.to_fence(BROKERS, at(1_500)) == [ONE]
    assert replacement.to_fence(BROKERS, at(9_000)) == []


def test_a_stream_that_is_back_fences_nobody() -> None:
    replacement = new_replacement()
    replacement.stream_lost(ONE.broker_epoch, at(1_000))
    replacement.stream_regained(ONE.broker_epoch)
    assert replacement.to_fence(BROKERS, at(9_000)) == []
    assert replacement.next_deadline(at(0)) is None


def followed() -> LeaderReplacement:
    """Return one with a broker that is subscribed."""
    replacement = LeaderReplacement(
        START, lease_ms=3_000, fence_ms=500, begun_at=at(0), no_subscriber_ms=20_000
    )
    replacement.see(BROKERS, listing(1, ONE), at(0))
    replacement.stream_regained(ONE.broker_epoch)
    return replacement


@pytest.mark.feature("J7")
def test_without_subscribers_nobody_is_fenced_and_the_controller_resigns_a_lease_later() -> None:
    replacement = followed()
    replacement.stream_lost(ONE.broker_epoch, at(1_000))
    assert replacement.to_fence(BROKERS, at(9_000)) == []
    assert replacement.next_deadline(at(1_000)) == 4_000
    assert not replacement.should_resign(BROKERS, ALIVE, at(3_999))
    assert replacement.should_resign(BROKERS, ALIVE, at(4_000))
    replacement.stream_regained(ONE.broker_epoch)
    assert not replacement.should_resign(BROKERS, ALIVE, at(9_000))


@pytest.mark.feature("J7")
def test_a_term_without_subscribers_from_its_start_lasts_longer() -> None:
    replacement = LeaderReplacement(
        START, lease_ms=3_000, fence_ms=500, begun_at=at(1_000), no_subscriber_ms=20_000
    )
    replacement.see(BROKERS, listing(1, ONE), at(1_000))
    assert not replacement.should_resign(BROKERS, ALIVE, at(20_999))
    assert replacement.should_resign(BROKERS, ALIVE, at(21_000))


def test_without_a_live_broker_the_controller_stays() -> None:
    replacement = followed()
    replacement.stream_lost(ONE.broker_epoch, at(1_000))
    assert not replacement.should_resign(BROKERS, listing(2), at(60_000))


def test_a_broker_that_registers_again_has_no_stream_yet() -> None:
    replacement, again = followed(), a_broker(1, epoch=200)
    brokers = {again.broker_id: again}
    replacement.see(brokers, listing(2, again), at(5_000))
    assert replacement.next_deadline(at(5_000)) == 8_000
    replacement.stream_regained(again.broker_epoch)
    assert replacement.next_deadline(at(5_000)) is None


@pytest.mark.feature("J7")
def test_a_broker_that_a_new_term_finds_without_a_stream_is_fenced_again_and_again() -> None:
    replacement, deaf = followed(), a_broker(2)
    both, live = {**BROKERS, deaf.broker_id: deaf}, listing(2, ONE, deaf)
    replacement.see(both, live, at(1_000))
    assert replacement.next_deadline(at(1_000)) == 21_000
    assert replacement.to_fence(both, at(20_999)) == []
    assert replacement.to_fence(both, at(21_000)) == [deaf]
    replacement.see(both, live, at(21_000))
    assert replacement.to_fence(both, at(40_999)) == []
    assert replacement.to_fence(both, at(41_000)) == [deaf]


@pytest.mark.feature("J7")
def test_a_broker_that_comes_late_has_its_time_from_the_first_stream_of_another() -> None:
    replacement, late = followed(), a_broker(2)
    both, live = {**BROKERS, late.broker_id: late}, listing(2, ONE, late)
    replacement.stream_lost(ONE.broker_epoch, at(0))
    replacement.see(both, live, at(0))
    replacement.stream_regained(ONE.broker_epoch)
    replacement.see(both, live, at(19_000))
    assert replacement.to_fence(both, at(38_999)) == []
    replacement.stream_regained(late.broker_epoch)
    replacement.see(both, live, at(38_999))
    assert replacement.to_fence(both, at(90_000)) == []
