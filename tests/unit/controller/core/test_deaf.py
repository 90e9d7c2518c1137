from controller.core.deaf import Deaf
from tidemark.model.ids import BrokerEpoch, InstantMs

ONE, TWO = BrokerEpoch(101), BrokerEpoch(102)


def at(milliseconds: int) -> InstantMs:
    return InstantMs(milliseconds)


def test_the_time_of_each_runs_from_when_it_was_seen_first_and_again_after_it_is_over() -> None:
    deaf = Deaf(1_000)
    deaf.see({ONE}, at(0))
    deaf.see({ONE, TWO}, at(400))
    assert deaf.next_deadline() == 1_000
    assert [deaf.take_due(at(ms)) for ms in (999, 1_000)] == [frozenset(), {ONE}]
    assert deaf.next_deadline() == 1_400
    assert [deaf.take_due(at(ms)) for ms in (1_400, 2_000)] == [{TWO}, {ONE}]


def test_one_that_has_a_stream_or_no_session_is_forgotten() -> None:
    deaf = Deaf(1_000)
    deaf.see({ONE}, at(0))
    deaf.see((), at(500))
    deaf.see({ONE}, at(600))
    assert not deaf.take_due(at(1_599))
    assert deaf.next_deadline() == 1_600


def test_without_a_limit_nobody_is_ever_due() -> None:
    deaf = Deaf(0)
    deaf.see({ONE}, at(0))
    assert deaf.next_deadline() is None
    assert not deaf.take_due(at(90_000))
