from controller.core.liveness import NOBODY, active, newer, vanished
from unit.controller.worlds import a_broker, a_coordinator, coordinator_listing, listing


def test_a_broker_vanishes_with_the_znode_of_its_incarnation() -> None:
    one, two = a_broker(1), a_broker(2)
    brokers = {one.broker_id: one, two.broker_id: two}
    assert vanished(brokers, listing(1, one)) == (two,)


def test_another_incarnation_does_not_keep_a_registration_alive() -> None:
    one, restarted = a_broker(1), a_broker(1, epoch=200)
    assert vanished({one.broker_id: one}, listing(1, restarted)) == (one,)


def test_a_fenced_broker_does_not_vanish_twice() -> None:
    fenced = a_broker(1, fenced=True)
    assert vanished({fenced.broker_id: fenced}, NOBODY) == ()


def test_the_listing_of_the_later_transaction_counts() -> None:
    early, late = listing(1, a_broker(1)), listing(2)
    assert newer(early, late) is late
    assert newer(late, early) is late


def test_neither_the_fenced_nor_those_that_shut_down_are_active() -> None:
    three = (a_broker(1), a_broker(2, fenced=True), a_broker(3, shutting_down=True))
    assert active({broker.broker_id: broker for broker in three}) == {1}


def test_a_coordinator_lives_with_the_znode_of_its_incarnation() -> None:
    one, restarted = a_coordinator(1), a_coordinator(1, epoch=900)
    assert coordinator_listing(1, one).has(one)
    assert not coordinator_listing(1, one).has(restarted)
