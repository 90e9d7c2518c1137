from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.backoff import EVEN, Backoff, RetryDelays


def test_delays_double_up_to_the_bound() -> None:
    backoff = Backoff(100, 1_000)
    delays = [backoff.delay_ms(failures, EVEN) for failures in range(1, 7)]
    assert delays == [100, 200, 400, 800, 1_000, 1_000]


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_jitter_stays_within_a_fifth(failures: int, dice: float) -> None:
    backoff = Backoff(100, 1_000)
    plain = backoff.delay_ms(failures, EVEN)
    assert plain * 0.8 <= backoff.delay_ms(failures, dice) <= plain * 1.2


def test_the_longest_delay_is_known_by_its_failures() -> None:
    backoff = Backoff(100, 1_000)
    assert [backoff.is_longest(failures) for failures in (1, 4, 5, 6)] == [
        False,
        False,
        True,
        True,
    ]


def test_retry_delays_grow_until_they_are_reset() -> None:
    delays = RetryDelays(Backoff(100, 1_000), lambda: EVEN)
    assert [delays.next_ms(), delays.next_ms(), delays.next_s()] == [100, 200, 0.4]
    delays.reset()
    assert delays.next_ms() == 100


def test_retry_delays_draw_at_each_attempt() -> None:
    draws = iter([0.0, EVEN, 0.0])
    delays = RetryDelays(Backoff(100, 100), lambda: next(draws))
    assert [delays.next_ms() for _ in range(3)] == [80, 100, 80]
