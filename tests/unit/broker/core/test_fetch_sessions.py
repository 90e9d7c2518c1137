"""Fetch sessions (KIP-227), compared with a plain twin and a fetcher that merges replies."""

from itertools import count

from broker.core.fetch_sessions import FetchPlan, FetchSession, FetchSessions, PartitionKey
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs

NO_ID = bytes(16)


def key(name: str, partition: int = 0) -> PartitionKey:
    return (name, NO_ID, partition)


def sessions(**limits: int) -> FetchSessions[str]:
    numbers = count(1)
    return FetchSessions(lambda: next(numbers), **limits)


def begin(
    cache: FetchSessions[str],
    session: tuple[int, int],
    wanted: str = "",
    forgotten: str = "",
    *,
    now: int = 0,
    by_id: bool = False,
) -> FetchPlan[str] | ErrorCode:
    plan = cache.begin(
        *session,
        [(key(name), f"want-{name}") for name in wanted],
        [key(name) for name in forgotten],
        by_id=by_id,
        now=InstantMs(now),
    )
    cache.check()
    return plan


def opened(cache: FetchSessions[str], wanted: str, *, now: int = 0) -> int:
    plan = begin(cache, (0, 0), wanted, now=now)
    assert isinstance(plan, FetchPlan)
    return plan.session.session_id if plan.session is not None else 0


def names(plan: FetchPlan[str] | ErrorCode) -> str:
    assert isinstance(plan, FetchPlan), plan
    return "".join(one[0] for one, _ in plan.wanted)


def test_a_sessionless_fetch_makes_no_session() -> None:
    cache = sessions()
    plan = begin(cache, (0, -1), "ab")
    assert names(plan) == "ab"
    assert len(cache) == 0


def test_an_incremental_fetch_wants_all_that_the_session_knows() -> None:
    cache = sessions()
    session = opened(cache, "ab")
    assert names(begin(cache, (session, 1), "c", "a")) == "bc"
    assert names(begin(cache, (session, 2))) == "bc"


