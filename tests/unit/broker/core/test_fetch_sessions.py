"""Fetch sessions (KIP-227), and a plain twin: what a fetcher that merges answers must know."""

from itertools import count

from broker.core.fetch_sessions import FetchPlan, FetchSessions, PartitionKey
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
