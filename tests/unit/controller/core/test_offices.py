from dataclasses import replace

import pytest
from controller.core.elections import demote
from controller.core.offices import Offices
from tidemark.model.ids import BrokerId, ControllerEpoch, InstantMs
from tidemark.model.metadata import FeedPosition
from unit.controller.worlds import a_broker, a_topic, listing, topic_id

START = FeedPosition(ControllerEpoch(5), 0)
ONE = a_broker(1)
BROKERS = {ONE.broker_id: ONE}
KEY = (topic_id("a"), 0)
LEADERLESS = demote(a_topic("a", (1, 2)).partitions[0])


def offices() -> Offices:
    return Offices(START, lease_ms=3_000, fence_ms=500)


def at(milliseconds: int) -> InstantMs:
    return InstantMs(milliseconds)


@pytest.mark.feature("Y03")
def test_a_broker_is_released_a_lease_after_it_was_seen_gone() -> None:
    known = offices()
    known.see(BROKERS, listing(1), at(1_000))
    assert known.next_deadline(at(0)) == 4_000
    assert known.released(at(3_999)) == frozenset()
    assert known.newly_released(at(4_000)) == {1}
    assert known.newly_released(at(4_001)) == frozenset()


@pytest.mark.feature("Y03")
def test_a_broker_with_a_longer_lease_of_its_own_is_waited_for_so_long() -> None:
    known, longer = offices(), replace(ONE, lease_ms=5_000)
    known.see({longer.broker_id: longer}, listing(1), at(1_000))
    assert known.released(at(5_999)) == frozenset()
    assert known.released(at(6_000)) == {1}


def test_one_that_is_back_is_not_gone() -> None:
    known = offices()
    known.see(BROKERS, listing(1), at(1_000))
    known.see(BROKERS, listing(2, ONE), at(2_000))
    assert known.released(at(9_000)) == frozenset()


@pytest.mark.feature("Y03")
def test_a_demoted_leader_that_lives_must_have_heard_of_it() -> None:
    known = offices()
    position = FeedPosition(ControllerEpoch(5), 7)
    known.demoted(KEY, LEADERLESS, position, BROKERS)
    assert not known.is_released(KEY, LEADERLESS, BROKERS, frozenset())
    known.acknowledged(ONE.broker_epoch, position)
    assert known.is_released(KEY, LEADERLESS, BROKERS, frozenset())


def test_a_new_controller_asks_for_an_acknowledgement_of_its_own_feed() -> None:
    known = offices()
    assert not known.is_released(KEY, LEADERLESS, BROKERS, frozenset())
    known.acknowledged(ONE.broker_epoch, START)
    assert known.is_released(KEY, LEADERLESS, BROKERS, frozenset())


def test_another_process_under_the_same_id_means_that_the_one_that_led_is_dead() -> None:
    known, again = offices(), a_broker(1, epoch=200)
    known.demoted(KEY, LEADERLESS, START, BROKERS)
    assert known.is_released(KEY, LEADERLESS, {again.broker_id: again}, frozenset())


def test_who_led_nothing_or_is_gone_holds_nothing_up() -> None:
    known, nobody = offices(), replace(LEADERLESS, last_known_leader=BrokerId(-1))
    assert known.is_released(KEY, nobody, BROKERS, frozenset())
    assert known.is_released(KEY, LEADERLESS, BROKERS, frozenset({BrokerId(1)}))


def test_a_stream_that_stays_lost_fences_its_broker_once() -> None:
    known, other = offices(), a_broker(2)
    known.see({**BROKERS, other.broker_id: other}, listing(1, ONE, other), at(0))
    known.stream_regained(other.broker_epoch)
    known.stream_lost(ONE.broker_epoch, at(1_000))
    assert known.to_fence(BROKERS, at(1_499)) == []
    assert known.to_fence(BROKERS, at(1_500)) == [ONE]
    assert known.to_fence(BROKERS, at(9_000)) == []


def test_a_stream_that_came_back_fences_nobody() -> None:
    known = offices()
    known.stream_lost(ONE.broker_epoch, at(1_000))
    known.stream_regained(ONE.broker_epoch)
    assert known.to_fence(BROKERS, at(9_000)) == []
    assert known.next_deadline(at(0)) is None


def followed() -> Offices:
    """One broker, which listens."""
    known = Offices(START, lease_ms=3_000, fence_ms=500, begun_at=at(0), deserted_ms=20_000)
    known.see(BROKERS, listing(1, ONE), at(0))
    known.stream_regained(ONE.broker_epoch)
    return known


@pytest.mark.feature("J7")
def test_who_hears_of_nobody_fences_nobody_and_is_deserted_a_lease_later() -> None:
    known = followed()
    known.stream_lost(ONE.broker_epoch, at(1_000))
    assert known.to_fence(BROKERS, at(9_000)) == []
    assert known.next_deadline(at(1_000)) == 4_000
    assert not known.is_deserted(BROKERS, at(3_999))
    assert known.is_deserted(BROKERS, at(4_000))
    known.stream_regained(ONE.broker_epoch)
    assert not known.is_deserted(BROKERS, at(9_000))


@pytest.mark.feature("J7")
def test_a_term_that_nobody_listens_to_from_the_start_is_given_longer() -> None:
    known = Offices(START, lease_ms=3_000, fence_ms=500, begun_at=at(1_000), deserted_ms=20_000)
    known.see(BROKERS, listing(1, ONE), at(1_000))
    assert not known.is_deserted(BROKERS, at(20_999))
    assert known.is_deserted(BROKERS, at(21_000))


def test_without_a_broker_that_lives_nobody_is_missed() -> None:
    known = followed()
    known.stream_lost(ONE.broker_epoch, at(1_000))
    known.see(BROKERS, listing(2), at(2_000))
    assert not known.is_deserted(BROKERS, at(60_000))


def test_a_broker_that_registers_anew_has_yet_to_listen() -> None:
    known, again = followed(), a_broker(1, epoch=200)
    brokers = {again.broker_id: again}
    known.see(brokers, listing(2, again), at(5_000))
    assert known.next_deadline(at(5_000)) == 8_000
    known.stream_regained(again.broker_epoch)
    assert known.next_deadline(at(5_000)) is None