def test_a_wrong_epoch_or_session_is_told() -> None:
    cache = sessions()
    session = opened(cache, "a")
    assert begin(cache, (session, 2)) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert begin(cache, (session + 1, 1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert begin(cache, (session, 1), by_id=True) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_final_epoch_closes_and_the_initial_one_replaces() -> None:
    cache = sessions()
    first = opened(cache, "a")
    begin(cache, (first, 0), "b")
    assert len(cache) == 1
    assert begin(cache, (first, 1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    begin(cache, (first + 1, -1), "b")
    assert len(cache) == 0


def test_a_session_that_forgets_everything_is_closed() -> None:
    cache = sessions()
    session = opened(cache, "a")
    assert names(begin(cache, (session, 1), forgotten="a")) == ""
    assert len(cache) == 0


def test_a_full_cache_gives_no_session_until_one_is_idle_for_long() -> None:
    cache = sessions(sessions_max=2, eviction_ms=100)
    first, second = opened(cache, "a", now=0), opened(cache, "b", now=10)
    assert opened(cache, "c", now=50) == 0
    begin(cache, (first, 1), now=60)
    assert opened(cache, "c", now=111) != 0
    assert begin(cache, (second, 1), now=111) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.evicted_count == 1


def test_partitions_are_bounded_too() -> None:
    cache = sessions(partitions_max=3)
    assert opened(cache, "abcd") == 0
    assert opened(cache, "abc") != 0


def test_the_epoch_wraps_to_one() -> None:
    cache = sessions()
    plan = begin(cache, (0, 0), "a")
    assert isinstance(plan, FetchPlan)
    assert plan.session is not None
    plan.session.epoch = 2**31 - 1
    begin(cache, (plan.session.session_id, 2**31 - 1))
    assert plan.session.epoch == 1


def test_partitions_that_gave_records_are_served_last_next_time() -> None:
    cache = sessions()
    plan = begin(cache, (0, 0), "abc")
    assert isinstance(plan, FetchPlan)
    assert plan.session is not None
    plan.session.served([key("a"), key("gone")])
    assert names(begin(cache, (plan.session.session_id, 1))) == "bca"


States = st.dictionaries(
    st.sampled_from("abc"),
    st.tuples(st.sampled_from([0, 0, 3]), st.integers(0, 3), st.integers(0, 1), st.integers(0, 1)),
    min_size=3,
)


@settings(max_examples=60)
@given(st.lists(States, min_size=1, max_size=8))
def test_merged_incremental_answers_tell_what_whole_answers_would(
    rounds: list[dict[str, tuple[int, int, int, int]]],
) -> None:
    """Each state: error, high watermark, log start, bytes of records."""
    plan = begin(sessions(), (0, 0), "abc")
    assert isinstance(plan, FetchPlan)
    assert plan.session is not None
    merged: dict[str, tuple[int, int, int]] = {}
    for number, truth in enumerate(rounds):
        for name, (error, watermark, start, size) in truth.items():
            told = plan.session.partitions[key(name)].must_answer(error, watermark, start, size)
            if told or number == 0:
                merged[name] = (error, watermark, start)
            assert told or size == 0
            assert merged[name] == (error, watermark, start)


def test_a_session_may_not_grow_beyond_what_all_may_hold() -> None:
    cache = sessions(partitions_max=3)
    number = opened(cache, "ab")
    assert names(begin(cache, (number, 1), "c")) == "abc"
    assert begin(cache, (number, 2), "d") is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(cache), cache.partition_count) == (0, 0)


# -- moved and idle partitions


def looks(plan: FetchPlan[str] | ErrorCode) -> str:
    assert isinstance(plan, FetchPlan), plan
    return "".join(one[0] for one, _, _ in plan.looks())


def at_rest(cache: FetchSessions[str], wanted: str) -> FetchSession[str]:
    """A session whose partitions are all idle, each on its own name."""
    plan = begin(cache, (0, 0), wanted)
    assert isinstance(plan, FetchPlan)
    assert plan.session is not None
    for (name, _, _), cached in plan.session.partitions.items():
        assert cache.mark_idle(cached, name)
    cache.check()
    return plan.session


def test_a_request_looks_at_what_it_names_and_at_what_was_stirred() -> None:
    cache = sessions()
    session = at_rest(cache, "abcd")
    assert looks(begin(cache, (1, 1))) == ""
    assert list(cache.notify("d")) == [session]
    assert list(cache.notify("d")) == []
    plan = begin(cache, (1, 2), "b")
    assert (looks(plan), names(plan)) == ("bd", "abcd")


def test_a_whole_fetch_looks_at_everything_named() -> None:
    cache = sessions()
    at_rest(cache, "ab")
    assert looks(begin(cache, (0, -1), "ba")) == "ba"
    assert looks(begin(cache, (1, 0), "ba")) == "ba"


def test_what_is_noted_is_looked_at_and_rests_on() -> None:
    cache = sessions()
    session = at_rest(cache, "ab")
    cache.note("a")
    cache.check()
    assert [one.key[0] for one in session.moved] == ["a"]
    assert list(cache.notify("a")) == [session]
    cache.note("a")
    assert looks(begin(cache, (1, 1))) == "a"


def test_what_moved_is_looked_at_until_it_rests_again() -> None:
    cache = sessions()
    session = at_rest(cache, "ab")
    cache.notify("a")
    assert looks(begin(cache, (1, 1))) == "a"
    assert looks(begin(cache, (1, 2))) == "a"
    cache.mark_idle(session.partitions[key("a")], "a")
    assert looks(begin(cache, (1, 3))) == ""


def test_moved_partitions_are_served_in_turn() -> None:
    cache = sessions()
    session = at_rest(cache, "abcd")
    for name in "dba":
        cache.notify(name)
    session.served([key("a")])
    assert looks(begin(cache, (1, 1))) == "bda"


def test_nothing_rests_when_another_asks() -> None:
    cache = sessions()
    at_rest(cache, "ab")
    cache.begin(1, 1, [], [], by_id=False, now=InstantMs(0), asker="another")
    plan = cache.begin(1, 2, [], [], by_id=False, now=InstantMs(0), asker="another")
    assert looks(plan) == "ab"


def test_what_is_forgotten_or_closed_rests_on_nothing() -> None:
    cache = sessions()
    session = at_rest(cache, "ab")
    closed: list[object] = []
    cache.on_closed = closed.append
    begin(cache, (1, 1), forgotten="a")
    assert list(cache.notify("a")) == []
    begin(cache, (1, -1))
    assert (list(cache.notify("b")), closed) == ([], [session])
    assert not cache.mark_idle(session.partitions[key("b")], "b")


def test_a_resting_partition_is_fetched_whenever_its_session_is() -> None:
    cache = sessions()
    session = at_rest(cache, "abc")
    a, b, c = session.partitions.values()
    begin(cache, (1, 1), now=10)
    assert (a.fetched_at, b.fetched_at) == (10, 10)
    cache.notify("a")
    begin(cache, (1, 2), "b", "c", now=20)
    assert (a.fetched_at, b.fetched_at, c.fetched_at) == (10, 10, 10)
    begin(cache, (1, 3), now=30)
    assert (a.fetched_at, b.fetched_at, c.fetched_at) == (10, 10, 10)


Acts = st.lists(
    st.tuples(
        st.sampled_from(["fetch", "fetch", "notify", "note", "name", "forget", "open", "close"]),
        st.sampled_from("abc"),
        st.integers(1, 3),
    ),
    max_size=40,
)


@settings(max_examples=60)
@given(Acts)
def test_nothing_that_happens_to_a_partition_goes_unseen(acts: list[tuple[str, str, int]]) -> None:
    """The plain twin: events of each partition of each session since it became idle."""
    cache = sessions(sessions_max=3)
    epochs: dict[int, int] = {}
    unseen: dict[int, set[str]] = {}
    for act, name, number in acts:
        if act in ("notify", "note"):
            getattr(cache, act)(name)
            for session_id, session in cache._sessions.items():
                unseen[session_id] |= {name} if key(name) in session.partitions else set()
        elif act == "open":
            session_id = opened(cache, "abc")
            epochs[session_id], unseen[session_id] = 1, set("abc")
        elif number in epochs and act == "close":
            begin(cache, (number, -1))
            del epochs[number]
        elif number in epochs:
            changes = {"name": (name, ""), "forget": ("", name)}.get(act, ("", ""))
            unseen[number] |= set(changes[0])
            unseen[number] -= set(changes[1])
            plan = begin(cache, (number, epochs[number]), *changes)
            if names(plan) == "":
                del epochs[number]  # the cache was cleared
                continue
            epochs[number] += 1
            assert set(looks(plan)) == unseen[number]
            assert isinstance(plan, FetchPlan)
            for (looked, _, _), _, cached in plan.looks():
                if looked != name and cached is not None:
                    cache.mark_idle(cached, looked)
                    unseen[number].discard(looked)
        cache.check()
