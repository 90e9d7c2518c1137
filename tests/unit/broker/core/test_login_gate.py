"""Turns of logins: what an address that has failed too often may still do."""

import pytest
from broker.core import login_gate
from broker.core.login_gate import LoginGate
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.ids import InstantMs

BURST, RATE_S = 3, 2.0
HERE, THERE = "10.0.0.1", "10.0.0.2"


def at(ms: int) -> InstantMs:
    return InstantMs(1_000 + ms)


def a_gate() -> LoginGate[str]:
    return LoginGate(burst=BURST, rate_s=RATE_S)


def a_gate_that_has_seen_failures(times: int = BURST) -> LoginGate[str]:
    gate = a_gate()
    for _ in range(times):
        assert gate.begin(HERE, at(0))
        gate.end(HERE, at(0), failed=True)
    return gate


def test_logins_that_succeed_make_room_at_once() -> None:
    gate = a_gate()
    for _ in range(1_000):
        assert [gate.begin(HERE, at(0)) for _ in range(BURST + 1)] == [True] * BURST + [False]
        for _ in range(BURST):
            gate.end(HERE, at(0), failed=False)
    assert not gate._addresses


def test_an_address_may_fail_as_often_as_the_burst_and_then_waits() -> None:
    gate = a_gate_that_has_seen_failures()
    assert not gate.begin(HERE, at(0))
    assert gate.begin(THERE, at(0)), "another address"


def test_after_the_burst_logins_begin_at_the_rate() -> None:
    gate = a_gate_that_has_seen_failures()
    begun_at = []
    for now in range(0, 5_000, 10):
        if gate.begin(HERE, at(now)):
            begun_at.append(now)
            gate.end(HERE, at(now), failed=True)
    assert begun_at == [500, 1_000, 1_500, 2_000, 2_500, 3_000, 3_500, 4_000, 4_500]


def test_a_login_that_waits_is_due_when_a_failure_is_paid_off() -> None:
    gate = a_gate_that_has_seen_failures()
    assert not gate.begin(HERE, at(100))
    gate.wait(HERE, "one")
    due_in_ms = gate.due_in_ms(at(100))
    assert due_in_ms is not None
    assert 400 <= due_in_ms <= 401
    assert gate.due(at(100 + due_in_ms - 2)) == []
    assert gate.due(at(100 + due_in_ms)) == ["one"]
    assert gate.due_in_ms(at(600)) is None, "nobody waits"


def test_the_newest_goes_first_and_a_success_lets_the_next_in_at_once() -> None:
    gate = a_gate_that_has_seen_failures()
    for name in ("one", "two", "three"):
        assert not gate.begin(HERE, at(0))
        gate.wait(HERE, name)
    assert gate.due(at(501)) == ["three"]
    assert gate.due_in_ms(at(501)) is not None
    gate.end(HERE, at(502), failed=False)
    assert gate.due(at(502)) == ["two"]
    gate.end(HERE, at(503), failed=True)
    assert gate.due(at(503)) == [], "a failure does not"
    assert gate.waiting == 1


def test_one_that_leaves_does_not_wait_any_more() -> None:
    gate = a_gate_that_has_seen_failures()
    gate.wait(HERE, "one")
    assert gate.leave(HERE, "one")
    assert not gate.leave(HERE, "one")
    assert not gate.leave(THERE, "one")
    assert (gate.waiting, gate.due(at(10_000))) == (0, [])


def test_one_that_waits_for_the_end_of_another_has_no_time() -> None:
    """Failures are not what keeps it back, but logins that are under way."""
    gate = a_gate()
    for _ in range(BURST):
        assert gate.begin(HERE, at(0))
    assert not gate.begin(HERE, at(1))
    gate.wait(HERE, "one")
    assert gate.due_in_ms(at(1)) is None
    gate.end(HERE, at(2), failed=True)
    assert gate.due_in_ms(at(2)) is not None


def test_no_more_wait_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_gate, "WAITING_MAX", 2)
    gate = a_gate_that_has_seen_failures()
    gate.wait(HERE, "one")
    assert not gate.is_full
    gate.wait(HERE, "two")
    assert gate.is_full


def test_addresses_are_forgotten_the_oldest_first_but_not_those_that_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(login_gate, "ADDRESSES_MAX", 2)
    gate = a_gate_that_has_seen_failures()
    gate.wait(HERE, "one")
    for address in ("10.0.0.3", "10.0.0.4", "10.0.0.5"):
        assert gate.begin(address, at(0))
        gate.end(address, at(0), failed=True)
    assert list(gate._addresses) == [HERE, "10.0.0.5"]
    gate.end("10.0.0.3", at(0), failed=True)  # forgotten while it was under way


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(("arrive", "fail", "succeed", "leave")), st.integers(0, 700)),
        max_size=60,
    )
)
def test_failures_have_a_bound_and_whoever_stays_gets_a_turn(steps: list[tuple[str, int]]) -> None:
    """An address fails no more often than the burst and the rate allow, whatever it does; those
    that wait begin when the others have ended.
    """
    gate = a_gate()
    now, under_way, failed, waiting = 0, 0, 0, 0
    for step, passed_ms in steps:
        now += passed_ms
        if step == "arrive":
            if gate.begin(HERE, at(now)):
                under_way += 1
            else:
                gate.wait(HERE, str(waiting))
                waiting += 1
        elif step == "leave":
            gate.leave(HERE, str(waiting - 1))
        elif under_way:
            under_way -= 1
            failed += step == "fail"
            gate.end(HERE, at(now), failed=step == "fail")
        under_way += len(gate.due(at(now)))
        assert under_way <= BURST
        assert failed + under_way <= BURST + now / 1_000 * RATE_S
    for _ in range(under_way):
        gate.end(HERE, at(now), failed=True)
    while gate.waiting:
        due_in_ms = gate.due_in_ms(at(now))
        assert due_in_ms is not None, "it would wait for ever"
        now += due_in_ms
        begun = gate.due(at(now))
        assert begun
        for _ in begun:
            gate.end(HERE, at(now), failed=True)
