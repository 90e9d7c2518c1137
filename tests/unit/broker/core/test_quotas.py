"""Quotas: none by default; a debt becomes throttle time."""

from broker.core.quotas import PRINCIPALS_MAX, THROTTLE_MS_MAX, QuotaLimits, Quotas
from tidemark.model.ids import InstantMs


def test_nothing_is_throttled_by_default() -> None:
    quotas = Quotas()
    assert not quotas.enabled
    assert quotas.produced("User:a", 10**9, InstantMs(0)) == 0


def test_what_exceeds_the_rate_is_rested_off() -> None:
    quotas = Quotas(QuotaLimits(produce_bytes_per_s=1_000))
    assert quotas.enabled
    assert quotas.produced("User:a", 1_000, InstantMs(0)) == 0
    assert 500 <= quotas.produced("User:a", 500, InstantMs(0)) <= 501
    assert quotas.produced("User:a", 0, InstantMs(500)) == 0
    assert quotas.produced("User:b", 1_000, InstantMs(500)) == 0
    assert quotas.fetched("User:a", 10**9, InstantMs(500)) == 0


def test_a_throttle_is_bounded_and_so_are_principals() -> None:
    quotas = Quotas(QuotaLimits(fetch_bytes_per_s=1))
    assert quotas.fetched("User:a", 10**9, InstantMs(0)) == THROTTLE_MS_MAX
    for number in range(PRINCIPALS_MAX + 5):
        quotas.fetched(f"User:{number}", 1, InstantMs(0))
    assert len(quotas._allowances) == PRINCIPALS_MAX
