"""Parked requests, against a plain twin that looks at everything each time."""

from collections.abc import Callable
from typing import Any

import pytest
from broker.core.parked import (
    BUCKET_MS,
    FOLLOWER,
    INTERNAL,
    READ,
    WAIT_MS_MAX,
    WRITE,
    Parked,
    ParkedLimits,
    ParkedRequest,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.model.ids import InstantMs


def at(ms: int) -> InstantMs:
    return InstantMs(ms)


class Woken:
    """Remembers who woke, and whether with what it wanted."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bool]] = []

    def named(self, name: str) -> Callable[[bool], None]:
        return lambda fulfilled: self.seen.append((name, fulfilled))


def test_a_fetch_wakes_when_its_partitions_together_gained_enough() -> None:
    parked, woken = Parked(), Woken()
    parked.park_fetch("ab", bytes_missing=100, now=at(0), wait_ms=500, wake=woken.named("f"))
    parked.advanced("a", 1, 60)
    parked.advanced("c", 9, 60)
    assert woken.seen == []
    parked.advanced("b", 1, 40)
    assert woken.seen == [("f", True)]
    parked.check()
    assert parked.count == 0
    assert not parked.is_watched("a")


def gathered(parked: Parked, key: str, gained_bytes: int, now: int) -> None:
    parked.gathered(key, gained_bytes, at(now), wait_ms=5, bytes_max=10)


def test_what_is_not_urgent_gathers_for_a_while() -> None:
    parked, woken = Parked(), Woken()
    parked.park_fetch("ab", bytes_missing=3, now=at(0), wait_ms=500, wake=woken.named("f"))
    gathered(parked, "a", 2, 7)
    assert parked.next_deadline() == 500
    gathered(parked, "b", 2, 8)
    gathered(parked, "b", 2, 12)  # counts from the first that was enough
    assert parked.next_deadline() == 15
    parked.check()
    parked.expire(at(15))
    assert woken.seen == [("f", True)]


@pytest.mark.parametrize("ended_by", ["bytes", "urgent"])
def test_bytes_enough_or_an_urgent_one_end_the_gathering(ended_by: str) -> None:
    parked, woken = Parked(), Woken()
    parked.park_fetch("a", bytes_missing=1, now=at(0), wait_ms=500, wake=woken.named("f"))
    gathered(parked, "a", 10, 0)
    assert woken.seen == []
    if ended_by == "bytes":
        gathered(parked, "a", 1, 0)
    else:
        parked.advanced("a", 1, 1)
    assert woken.seen == [("f", True)]
    parked.check()


def test_a_gathering_fetch_keeps_its_own_deadline() -> None:
    parked, woken = Parked(), Woken()
    parked.park_fetch("a", bytes_missing=1, now=at(0), wait_ms=3, wake=woken.named("f"))
    gathered(parked, "a", 1, 1)
    parked.expire(at(5))
    assert woken.seen == [("f", True)]


@pytest.mark.parametrize("woken_by", ["advanced", "released"])
def test_a_wake_may_release_the_others(woken_by: str) -> None:
    parked, woken = Parked(), Woken()

    def fail(fulfilled: bool) -> None:
        woken.named("first")(fulfilled)
        parked.released("a")  # its directory fails under what the wake does

    for wake in (fail, woken.named("second"), woken.named("third")):
        parked.park_fetch("a", bytes_missing=1, now=at(0), wait_ms=500, wake=wake)
    if woken_by == "advanced":
        parked.advanced("a", 1, 1)
    else:
        parked.released("a")
    assert woken.seen == [("first", woken_by == "advanced"), ("second", False), ("third", False)]
    parked.check()


def test_a_produce_wakes_when_every_watermark_passed_its_end() -> None:
    parked, woken = Parked(), Woken()
    parked.park_produce([("a", 5), ("b", 7)], now=at(0), wait_ms=500, wake=woken.named("p"))
    parked.advanced("a", 5, 10)
    parked.advanced("b", 6, 10)
    assert woken.seen == []
    parked.advanced("b", 7, 10)
    assert woken.seen == [("p", True)]


def test_produces_that_gave_up_leave_nothing_behind_one_that_waits() -> None:
    """The watermark stands still, as that of a partition whose follower hangs."""
    parked, woken = Parked(), Woken()
    patient = parked.park_produce([("a", 1)], now=at(0), wait_ms=WAIT_MS_MAX, wake=woken.named("p"))
    for end in range(2, 1_000):
        now = at(end * BUCKET_MS)
        parked.park_produce([("a", end)], now=now, wait_ms=0, wake=woken.named("q"))
        parked.expire(at(now + BUCKET_MS))
        assert len(parked._produces["a"]) <= 2
    assert patient is not None
    assert patient.is_waiting
    parked.advanced("a", 1, 1)
    assert woken.seen[-1] == ("p", True)


def test_a_repeated_produce_may_wait_for_an_earlier_end() -> None:
    parked, woken = Parked(), Woken()
    for name, end in (("new", 9), ("retry", 4)):
        parked.park_produce([("a", end)], now=at(0), wait_ms=500, wake=woken.named(name))
    parked.advanced("a", 4, 10)
    assert woken.seen == [("retry", True)]


def test_deadlines_wake_in_their_bucket_and_no_one_early() -> None:
    parked, woken = Parked(), Woken()
    for name, wait in (("late", 90), ("soon", 20), ("never", 10**9)):
        parked.park_fetch("a", bytes_missing=1, now=at(7), wait_ms=wait, wake=woken.named(name))
    due = parked.next_deadline()
    assert due is not None
    assert 27 <= due < 27 + BUCKET_MS
    parked.expire(at(26))
    assert woken.seen == []
    parked.expire(due)
    assert woken.seen == [("soon", False)]
    parked.expire(at(7 + WAIT_MS_MAX + BUCKET_MS))
    assert [name for name, _ in woken.seen] == ["soon", "late", "never"]
    assert parked.next_deadline() is None


def test_who_parks_the_earliest_deadline_is_told() -> None:
    heard: list[int] = []
    parked = Parked(on_earlier=heard.append)
    for wait in (100, 200, 50):
        parked.park_fetch("a", bytes_missing=1, now=at(0), wait_ms=wait, wake=lambda _: None)
    assert heard == [100, 50]


ONE_OF_EACH = ParkedLimits(reads_max=1, followers_max=1, writes_max=1)
ARGUMENTS: dict[str, Any] = {"now": at(0), "wait_ms": 10, "wake": lambda _: None}


@pytest.mark.parametrize("kind", [READ, FOLLOWER])
def test_beyond_its_bound_no_long_poll_parks(kind: int) -> None:
    parked = Parked(ONE_OF_EACH)
    first = parked.park_fetch("a", bytes_missing=1, kind=kind, **ARGUMENTS)
    assert parked.park_fetch("a", bytes_missing=1, kind=kind, **ARGUMENTS) is None
    assert first is not None
    parked.cancel(first)
    parked.cancel(first)
    assert parked.park_fetch("a", bytes_missing=1, kind=kind, **ARGUMENTS) is not None
    parked.check()


def test_no_kind_takes_the_room_of_another() -> None:
    parked = Parked(ONE_OF_EACH)
    for _ in range(3):
        parked.park_fetch("a", bytes_missing=1, kind=READ, **ARGUMENTS)
    assert parked.park_fetch("a", bytes_missing=1, kind=FOLLOWER, **ARGUMENTS) is not None
    assert not parked.is_full
    assert parked.park_produce([("a", 1)], kind=WRITE, **ARGUMENTS) is not None
    for end in range(1, 4):
        assert parked.park_produce([("a", end)], kind=INTERNAL, **ARGUMENTS) is not None
    assert parked.counts == [1, 1, 1, 3]
    parked.check()


def test_what_is_appended_already_parks_though_writes_are_full() -> None:
    parked = Parked(ONE_OF_EACH)
    for end in (1, 2):
        assert parked.park_produce([("a", end)], **ARGUMENTS) is not None
        assert parked.is_full
    parked.advanced("a", 1, 0)
    assert parked.is_full
    parked.advanced("a", 2, 0)
    assert not parked.is_full


def test_who_waits_for_room_is_called_in_order_while_there_is_some() -> None:
    parked, resumed = Parked(ONE_OF_EACH), list[str]()

    def writes_again(name: str, end: int) -> Callable[[], None]:
        def resume() -> None:
            resumed.append(name)
            parked.park_produce([("a", end)], **ARGUMENTS)

        return resume

    parked.park_produce([("a", 1)], **ARGUMENTS)
    gone = writes_again("gone", 9)
    for resume in (writes_again("first", 2), gone, writes_again("second", 3)):
        parked.when_room(resume)
    parked.forget_room(gone)
    parked.advanced("a", 1, 0)
    assert resumed == ["first"]
    parked.expire(at(10 + BUCKET_MS))
    assert resumed == ["first", "second"]
    parked.check()


def test_who_finds_nothing_to_write_leaves_the_room_to_the_next() -> None:
    parked, resumed = Parked(ONE_OF_EACH), list[int]()
    last = parked.park_produce([("a", 1)], **ARGUMENTS)
    for number in range(3):
        parked.when_room(lambda number=number: resumed.append(number))  # type: ignore[misc]
    assert last is not None
    parked.cancel(last)
    assert resumed == [0, 1, 2]


def test_a_write_parked_by_one_that_wakes_is_not_lost() -> None:
    parked, woken = Parked(), Woken()

    def wake(fulfilled: bool) -> None:
        parked.advanced("a", 1, 0)  # as an append that is committed at once
        parked.park_produce([("a", 2)], now=at(0), wait_ms=9, wake=woken.named("next"))

    parked.park_produce([("a", 1)], now=at(0), wait_ms=9, wake=wake)
    parked.advanced("a", 1, 0)
    parked.advanced("a", 2, 0)
    assert woken.seen == [("next", True)]


def test_release_wakes_all_of_one_partition() -> None:
    parked, woken = Parked(), Woken()
    parked.park_fetch("ab", bytes_missing=1, now=at(0), wait_ms=9, wake=woken.named("f"))
    parked.park_produce([("a", 3)], now=at(0), wait_ms=9, wake=woken.named("p"))
    parked.park_fetch("b", bytes_missing=1, now=at(0), wait_ms=9, wake=woken.named("other"))
    parked.released("a")
    assert sorted(woken.seen) == [("f", False), ("p", False)]
    assert parked.count == 1
    parked.check()


def test_dead_produces_do_not_pile_up_behind_a_watermark_that_stands_still() -> None:
    parked = Parked()
    for number in range(100):
        parked.park_produce([("a", number)], now=at(number), wait_ms=0, wake=lambda _: None)
        parked.expire(at(number + BUCKET_MS))
    assert parked.count == 0
    assert len(parked._produces["a"]) <= 2


class PlainParked:
    """The twin: a list of who waits for what, looked through every time."""

    def __init__(self) -> None:
        self.waiting: list[dict[str, Any]] = []
        self.woken: list[tuple[int, bool]] = []

    def _wake(self, one: dict[str, Any], fulfilled: bool) -> None:
        self.waiting.remove(one)
        self.woken.append((one["number"], fulfilled))

    def advanced(self, key: str, watermark: int, gained: int) -> None:
        for one in list(self.waiting):
            if "missing" in one and key in one["keys"]:
                one["missing"] -= gained
                if one["missing"] <= 0:
                    self._wake(one, True)
            elif "ends" in one:
                if one["ends"].get(key, watermark + 1) <= watermark:
                    del one["ends"][key]
                if not one["ends"]:
                    self._wake(one, True)

    def gathered(self, key: str, gained: int, now: int) -> None:
        for one in list(self.waiting):
            if "missing" in one and key in one["keys"]:
                one["missing"] -= gained
                if one["missing"] <= -10:
                    self._wake(one, True)
                elif one["missing"] <= 0:
                    one["due"] = min(one["due"], now + 5)

    def expire(self, now: int) -> None:
        for one in list(self.waiting):
            if -(-one["due"] // BUCKET_MS) * BUCKET_MS <= now:
                self._wake(one, one.get("missing", 1) <= 0)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("fetch"), st.sampled_from(["a", "b", "ab"]), st.integers(1, 9)),
        st.tuples(st.just("produce"), st.sampled_from(["a", "b", "ab"]), st.integers(0, 3)),
        st.tuples(st.just("advance"), st.sampled_from("ab"), st.integers(1, 5)),
        st.tuples(st.just("gather"), st.sampled_from("ab"), st.integers(1, 12)),
        st.tuples(st.just("time"), st.just(""), st.integers(1, 40)),
        st.tuples(st.just("cancel"), st.just(""), st.integers(0, 9)),
    ),
    max_size=40,
)


@settings(max_examples=80)
@given(STEPS)
def test_parked_agrees_with_its_plain_twin(steps: list[tuple[str, str, int]]) -> None:
    parked, twin, woken = Parked(), PlainParked(), list[tuple[int, bool]]()
    requests: dict[int, ParkedRequest | None] = {}
    now, watermarks = 0, {"a": 0, "b": 0}
    for number, (step, keys, amount) in enumerate(steps):

        def wake(fulfilled: bool, number: int = number) -> None:
            woken.append((number, fulfilled))

        if step == "fetch":
            requests[number] = parked.park_fetch(
                keys, bytes_missing=amount, now=at(now), wait_ms=30, wake=wake
            )
            twin.waiting.append(
                {"number": number, "keys": keys, "missing": amount, "due": now + 30}
            )
        elif step == "produce":
            ends = {key: watermarks[key] + 1 + amount for key in keys}
            requests[number] = parked.park_produce(ends.items(), now=at(now), wait_ms=20, wake=wake)
            twin.waiting.append({"number": number, "ends": ends, "due": now + 20})
        elif step == "advance":
            watermarks[keys] += amount
            parked.advanced(keys, watermarks[keys], amount)
            twin.advanced(keys, watermarks[keys], amount)
        elif step == "gather":
            gathered(parked, keys, amount, now)
            twin.gathered(keys, amount, now)
        elif step == "time":
            now += amount
            parked.expire(at(now))
            twin.expire(now)
        elif requests.get(amount) is not None:
            parked.cancel(requests[amount])  # type: ignore[arg-type]
            twin.waiting = [one for one in twin.waiting if one["number"] != amount]
        parked.check()
        assert sorted(woken) == sorted(twin.woken)


ROOM_STEPS = st.lists(
    st.tuples(st.sampled_from(["write", "forget", "advance", "time"]), st.integers(0, 5)),
    max_size=60,
)


@settings(max_examples=80)
@given(ROOM_STEPS, st.integers(1, 3))
def test_room_is_never_withheld_and_never_overdrawn(
    steps: list[tuple[str, int]], writes_max: int
) -> None:
    parked = Parked(ParkedLimits(writes_max=writes_max))
    now, end, watermark, wanting = 0, 0, 0, dict[int, Callable[[], None]]()

    def write() -> None:
        nonlocal end
        if parked.is_full:
            wanting[end] = write_once = lambda: write()
            parked.when_room(write_once)
        else:
            end += 1
            parked.park_produce([("a", end)], now=at(now), wait_ms=20, wake=lambda _: None)
            assert parked.counts[WRITE] <= writes_max

    for step, amount in steps:
        if step == "write":
            write()
        elif step == "forget" and wanting:
            parked.forget_room(wanting.popitem()[1])
        elif step == "advance":
            watermark = min(watermark + amount, end)
            parked.advanced("a", watermark, 1)
        elif step == "time":
            now += amount * 5
            parked.expire(at(now))
        parked.check()
