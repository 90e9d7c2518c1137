from hypothesis import given
from hypothesis import strategies as st
from tidemark.client.retry import Backoff, Deadline


def test_waits_double_up_to_the_bound() -> None:
    backoff = Backoff(100, 1_000)
    waits = [backoff.delay_ms(failures, 0.5) for failures in range(1, 7)]
    assert waits == [100, 200, 400, 800, 1_000, 1_000]


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_jitter_stays_within_a_fifth(failures: int, dice: float) -> None:
    backoff = Backoff(100, 1_000)
    plain = backoff.delay_ms(failures, 0.5)
    assert plain * 0.8 <= backoff.delay_ms(failures, dice) <= plain * 1.2


def test_a_deadline_counts_down_to_nothing() -> None:
    deadline = Deadline.after(500, 1_000)
    assert (deadline.left_ms(1_200), deadline.passed(1_200)) == (300, False)
    assert (deadline.left_ms(1_500), deadline.passed(1_500)) == (0, True)
