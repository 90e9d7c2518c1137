"""Rates of quotas, compared with a plain model of Kafka's formula."""

import pytest
from broker.core.quota_rates import LONGEST_MS, MutationBucket, QuotaWindow, SampledRate
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.ids import InstantMs

WINDOW = QuotaWindow(samples=11, sample_ms=1_000)
STEPS = st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 1_000)), max_size=60)
WINDOWS = st.builds(QuotaWindow, st.integers(1, 12), st.integers(1, 2_000))


def plain_throttle_ms(
    history: list[tuple[int, int]], now: int, window: QuotaWindow, bound: float
) -> float:
    """KIP-13 as its formula: (rate - bound) / bound * window, with every sample kept."""
    samples: list[tuple[int, int]] = []
    for at, amount in history:
        if samples and at - samples[-1][0] < window.sample_ms:
            samples[-1] = (samples[-1][0], samples[-1][1] + amount)
        else:
            samples.append((at, amount))
    live = [one for one in samples if now - one[0] < window.samples * window.sample_ms]
    elapsed_ms = now - live[0][0] if live else 0
    while elapsed_ms // window.sample_ms < max(1, window.samples - 1):
        elapsed_ms += window.sample_ms
    rate = sum(amount for _, amount in live) / (elapsed_ms / 1_000)
    return max(0.0, (rate - bound) / bound * elapsed_ms)


@given(STEPS, st.floats(0.5, 1_000), WINDOWS)
def test_the_throttle_time_is_that_of_the_plain_model(
    steps: list[tuple[int, int]], bound: float, window: QuotaWindow
) -> None:
    rate, now, history = SampledRate(window), 0, []
    for pause, amount in steps:
        now += pause
        history.append((now, amount))
        rate.record(amount, InstantMs(now))
        expected = plain_throttle_ms(history, now, window, bound)
        assert rate.throttle_ms(bound, InstantMs(now)) == pytest.approx(
            expected, abs=0.51, rel=1e-9
        )


@given(STEPS, st.integers(0, 1_000), st.floats(0.5, 1_000))
def test_an_extra_amount_counts_as_if_recorded(
    steps: list[tuple[int, int]], extra: int, bound: float
) -> None:
    rate, now = SampledRate(WINDOW), InstantMs(0)
    for pause, amount in [*steps, (0, 0)]:
        now = InstantMs(now + pause)
        rate.record(amount, now)
    peeked = rate.throttle_ms(bound, now, extra)
    rate.record(extra, now)
    assert peeked == rate.throttle_ms(bound, now)


@given(STEPS)
def test_samples_are_bounded_and_a_silent_window_leaves_none(steps: list[tuple[int, int]]) -> None:
    rate, now = SampledRate(WINDOW), InstantMs(0)
    for pause, amount in steps:
        now = InstantMs(now + pause)
        rate.record(amount, now)
        assert len(rate._samples) <= WINDOW.samples
    assert not steps or not rate.is_idle(now)
    assert rate.is_idle(InstantMs(now + WINDOW.whole_ms))


def test_a_whole_window_within_the_bound_is_free_and_a_burst_waits_for_the_rest() -> None:
    rate = SampledRate(WINDOW)
    rate.record(10_000, InstantMs(0))
    assert rate.throttle_ms(1_000, InstantMs(0)) == 0
    rate.record(5_000, InstantMs(0))
    assert rate.throttle_ms(1_000, InstantMs(0)) == 5_000
    assert rate.throttle_ms(1_000, InstantMs(11_000)) == 0


@given(STEPS, st.floats(0.5, 1_000))
def test_a_bucket_grants_no_more_than_burst_and_rate(
    steps: list[tuple[int, int]], bound: float
) -> None:
    """Accepted permits, without the last one's debt, fit into a full bucket and what it gained."""
    bucket, now, accepted, last = MutationBucket(WINDOW), 0, 0, 0
    for pause, permits in steps:
        now += pause
        if bucket.throttle_ms(bound, InstantMs(now)) == 0:
            bucket.take(permits, bound, InstantMs(now))
            accepted, last = accepted + permits, permits
        assert accepted - last <= bound * (WINDOW.whole_ms + now) / 1_000 + 1


def test_a_debt_of_mutations_is_waited_for_exactly() -> None:
    bucket = MutationBucket(WINDOW)
    bucket.take(31, 2.0, InstantMs(0))  # of 22
    assert bucket.throttle_ms(2.0, InstantMs(0)) == 4_500
    assert bucket.throttle_ms(2.0, InstantMs(4_400)) == 100
    assert bucket.throttle_ms(2.0, InstantMs(4_500)) == 0
    assert not bucket.is_idle(2.0, InstantMs(15_400))
    assert bucket.is_idle(2.0, InstantMs(15_500))


@given(st.floats(min_value=0, exclude_min=True, max_value=1e-300), st.integers(1, 1_000))
def test_a_bound_that_is_a_typing_error_gives_the_longest_time(bound: float, amount: int) -> None:
    rate, bucket = SampledRate(WINDOW), MutationBucket(WINDOW)
    rate.record(amount, InstantMs(0))
    bucket.take(amount, bound, InstantMs(0))
    assert rate.throttle_ms(bound, InstantMs(0)) == LONGEST_MS
    assert bucket.throttle_ms(bound, InstantMs(0)) == LONGEST_MS
